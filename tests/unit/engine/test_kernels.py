"""Kernels against slow references, and a probe whose answer does not depend on how it is cut into chunks."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import canonical, nested_loop_join
from tests.scenarios import UTC, table_of
from watersmeet.engine.emission import emit
from watersmeet.engine.inbox import deltas_of
from watersmeet.engine.kernels import Ranges, all_rows, cut_points, expand, match_keys, rows_between, split_long
from watersmeet.engine.mjoin import probe
from watersmeet.engine.statistics import Tally
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.run import Run, build_runs

HASHES = {"distinct": lambda k: k << 8, "colliding": lambda k: k % 2, "one": lambda k: 0}
ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(-8, 8)), min_size=1, max_size=25)


def run_of(rows: list[tuple[int, int]], hashing: str = "distinct", *, timed: bool = True) -> Run:
    keys = np.array([key for key, _ in rows], dtype=np.int64)
    times = np.array([time for _, time in rows], dtype=np.int64) if timed else None
    hashes = np.array([HASHES[hashing](key) for key, _ in rows], dtype=np.uint64)
    (run,) = build_runs(hashes, pa.record_batch({"k": keys}), times, pa.record_batch({"v": np.arange(len(rows))}))
    return run


def keys_of(run: Run) -> list[int]:
    return run.keys.column(0).to_pylist()


@given(ROWS, ROWS, st.sampled_from(sorted(HASHES)))
@settings(deadline=None)
def test_a_key_matches_itself_and_nothing_else(delta_rows, target_rows, hashing):
    delta, target = run_of(delta_rows, hashing), run_of(target_rows, hashing)
    places = {key: place for place, key in enumerate(keys_of(target))}
    matched = match_keys(delta, target)
    assert list(zip(matched.keys.tolist(), matched.positions.tolist(), strict=True)) == [
        (number, places[key]) for number, key in enumerate(keys_of(delta)) if key in places
    ]


@given(ROWS, ROWS, st.lists(st.integers(0, 99), max_size=12))
@settings(deadline=None, max_examples=200)
def test_needles_find_the_positions_of_their_keys(delta_rows, target_rows, numbers):
    delta, target = run_of(delta_rows), run_of(target_rows)
    ranks = np.array(numbers, dtype=np.int64) % len(delta.hashes)
    order = np.argsort(ranks, kind="stable")
    needles, positions = match_keys(delta, target).of_needles(order, ranks[order])
    names, places = keys_of(delta), keys_of(target)
    expected = [(n, places.index(names[rank])) for n, rank in enumerate(ranks) if names[rank] in places]
    assert sorted(zip(needles.tolist(), positions.tolist(), strict=True)) == expected


@given(ROWS, ROWS, st.integers(-10, 10), st.integers(0, 20), st.sampled_from(sorted(HASHES)))
@settings(deadline=None, max_examples=200)
def test_a_range_of_times_has_both_its_ends(delta_rows, target_rows, low, width, hashing):
    delta, target = run_of(delta_rows, hashing), run_of(target_rows, hashing)
    matched = match_keys(delta, target)
    lows = low + np.arange(len(delta.hashes), dtype=np.int64) % 3
    highs = lows + width
    numbers, rows = expand(rows_between(target, matched.positions, lows[matched.keys], highs[matched.keys]))
    needles = matched.keys[numbers]
    found = sorted(zip(needles.tolist(), target.payload.column(0).take(pa.array(rows)).to_pylist(), strict=True))
    assert found == sorted(
        (needle, value)
        for needle, key in enumerate(keys_of(delta))
        for value, (k, t) in enumerate(target_rows)
        if k == key and lows[needle] <= t <= highs[needle]
    )


@given(ROWS, ROWS)
@settings(deadline=None)
def test_without_times_all_rows_of_a_key_match(delta_rows, target_rows):
    delta, target = run_of(delta_rows, timed=False), run_of(target_rows, timed=False)
    matched = match_keys(delta, target)
    numbers, rows = expand(all_rows(target, matched.positions))
    needles = matched.keys[numbers]
    found = sorted(zip(needles.tolist(), target.payload.column(0).take(pa.array(rows)).to_pylist(), strict=True))
    keys = keys_of(delta)
    assert found == sorted((keys.index(k), v) for v, (k, _) in enumerate(target_rows) if k in keys)


RANGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(1, 12)), max_size=12).map(
    lambda rows: Ranges(
        *(np.array(column, dtype=np.int64) for column in (zip(*rows, strict=True) if rows else ((),) * 3))
    )
)


@given(RANGES, st.integers(1, 13))
@settings(deadline=None)
def test_splitting_long_ranges_changes_no_match(ranges, rows_max):
    parts = split_long(ranges, rows_max)
    assert (parts.count <= rows_max).all()
    assert list(zip(*expand(parts), strict=True)) == list(zip(*expand(ranges), strict=True))


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 30))
@settings(deadline=None)
def test_cuts_cover_everything_in_pieces_of_bounded_size(counts, rows_max):
    cuts = cut_points(np.array(counts, dtype=np.int64), rows_max)
    assert cuts[0] == 0
    assert cuts[-1] == len(counts)
    for low, high in pairwise(cuts):
        assert low < high
        assert high == low + 1 or sum(counts[low:high]) <= rows_max


SCHEMA = pa.schema([("k", pa.int32()), ("ts", UTC), ("v", pa.int64())])
THREE = st.tuples(
    *[st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=9)] * 3
)


@pytest.mark.parametrize("within", [None, "6 microseconds"])
@given(three=THREE, rows_max=st.sampled_from((1, 2, 3, 7)))
@settings(deadline=None, max_examples=60)
def test_a_probe_in_small_chunks_finds_the_same(tmp_path_factory, within, three, rows_max):
    query = build_query(
        [Stream(name, SCHEMA, "ts") for name in "abc"],
        where=["a.k = b.k AND b.k = c.k", "a.v <= c.v"],
        within=within,
        windows={},
        select=["a.v", "b.v", "c.v", "a.ts", "b.k"],
    )
    engine = InProcessQuery(query, tmp_path_factory.getbasetemp() / "unused")
    batch = {name: table_of(SCHEMA, rows) for name, rows in zip("abc", three, strict=True)}
    frames = pa.Table.from_batches(
        [engine.slots.frames.frame(i, engine.plan.places(i)[0], batch[name]) for i, name in enumerate("abc")]
    )
    deltas = deltas_of(frames, engine.plan, 0, None, Tally(engine.plan.partitions))
    (node,) = engine.plan.stages[0].shape(0)
    for origin in range(3):
        pieces = [p for run in deltas[origin] for p in probe(node, origin, run, deltas, rows_max)]
        assert all(0 < piece.rows <= rows_max for piece in pieces)
        found = canonical(
            pa.Table.from_batches(
                [one.rows for p in pieces for one in emit(engine.plan, (), p)], schema=engine.plan.output_schema
            )
        )
        assert found == nested_loop_join(query, [batch]).results
