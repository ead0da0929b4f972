"""Merges are bounded: by bytes where rows are wide, and where one key has all rows."""

import math

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.engine.compaction import Merging
from watersmeet.engine.generations import ranges_by_rows
from watersmeet.plan.partitioning import first_hash
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.run import Run, build_runs
from watersmeet.state.tiers import epoch_of

WIDE = 1 << 20


def asked(value: pa.DataType, where: str = "a.k = b.k") -> JoinQuery:
    schema = pa.schema([("k", pa.int64()), ("v", value)])
    streams = [Stream(name, schema) for name in "ab"]
    return build_query(streams, where=[where], within=None, windows={}, select=["a.v", "b.v"])


def written(engine: InProcessQuery) -> tuple[int, int]:
    """Rows and bytes that the last epoch has written."""
    manifest = engine.manifest
    new = {name for name in manifest.segments if epoch_of(name) == manifest.epoch}
    extents = [e for e in manifest.all_extents() if e.segment in new]
    return sum(e.rows for e in extents), sum(manifest.segments[name].bytes for name in new)


def layers(engine: InProcessQuery) -> int:
    return len(engine.manifest.segments)


def test_wide_values_are_merged_within_the_bytes_of_an_allowance(tmp_path):
    """Four values of 1 MiB a batch, few enough rows to be merged again and again if only rows counted."""
    merging = Merging(rows_min=16_384, rows_per_arrived=1)
    engine = InProcessQuery(asked(pa.binary()), tmp_path, merging=merging)
    rng = np.random.default_rng(3)
    arriving = 4 * WIDE
    most = 16_384 * merging.row_bytes + arriving
    heights = []
    for _ in range(24):
        values = pa.array([rng.bytes(WIDE) for _ in range(4)], pa.binary())
        engine.run({"a": pa.table({"k": rng.integers(0, 50, 4), "v": values})})
        assert written(engine)[1] < 1.1 * (most + arriving)
        heights.append(layers(engine))
    assert sum(ref.bytes for ref in engine.manifest.segments.values()) > 4 * most
    assert max(heights) < 24, "some were merged"


@pytest.mark.parametrize("where", ["a.k = b.k", "a.v < b.v"])
def test_one_hot_key_is_merged_within_bounds(tmp_path, where):
    """With a key, all rows have one; without, there is none. What one epoch merges does not grow with the state."""
    merging = Merging(rows_min=500, rows_per_arrived=2)
    engine = InProcessQuery(asked(pa.int64(), where), tmp_path, merging=merging)
    rows, batches = 100, 200
    cell_max = merging.cell_max(merging.allowance(rows, rows * batches))
    work = []
    for number in range(batches):
        engine.run({"a": pa.table({"k": np.zeros(rows, dtype=np.int64), "v": np.arange(rows) + number})})
        work.append(written(engine)[0])
        few = merging.small_fan_in + merging.fan_in + 2 * math.log2(cell_max / rows)
        assert layers(engine) <= few + 2 * rows * (number + 1) / cell_max
    assert max(work) <= cell_max + 2 * merging.allowance(rows, rows * batches)
    assert max(work) > 5 * rows, "something was merged"
    assert sum(work) <= rows * batches * (2 + math.log2(batches))
    held = list(engine.manifest.all_extents())
    assert sum(e.rows for e in held) == rows * batches


def run_over(partitions: int, width: int) -> Run:
    hashes = np.array([first_hash(group, partitions) for group in range(partitions)], dtype=np.uint64)
    keys = pa.record_batch({"k": np.arange(partitions)})
    return build_runs(hashes, keys, None, pa.record_batch({"v": ["x" * width] * partitions}))[0]


def test_ranges_of_groups_are_bounded_by_bytes_too():
    run = run_over(16, 1000)
    assert ranges_by_rows([run], 0, 16, 16, rows_max=100, bytes_max=1 << 30) == [(0, 16)]
    narrow = ranges_by_rows([run], 0, 16, 16, rows_max=100, bytes_max=4200)
    assert narrow == [(0, 4), (4, 8), (8, 12), (12, 16)]
    assert len(ranges_by_rows([run], 0, 16, 16, rows_max=100, bytes_max=10)) == 16
