"""Manifests: they survive JSON, refuse the future, and are dealt out anew without touching a file."""

import json
from dataclasses import replace

import pytest

from watersmeet.errors import CheckpointError
from watersmeet.plan.partitioning import even_assignment
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import (
    FORMAT_VERSION,
    ExtentRef,
    Manifest,
    SegmentRef,
    before_first_epoch,
    extent_of,
    from_json,
    reassign,
)

SEGMENT = SegmentRef("000000000004-00-0000-x-0.seg", 1234, 0xDEADBEEF)


def manifest(slots: int = 1, partitions: int = 8) -> Manifest:
    return Manifest(
        epoch=4,
        batch=7,
        watermark_us=-5,
        times_max_us=(None, 12),
        last_seen_ms=(0, 99),
        assignment=even_assignment(partitions, slots),
        segments={SEGMENT.name: SEGMENT},
        extents=tuple(
            tuple(
                tuple(
                    ExtentRef(
                        SEGMENT.name, i, i, -1, 10, -2, Groups.of(even_assignment(partitions, slots), slot), 3, 5, True
                    )
                    for i in (2 * stage, 2 * stage + 1)
                )
                for slot in range(slots)
            )
            for stage in (0, 1)
        ),
        totals={"rows": 3, "state_rows.a": 10},
    )


def covered(value: Manifest) -> list[tuple[int, int, int]]:
    """(stage, run, group) of every extent, each as often as it is held."""
    return sorted(
        (number, e.index, g)
        for number, stage in enumerate(value.extents)
        for slot in stage
        for e in slot
        for g in e.groups.numbers()
    )


@pytest.mark.parametrize("value", [manifest(), manifest(slots=4), before_first_epoch(3, 2, 16, 2)])
def test_a_manifest_survives_json(value):
    assert from_json(value.to_json()) == value


def test_what_an_earlier_version_wrote_of_a_young_query_is_left_out():
    batch = {"file": {"name": "r.arrow", "bytes": 9, "crc": 7}, "rows": 3, "watermark_us": None, "last_seen_ms": [0, 9]}
    named = {"first": [batch], "join": "j.json", "base": "b.json"}
    old = json.dumps({**json.loads(manifest().to_json()), **named})
    assert from_json(old.encode()) == manifest()
    assert named.keys().isdisjoint(json.loads(manifest().to_json()))


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, None, "1"])
def test_another_format_is_refused_by_its_number(version):
    text = json.dumps({**json.loads(manifest().to_json()), "format": version})
    with pytest.raises(CheckpointError, match=f"format {version}"):
        from_json(text.encode())


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 11])
def test_other_slots_hold_every_group_of_every_run_once(slots):
    before = manifest(slots=2)
    after = reassign(before, slots)
    assert after.slots == slots
    assert covered(after) == covered(before)
    for stage in after.extents:
        for slot, extents in enumerate(stage):
            assert all(after.assignment[g] == slot for e in extents for g in e.groups.numbers())


def test_there_and_back_holds_the_same():
    before = manifest(slots=3)
    again = reassign(reassign(reassign(before, 7), 1), 3)
    assert covered(again) == covered(before)
    assert again.assignment == before.assignment


def test_as_many_slots_change_nothing():
    before = manifest(slots=2)
    assert reassign(before, 2) is before


def test_groups_that_were_moved_one_by_one_are_dealt_out_too():
    scattered = replace(manifest(slots=2), assignment=(0, 1) * 4)
    assert covered(reassign(scattered, 3)) == covered(scattered)


def test_an_extent_is_dealt_out_with_its_share_of_rows():
    one = replace(manifest(), extents=((manifest().extents[0][0][:1],),))
    dealt = [slot for (slot,) in reassign(one, 2, (0, 0, 1, 0, 0, 1, 0, 0)).extents[0]]
    assert [e.groups.edges for e in dealt] == [[0, 2, 3, 5, 6, 8], [2, 3, 5, 6]]
    assert [e.rows for e in dealt] == [8, 3]
    assert all(e.is_estimate and not e.is_piece for e in dealt)
    again = [slot for (slot,) in reassign(one, 1, (0,) * 8).extents[0]]
    assert again == list(one.extents[0][0])


def test_extents_of_one_range_are_read_as_earlier_versions_wrote_them():
    assert extent_of(["s", 1, 2, 3, 4, None, 5, 8, 9, 10]) == ExtentRef(
        "s", 1, 2, 3, 4, None, Groups.between(5, 8), 9, 10
    )
    assert extent_of(["s", 1, 2, 3, 4, None, 5, 8]) == ExtentRef("s", 1, 2, 3, 4, None, Groups.between(5, 8))


def test_before_the_first_epoch_there_is_nothing():
    value = before_first_epoch(2, 2, 8, 3)
    assert (value.epoch, value.watermark_us, dict(value.segments)) == (-1, None, {})
    assert value.extents == (((), (), ()), ((), (), ()))
