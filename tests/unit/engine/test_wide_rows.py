"""Wide rows: whatever is gathered, cut, merged or written is bounded by the bytes that are there, not by their mean."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import canonical, nested_loop_join
from watersmeet.engine import layers, mjoin, work
from watersmeet.engine.inbox import chunks
from watersmeet.engine.kernels import Ranges, expand, split_heavy
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state import run as run_module
from watersmeet.state import segment
from watersmeet.state.widths import bytes_between, row_bytes, row_bytes_max

BYTES = 1 << 12
TEXTS = st.one_of(st.none(), st.text("ab", max_size=3), st.just("w" * 300))
KINDS = {
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), TEXTS.map(lambda text: None if text is None else text.encode())),
    "large": (pa.large_string(), TEXTS),
    "list": (pa.list_(pa.string()), st.one_of(st.none(), st.lists(TEXTS, max_size=3))),
    "struct": (pa.struct([("x", pa.string()), ("y", pa.int32())]), st.fixed_dictionaries({"x": TEXTS, "y": st.none()})),
    "map": (pa.map_(pa.string(), pa.string()), st.lists(st.tuples(st.just("k"), TEXTS), max_size=2)),
    "int": (pa.int64(), st.integers(0, 9)),
    "null": (pa.null(), st.none()),
}


def own_bytes(value) -> int:
    """The bytes of what is in a value, without those that say where it begins."""
    match value:
        case None | int():
            return 0
        case str() | bytes():
            return len(value)
        case dict():
            return sum(map(own_bytes, value.values()))
        case _:
            return sum(map(own_bytes, value))


@given(st.data(), st.sampled_from(sorted(KINDS)), st.integers(0, 3), st.integers(0, 3))
@settings(deadline=None, max_examples=150)
def test_rows_are_weighed_by_their_own_values(data, name, before, after):
    kind, values = KINDS[name]
    drawn = data.draw(st.lists(values, min_size=before + after + 1, max_size=before + after + 5))
    column = pa.array(drawn, kind).slice(before, len(drawn) - before - after)
    batch = pa.record_batch({"v": column})
    rows = np.arange(len(column))
    weights = row_bytes(batch, rows)
    values = [own_bytes(value) for value in column.to_pylist()]
    beside = weights - values
    assert (beside >= 0).all()
    assert (beside <= 64).all()
    assert row_bytes_max(batch) >= weights.max()
    assert row_bytes_max(batch) <= weights.max() + 64
    assert bytes_between(batch, rows[:1], rows[-1:] + 1).sum() == weights.sum()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), max_size=6), st.integers(1, 200))
@settings(deadline=None)
def test_heavy_ranges_are_split_and_lose_nothing(drawn, weight_max):
    start, count = np.array(drawn, dtype=np.int64).reshape(-1, 2).T
    before = np.append(0, np.cumsum(np.where(np.arange(80) % 7 == 0, 150, 3)))
    ranges = Ranges(np.arange(len(start)), start, count)
    cut, weights = split_heavy(ranges, lambda some: before[some.start + some.count] - before[some.start], weight_max)
    assert [*map(np.ndarray.tolist, expand(cut))] == [*map(np.ndarray.tolist, expand(ranges))]
    assert ((weights <= weight_max) | (cut.count == 1)).all()


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def asked() -> JoinQuery:
    streams = [Stream(name, SCHEMA) for name in "abc"]
    select = ["a.v", "b.v", "c.v", "a.k"]
    return build_query(streams, where=["a.k = b.k AND b.k = c.k"], within=None, windows={}, select=select)


def rows(*values: tuple[int, str]) -> pa.Table:
    return pa.table({"k": [k for k, _ in values], "v": [v for _, v in values]}, SCHEMA)


@pytest.fixture
def small_bounds(monkeypatch):
    """All bounds of bytes are small, so that a kilobyte is wide."""
    monkeypatch.setattr(mjoin, "BYTES_MAX", BYTES)
    monkeypatch.setattr(mjoin, "UNEVEN_BYTES_MAX", 2 * BYTES)
    monkeypatch.setattr(run_module, "RUN_BYTES_MAX", BYTES)
    monkeypatch.setattr(work, "HELD_BYTES_MAX", BYTES)


@pytest.mark.parametrize("wide_stream", "abc")
@pytest.mark.parametrize("last", "abc")
def test_one_wide_value_among_narrow_rows_is_gathered_in_parts(tmp_path, small_bounds, wide_stream, last):
    wide = 1000
    batch = {name: rows(*((1, "n") for _ in range(9))) for name in "abc"}
    batch[wide_stream] = rows((1, "w" * wide), *((2, "n") for _ in range(400)))
    first = {name: table for name, table in batch.items() if name != last}
    query = asked()
    engine = InProcessQuery(query, tmp_path)
    engine.run(first)
    emitted, finish = [], engine.slots._finished
    engine.slots._finished = lambda raw, seen: (emitted.extend(raw.to_batches()), finish(raw, seen))[1]
    found = engine.run({last: batch[last]})
    assert canonical(found) == nested_loop_join(query, [first, {last: batch[last]}]).results
    assert found.num_rows == 81
    sizes = [rows.nbytes for rows in emitted]
    assert max(sizes) <= BYTES + wide
    assert len(sizes) >= 81 * wide / BYTES


def test_a_wide_key_counts_as_often_as_it_is_shown(tmp_path, small_bounds):
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    streams = [Stream(name, schema) for name in "ab"]
    query = build_query(streams, where=["a.k = b.k"], within=None, windows={}, select=["a.k AS x", "b.k AS y", "b.v"])
    engine = InProcessQuery(query, tmp_path)
    emitted, finish = [], engine.slots._finished
    engine.slots._finished = lambda raw, seen: (emitted.extend(raw.to_batches()), finish(raw, seen))[1]
    table = pa.table({"k": ["w" * 500] * 20, "v": range(20)}, schema)
    assert engine.run({"a": table, "b": table}).num_rows == 400
    assert max(rows.nbytes for rows in emitted) <= BYTES + 1000


@given(st.lists(st.sampled_from((1, 1, 5, 50, 700)), max_size=40), st.integers(1, 9))
@settings(deadline=None)
def test_chunks_are_cut_by_the_bytes_of_their_rows(widths, rows_max):
    frames = [pa.record_batch({"v": ["x" * width for width in widths]})] if widths else []
    cut = list(chunks(frames, rows_max=rows_max, bytes_max=600))
    assert [v for chunk in cut for v in chunk.column("v").to_pylist()] == ["x" * width for width in widths]
    for chunk in cut:
        assert chunk.num_rows == 1 or sum(map(len, chunk.column("v").to_pylist())) <= 2 * 600
        assert chunk.num_rows <= 2 * rows_max


def test_rows_that_wait_to_be_written_are_on_disk_when_they_are_many(tmp_path, small_bounds):
    """Windowed rows are copied into their buckets; the copies of a large epoch do not stay in memory."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.string())])
    streams = [Stream(name, schema, "ts") for name in "ab"]
    query = build_query(streams, where=["a.k = b.k"], within="8 microseconds", windows={}, select=["a.v", "b.v"])
    engine = InProcessQuery(query, tmp_path, cut=lambda frames: chunks(frames, rows_max=10))
    table = pa.table(
        {
            "k": range(200),
            "ts": pa.array([i % 8 for i in range(200)]).cast(schema.field("ts").type),
            "v": ["x" * 50] * 200,
        }
    )
    kept: list[int] = []
    keep = work.Scratch.keep

    def noted(scratch, store, run):
        found = keep(scratch, store, run)
        kept.append(scratch._files)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(work.Scratch, "keep", noted)
        assert engine.run({"a": table, "b": table}).num_rows == 200
    restarts = [i for i, (before, now) in enumerate(pairwise(kept)) if now < before]
    assert restarts, "copies have a scratch folder of their own"
    assert kept[-1] > 100


def test_a_large_merge_has_one_of_its_runs_in_memory_at_a_time(tmp_path, small_bounds, monkeypatch):
    """Each run is written before the next is merged; then the layer is in its file."""
    monkeypatch.setattr(layers, "HELD_BYTES_MAX", BYTES)
    steps: list[str] = []
    merge, write = run_module._merged, segment._write_run

    def merging(runs):
        found = merge(runs)
        assert max(run.payload_bytes() for run in found) <= BYTES
        steps.append("merge")
        return found

    def writing(*run):
        steps.append("write")
        return write(*run)

    monkeypatch.setattr(run_module, "_merged", merging)
    monkeypatch.setattr(segment, "_write_run", writing)
    engine = InProcessQuery(asked(), tmp_path)
    for number in range(12):
        steps.clear()
        engine.run({"a": rows(*((k, f"{number:04d}" * 25) for k in range(30)))})
        if len(steps) > 2:
            break
    assert steps == ["merge", "write"] * (len(steps) // 2)
    found = engine.run({"b": rows(*((k, "b") for k in range(30))), "c": rows(*((k, "c") for k in range(30)))})
    assert found.num_rows == 30 * (number + 1)
