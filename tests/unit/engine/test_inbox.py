"""The inbox: bounded chunks, and every row that is dropped is counted under its reason."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios import UTC, table_of
from watersmeet.engine.inbox import chunks, deltas_of, normalise_key
from watersmeet.engine.statistics import Tally
from watersmeet.plan.stages import Place
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import Counts

SCHEMA = pa.schema([("k", pa.int32()), ("ts", UTC), ("v", pa.int64())])


def engine(tmp_path, within: str | None = "10 microseconds") -> InProcessQuery:
    query = build_query(
        [Stream(name, SCHEMA, "ts") for name in "ab"],
        where=["a.k = b.k"],
        within=within,
        windows={},
        select=["a.v", "b.v"],
    )
    return InProcessQuery(query, tmp_path)


def deltas(runner: InProcessQuery, rows: list[tuple], watermark: int | None = None):
    tally = Tally(runner.plan.partitions)
    frame = pa.Table.from_batches([runner.slots.frames.frame(0, Place(0, 0), table_of(SCHEMA, rows))])
    return deltas_of(frame, runner.plan, 0, watermark, tally), Counts(tally.counts).by_name()


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(1, 9))
@settings(deadline=None)
def test_chunks_are_bounded_and_lose_nothing(sizes, rows_max):
    frames = [pa.record_batch({"v": np.arange(size) + 100 * i}) for i, size in enumerate(sizes)]
    cut = list(chunks(frames, rows_max=rows_max))
    assert all(0 < chunk.num_rows < 2 * rows_max for chunk in cut)
    assert [v for chunk in cut for v in chunk["v"].to_pylist()] == [v for f in frames for v in f["v"].to_pylist()]


def test_chunks_are_bounded_in_bytes_too():
    frames = [pa.record_batch({"v": np.arange(10)})] * 6
    assert [chunk.num_rows for chunk in chunks(frames, bytes_max=160)] == [20, 20, 20]


def test_a_row_on_the_watermark_is_in_time_and_one_before_is_late(tmp_path):
    (ours, theirs), dropped = deltas(engine(tmp_path), [(1, 5, 1), (1, 4, 2), (1, 6, 3)], watermark=5)
    assert sum(run.rows for run in ours) == 2
    assert theirs == []
    assert dropped == {"late.a": 1}


def test_each_dropped_row_is_counted_once(tmp_path):
    rows = [(None, None, 1), (None, 1, 2), (1, None, 3), (None, 9, 4), (1, 9, 5)]
    (ours, _), dropped = deltas(engine(tmp_path), rows, watermark=5)
    assert sum(run.rows for run in ours) == 1
    assert dropped == {"no_event_time.a": 2, "late.a": 1, "null_key.a": 1}


def test_all_rows_are_seen_whatever_becomes_of_them(tmp_path):
    runner = engine(tmp_path)
    tally = Tally(runner.plan.partitions)
    for rows in ([(None, 7, 1), (1, 4, 2)], [(1, None, 3), (1, 3, 4), (1, 6, 5)], [(1, None, 6)]):
        frame = pa.Table.from_batches([runner.slots.frames.frame(0, Place(0, 0), table_of(SCHEMA, rows))])
        deltas_of(frame, runner.plan, 0, 5, tally)
    assert tally.seen == {"a": (6, 7)}


def test_without_windows_nothing_is_late_and_a_time_may_be_missing(tmp_path):
    (ours, _), dropped = deltas(engine(tmp_path, within=None), [(1, None, 1), (1, 1, 2)], watermark=5)
    assert sum(run.rows for run in ours) == 2
    assert dropped == {}


def test_a_frame_of_another_plan_is_refused(tmp_path):
    runner = engine(tmp_path)
    with pytest.raises(ValueError, match="the plan says"):
        deltas_of(pa.table({"x": [1]}), runner.plan, 0, None, Tally(runner.plan.partitions))


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_equal_floats_get_equal_bits_and_null_stays_null(type_):
    odd_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    values = pa.array([0.0, -0.0, None, *odd_nan.tolist(), 1.5], type_)
    normal = normalise_key(values)
    bits = [None if v is None else np.array(v, dtype=type_.to_pandas_dtype()).tobytes() for v in normal.to_pylist()]
    assert normal.type == type_
    assert normal.null_count == 1
    assert bits[0] == bits[1]
    assert bits[3] == bits[4]
    assert bits[2] is None
    assert len(set(bits)) == 4


def test_other_keys_are_left_alone():
    column = pa.array(["x", None])
    assert normalise_key(column) is column
