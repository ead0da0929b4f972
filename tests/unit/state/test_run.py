"""Runs: sorted rows that answer whatever was put into them, split, cut, merged and selected."""

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.engine.kernels import expand, match_keys, rows_between
from watersmeet.state import run as run_module
from watersmeet.state.run import (
    Run,
    build_runs,
    group_keys,
    keys_equal,
    merge_runs,
    select_keys,
    select_rows,
)


def run_of(rows: list[tuple[int, int, int]], *, collide: bool = False) -> list[Run]:
    """Runs of (key, time, payload) rows; the hash is the key, or the same for all."""
    keys, times, payload = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    hashes = np.full(len(keys), 7, dtype=np.uint64) if collide else keys.astype(np.uint64) << np.uint64(32)
    return build_runs(hashes, pa.record_batch({"k": keys}), times, pa.record_batch({"v": payload}))


def rows_in(runs: list[Run]) -> list[tuple[int, int, int]]:
    found = []
    for run in runs:
        keys = run.keys.column(0).take(pa.array(run.row_ranks())).to_pylist()
        payload = run.payload.column(0).to_pylist()[run.rows_slice()]
        found += zip(keys, run.times(run.rows_slice()).tolist(), payload, strict=True)
    return sorted(found)


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9), st.integers(0, 99)), min_size=1, max_size=30)


@given(ROWS, st.booleans())
@settings(deadline=None)
def test_a_run_holds_its_rows_in_order(rows, collide):
    (run,) = run_of(rows, collide=collide)
    assert rows_in([run]) == sorted(rows)
    assert len(run.hashes) == len({key for key, _, _ in rows})
    assert (np.diff(run.codes) >= 0).all()
    assert (run.time_min, run.time_max) == (min(t for _, t, _ in rows), max(t for _, t, _ in rows))


@given(st.lists(ROWS, min_size=1, max_size=4), st.booleans())
@settings(deadline=None)
def test_a_merge_keeps_every_row_and_each_key_once(parts, collide):
    merged = merge_runs([run for rows in parts for run in run_of(rows, collide=collide)])
    assert rows_in(merged) == sorted(row for rows in parts for row in rows)
    assert sum(len(run.hashes) for run in merged) == len({key for rows in parts for key, _, _ in rows})


@given(st.lists(ROWS, min_size=1, max_size=6), st.integers(1, 400), st.booleans(), st.booleans())
@settings(deadline=None)
def test_no_run_of_a_merge_is_too_long(parts, bytes_max, collide, may_split_keys):
    """The limit is 256 MiB; a smaller one stands for it here."""
    runs = [run for rows in parts for run in run_of(rows, collide=collide)]
    together = []

    def counted(runs):
        if len(runs) > 1:
            together.append(sum(bytes_of(run) for run in runs))
        return merged_as_one(runs)

    merged_as_one = run_module._merged
    with patch.object(run_module, "RUN_BYTES_MAX", bytes_max), patch.object(run_module, "_merged", counted):
        merged = merge_runs(runs, may_split_keys=may_split_keys)
    assert rows_in(merged) == sorted(row for rows in parts for row in rows)
    if may_split_keys:
        assert max(together, default=0) <= bytes_max
    hashes = [set(run.hashes.tolist()) for run in merged]
    split = {h for i, some in enumerate(hashes) for more in hashes[:i] for h in some & more}
    assert not split or may_split_keys
    for h in split:
        assert sum(bytes_of(run.between_hashes(h, h + 1)) for run in runs) > bytes_max


def bytes_of(run: Run) -> int:
    return run.payload_bytes() + run.keys.nbytes


@given(ROWS, st.sets(st.integers(0, 5)), st.booleans())
@settings(deadline=None)
def test_selected_keys_have_all_their_rows(rows, wanted, collide):
    (run,) = run_of(rows, collide=collide)
    if not collide:
        run = run.between_hashes(2 << 32, 1 << 64)
    keys = run.keys.column(0).to_pylist()
    kept = select_keys(run, np.array([i for i, key in enumerate(keys) if key in wanted], dtype=np.int64))
    assert rows_in([kept]) == sorted(row for row in rows if row[0] in wanted and (collide or row[0] >= 2))
    assert (np.diff(kept.codes) >= 0).all()
    assert kept.hashes.tolist() == [h for key, h in zip(keys, run.hashes.tolist(), strict=True) if key in wanted]


@given(ROWS, st.randoms())
@settings(deadline=None)
def test_selected_rows_are_those_of_the_mask(rows, random):
    (run,) = run_of(rows)
    mask = np.array([random.random() < 0.5 for _ in rows])
    kept = select_rows(run, mask)
    keys = run.keys.column(0).take(pa.array(run.row_ranks())).to_pylist()
    everything = zip(keys, run.times(run.rows_slice()).tolist(), run.payload.column(0).to_pylist(), strict=True)
    expected = sorted(row for row, keep in zip(everything, mask, strict=True) if keep)
    assert (rows_in([kept]) if kept else []) == expected


