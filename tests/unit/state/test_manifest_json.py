"""The manifest as JSON: it comes back the same, refuses what it does not know by name, and stays small."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.commit_time import BYTES_PER_EXTENT_MAX, EPOCH, TIME_US, chain, large_manifest
from tests.unit.state.test_manifest import KEYS, manifest
from watersmeet.errors import CheckpointError
from watersmeet.plan.placement import Placement
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import (
    ACTIVE,
    SETTLED,
    ExtentRef,
    Manifest,
    Outbox,
    PlanText,
    ResultFile,
    before_first_epoch,
    placed,
)
from watersmeet.state.manifest_json import FORMAT_VERSION, from_json, to_json
from watersmeet.state.measures import OWED, PASSED, RESULTS, STATE_ROWS, TESTED, residual_name

SCATTERED = Placement(3, {KEYS[0]: (2, 0, 1, 1, 0, 2, 2, 0), KEYS[1]: (0,) * 8})


def full() -> Manifest:
    """One that has something of everything."""
    value = placed(manifest(slots=2), SCATTERED)
    (first, *_), *_ = (list(state) for state in value.extents)
    closed = ExtentRef(next(iter(value.segments)), 5, 0, 3, 70, None, Groups.between(0, 4), SETTLED, None)
    owing = replace(closed, index=6, generation=9, since_us=-77, expires_us=1 << 60)
    states = ({**value.extents[0], first: (*value.extents[0][first], closed, owing)}, *value.extents[1:])
    names = [f"part-0000{n}-31e57b2c-0f5c-4d22-9a1c-0123456789ab-c000.snappy.parquet" for n in range(2)]
    files = (ResultFile(names[0], 9, 1234, 77), ResultFile(names[1], 10, 1235))
    return replace(
        value,
        extents=states,
        closed_us=44,
        outbox=Outbox(shows=True, place="sink", files=files),
        events=({"epoch": 4, "kind": "spill", "slot": 1, "reason": "no room", "groups": 3},),
    )


def changed(**values: Any) -> bytes:
    return json.dumps({**json.loads(to_json(full())), **values}).encode()


@pytest.mark.parametrize(
    "value",
    [full(), manifest(), manifest(slots=4), before_first_epoch(PlanText("(a b)"), 3, KEYS, 16, 2)],
    ids=["full", "one slot", "four slots", "nothing"],
)
def test_a_manifest_survives_json(value):
    assert from_json(to_json(value)) == value
    assert to_json(from_json(to_json(value))) == to_json(value)


def test_places_of_stores_in_a_stage_are_not_kept():
    """They are of a plan; names are not."""
    name, extents = next(iter(manifest().extents[0].items()))
    numbered = replace(manifest(), extents=({name: tuple(replace(e, store=5) for e in extents)},))
    assert {extent.store for extent in from_json(to_json(numbered)).all_extents()} == {0}


def test_keys_that_are_not_known_are_left_alone():
    assert from_json(changed(added={"by": "a later version"}, features=[])) == full()


def test_an_unknown_feature_is_refused_by_name():
    with pytest.raises(CheckpointError, match="'migration', 'slices'") as refused:
        from_json(changed(features=["slices", "migration"]))
    assert "a later one" in (refused.value.hint or "")


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 1, 0, None, str(FORMAT_VERSION)])
def test_another_format_is_refused_by_its_number(version):
    with pytest.raises(CheckpointError, match=f"format {version}"):
        from_json(changed(format=version))


@pytest.mark.parametrize(
    ("runs", "generation"),
    [(1, ACTIVE), (4, ACTIVE), (4, EPOCH)],
    ids=["a segment for every extent", "four runs a segment", "four, and closed"],
)
def test_an_extent_of_a_large_query_takes_few_bytes(runs, generation):
    """With its part of the segments; how long it takes to write: benchmarks/commit_time.py."""
    value = large_manifest(chain(), runs=runs)
    if generation != ACTIVE:
        aged = [
            {name: tuple(replace(e, generation=EPOCH, since_us=TIME_US) for e in mine) for name, mine in slot.items()}
            for slot in value.extents
        ]
        value = replace(value, extents=tuple(aged))
    written = to_json(value)
    extents = sum(1 for _ in value.all_extents())
    assert extents == 300 * 3 * 30
    assert len(written) <= BYTES_PER_EXTENT_MAX * extents
    assert from_json(written) == _without_places(value)


def _without_places(value: Manifest) -> Manifest:
    states = ({name: tuple(replace(e, store=0) for e in mine) for name, mine in slot.items()} for slot in value.extents)
    return replace(value, extents=tuple(states))


def test_counts_of_a_manifest_from_before_they_were_typed_are_read_and_written_as_they_were():
    """The manifest of a spilled chain, written when counts were mappings of names."""
    data = (Path(__file__).parents[2] / "data" / "manifest-v2.json").read_bytes()
    value, (found, again) = json.loads(data), (from_json(data), json.loads(to_json(from_json(data))))
    assert (found.epoch, found.counters.of(RESULTS), found.counters.of(OWED)) == (5, 1872, 1781)
    assert found.counters.of(PASSED, residual_name(0)) / found.counters.of(TESTED, residual_name(0)) == 630 / 1188
    assert found.totals.sum(STATE_ROWS) == 20 + 20 + 472 + 20
    assert [again[name] for name in ("counters", "gauges")] == [value[name] for name in ("counters", "gauges")]
