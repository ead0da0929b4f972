"""Closed state is merged: few files however many spills, a bounded part of them at once; a clean-up probes little."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine import mjoin
from watersmeet.engine.closed_state import _chosen
from watersmeet.engine.compaction import Merging
from watersmeet.engine.generations import Spilled
from watersmeet.epoch.kinds import Spill
from watersmeet.epoch.task import SlotTask
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import SEVERAL, ExtentRef, SegmentRef
from watersmeet.state.manifest_json import SEVERAL_GENERATIONS, from_json, to_json

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MERGES_NOTHING = Merging(small_fan_in=1 << 30)
ROWS = 20


def spilled_in_every_epoch(folder, epochs: int, merging: Merging) -> tuple[InProcessQuery, int]:
    """A query that has closed all groups in every epoch, and how many results it owes."""
    query = build_query(
        [Stream(name, SCHEMA) for name in "ab"], where=["a.k = b.k"], within=None, windows={}, select=["a.v", "b.v"]
    )
    engine = InProcessQuery(query, folder, partitions=8, merging=merging)
    rng = np.random.default_rng(epochs)
    held = {name: Counter() for name in "ab"}
    emitted = 0
    for _ in range(epochs):
        keys = {name: rng.integers(0, 10 * epochs, ROWS) for name in "ab"}
        engine.order((Spill(0, 0, tuple(range(8))),))
        emitted += engine.run({name: pa.table([k, k], schema=SCHEMA) for name, k in keys.items()}).num_rows
        for name in "ab":
            held[name].update(keys[name].tolist())
    return engine, sum(count * held["b"][key] for key, count in held["a"].items()) - emitted


def test_files_grow_with_the_logarithm_of_the_spills(tmp_path):
    files = {}
    for epochs in (30, 120):
        engine, owed = spilled_in_every_epoch(tmp_path / str(epochs), epochs, Merging())
        files[epochs] = len(engine.manifest.segments)
        assert sum(results.num_rows for results in engine.clean_up()) == owed > 0
    assert files[30] < 10
    assert files[120] <= files[30] + 4


def test_the_probes_of_a_clean_up_do_not_multiply_with_generations(tmp_path, monkeypatch):
    probes = Counter()
    original = mjoin.match_keys
    for epochs in (20, 80):
        engine, owed = spilled_in_every_epoch(tmp_path / str(epochs), epochs, MERGES_NOTHING)
        assert len({extent.generation for extent in engine.manifest.all_extents()}) == epochs
        with monkeypatch.context() as patched:
            patched.setattr(mjoin, "match_keys", lambda *a, n=epochs: probes.update([n]) or original(*a))
            assert sum(results.num_rows for results in engine.clean_up()) == owed > 0
    assert probes[80] == probes[20]


def test_an_older_version_is_told_of_extents_of_several_generations(tmp_path):
    engine, _ = spilled_in_every_epoch(tmp_path, 8, Merging())
    manifest = engine.manifest
    assert SEVERAL in {extent.generation for extent in manifest.all_extents()}
    text = to_json(manifest)
    assert f'"features":["checked","{SEVERAL_GENERATIONS}"]'.encode() in text
    read = [extent.generation for extent in from_json(text).all_extents()]
    assert read == [extent.generation for extent in manifest.all_extents()]
    for _ in engine.clean_up():
        pass
    assert b'"features":["checked"]' in to_json(engine.manifest)


def layers_of(lengths: list[int]) -> SlotTask:
    groups = Groups.between(0, 8)
    extents = [ExtentRef(f"{i}.seg", 0, 0, i % 2, rows, None, groups, i + 2) for i, rows in enumerate(lengths)]
    segments = {e.segment: SegmentRef(e.segment, 10 * e.rows, 0) for e in extents}
    return SlotTask(len(lengths) + 2, 0, 0, "x", None, tuple(extents), segments, groups)


@given(st.lists(st.integers(1, 100_000), max_size=60))
def test_an_epoch_merges_a_bounded_part_of_what_is_closed_bucket_by_bucket(lengths):
    merging, task = Merging(), layers_of(lengths)
    kept, chosen = _chosen(task, task.closed, Spilled(), merging)
    merged = [extent for layers in chosen for layer in layers for extent in layer]
    assert Counter([*kept, *merged]) == Counter(task.closed)
    assert all(len({layer[0].bucket for layer in layers}) == 1 for layers in chosen)
    allowance = merging.allowance(0, sum(lengths))
    assert all(2 * extent.rows <= allowance for extent in merged)
    assert sum(extent.rows for extent in merged) <= 2 * allowance
    left = sum(2 * extent.rows <= allowance for extent in kept)
    assert left < 40 or sum(extent.rows for extent in merged) > allowance, "what is small is few, or is being merged"


@pytest.mark.parametrize("rows", [0, 5000])
def test_what_is_spilled_makes_the_allowance_larger(rows):
    task = layers_of([40_000] * 6)
    spilled = Spilled((), [replace(task.extents[0], segment="new", rows=rows)], ())
    _, chosen = _chosen(task, task.closed, spilled, Merging())
    assert bool(chosen) is (rows > 0)