@given(ROWS, st.integers(0, 6), st.integers(0, 6))
@settings(deadline=None)
def test_a_cut_is_searched_and_merged_like_a_run_of_its_own(rows, low, high):
    low, high = sorted((low, high))
    (run,) = run_of(rows)
    cut = run.between_hashes(low << 32, high << 32)
    expected = sorted(row for row in rows if low <= row[0] < high)
    assert rows_in([cut]) == expected
    if expected:
        assert rows_in(merge_runs([cut, *run_of([(9, 0, 0)])])) == [*expected, (9, 0, 0)]
        matched = match_keys(run, cut).positions
        wide = np.full(len(matched), 1, dtype=np.int64)
        _, found = expand(rows_between(cut, matched, -9 * wide, 9 * wide))
        assert sorted(found.tolist()) == list(range(cut.rows_slice().start, cut.rows_slice().stop))


def test_the_last_hash_belongs_to_the_last_range():
    hashes = np.array([0, 2**64 - 1], dtype=np.uint64)
    (run,) = build_runs(hashes, pa.record_batch({"k": [1, 2]}), None, pa.record_batch({"v": [1, 2]}))
    assert run.between_hashes(0, 1 << 64).rows == 2
    assert run.between_hashes(1 << 63, 1 << 64).rows == 1


def test_codes_that_would_overflow_become_several_runs_that_still_answer():
    rng = np.random.default_rng(1)
    keys = np.arange(5000) % 2000
    times = rng.integers(-(2**61), 2**61, 5000)
    times[:2] = -(2**61), 2**61
    rows = list(zip(keys.tolist(), times.tolist(), range(5000), strict=True))
    runs = run_of(rows)
    assert len(runs) > 1
    assert rows_in(runs) == sorted(rows)
    (needle,) = run_of([(0, 0, 0)])
    for low, high in ((-(2**61), 0), (0, 2**61), (int(times[2000]), int(times[2000]))):
        found = []
        for run in runs:
            positions = match_keys(needle, run).positions
            wide = np.ones(len(positions), dtype=np.int64)
            ranges = rows_between(run, positions, low * wide, high * wide)
            _, numbers = expand(ranges)
            found += run.payload.column(0).take(pa.array(numbers)).to_pylist()
        assert sorted(found) == [v for k, t, v in rows if k == 0 and low <= t <= high]


def test_a_run_without_times_keeps_duplicates():
    hashes = np.array([5, 1, 5, 5], dtype=np.uint64)
    payload = pa.record_batch({"v": ["a", "b", "a", "c"]})
    (run,) = build_runs(hashes, pa.record_batch({"k": ["x", "y", "x", "z"]}), None, payload)
    assert run.rows == 4
    found = zip(
        run.keys.column(0).take(pa.array(run.row_ranks())).to_pylist(), run.payload.column(0).to_pylist(), strict=True
    )
    assert sorted(found) == [("x", "a"), ("x", "a"), ("y", "b"), ("z", "c")]


def test_no_rows_make_no_run():
    empty = np.zeros(0, dtype=np.uint64)
    batch = pa.record_batch({"k": pa.array([], pa.int64())})
    assert build_runs(empty, batch, None, batch) == []


KEY_COLUMNS = [
    pa.array([1, 2, 1, 3], pa.int32()),
    pa.array(["x", "y", "x", ""]),
    pa.array([True, False, True, False]),
    pa.array([1.5, float("nan"), 1.5, float("nan")]),
    pa.array([b"x", b"", b"x", b"\x00"]),
    pa.array(["1.50", "2.00", "1.50", "-1.50"]).cast(pa.decimal128(6, 2)),
    pa.array([1, 2, 1, 3], pa.timestamp("us", "UTC")),
    pa.array([1, 2, 1, 3], pa.int32()).cast(pa.date32()),
]


@pytest.mark.parametrize("column", KEY_COLUMNS, ids=lambda column: str(column.type))
@pytest.mark.parametrize("sliced", [False, True])
def test_keys_that_share_a_hash_are_grouped_by_value(column, sliced):
    if sliced:
        column = pa.concat_arrays([column.slice(0, 1), column]).slice(1)
    keys = pa.RecordBatch.from_arrays([column], names=["k"])
    order, first = group_keys(np.zeros(4, dtype=np.uint64), keys)
    texts = [str(column[int(i)]) for i in order]
    starts = [text for text, is_first in zip(texts, first, strict=True) if is_first]
    assert len(starts) == len(set(starts)) == len({str(value) for value in column})
    equal = keys_equal(keys, np.array([0, 0, 1]), keys, np.array([2, 1, 1]))
    assert equal.tolist() == [True, False, True]


def test_composite_keys_differ_in_any_component():
    keys = pa.record_batch({"a": [1, 1, 2, 1], "b": ["x", "y", "x", "x"]})
    order, first = group_keys(np.zeros(4, dtype=np.uint64), keys)
    assert int(first.sum()) == 3
    assert sorted(order.tolist()) == [0, 1, 2, 3]
