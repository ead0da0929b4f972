"""Compaction: nothing alive is dropped, what is closed is one layer, and open buckets have few."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.engine.compaction import (
    BUCKETS_AT_ONCE,
    MERGE_BYTES_MAX,
    MERGE_ROWS_MAX,
    UNTIMED_BUCKET,
    Merging,
    by_bucket,
    closed,
    last_of,
    merge_groups,
    next_share,
    stores_to_merge,
)
from watersmeet.epoch.task import expired
from watersmeet.plan.buckets import BUCKET_US_MAX, bucket_width_us
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.tree import Join, Leaf
from watersmeet.state.run import build_runs

LENGTHS = st.lists(st.integers(1, 1000), max_size=30)


def store(window_us: int | None) -> StoreLayout:
    return StoreLayout(Leaf(0), "a", "a.k = b.k", window_us, (), pa.schema([("v", pa.int64())]), None)


def results(span_us: int | None) -> StoreLayout:
    """A store of results whose limit is their one payload column."""
    return StoreLayout(Join((Leaf(0), Leaf(1))), "(a b)", "a.k = b.k", span_us, (), pa.schema([("v", pa.int64())]), 0)


def timed_run(times: list[int], payload: list[int] | None = None):
    keys = pa.record_batch({"k": np.arange(len(times)) % 3})
    hashes = (np.arange(len(times), dtype=np.uint64) % np.uint64(3)) << np.uint64(60)
    values = pa.record_batch({"v": times if payload is None else payload})
    return build_runs(hashes, keys, np.array(times, dtype=np.int64), values)[0]


@pytest.mark.parametrize(
    ("windows", "width"),
    [((None, None), None), ((80, None), 10), ((80, 800), 100), ((1, 2), 1), ((1 << 62,), BUCKET_US_MAX)],
)
def test_a_bucket_is_an_eighth_of_the_longest_window(windows, width):
    assert bucket_width_us([store(window) for window in windows]) == width


@given(st.integers(-50, 50), st.integers(1, 20), st.integers(-50, 50))
def test_rows_expire_when_no_row_in_time_can_reach_them(time, window, watermark):
    reachable = any(max(time, other) - time < window for other in range(watermark, watermark + 100))
    assert expired(time + window, watermark) == (not reachable)


@given(st.lists(st.integers(0, 99), min_size=1))
def test_in_pairs_of_buckets_rows_are_at_most_one_bucket_later_and_none_is_in_the_future(times):
    parts = by_bucket(timed_run(times), store(80), 10, None, in_pairs=True)
    assert sorted(v for _, part in parts for v in part.payload.column(0).to_pylist()) == sorted(times)
    assert len(parts) <= max(1, len({time // 20 for time in times}) + 1)
    for bucket, part in parts:
        assert bucket <= max(times) // 10
        assert all(0 <= bucket - v // 10 <= 1 for v in part.payload.column(0).to_pylist())


def test_nothing_expires_without_window_or_watermark():
    assert not expired(None, 1 << 60)
    assert not expired(1, None)
    assert last_of(timed_run([1, 2]), store(None)) is None
    assert last_of(timed_run([1, 2]), results(None)) is None


@given(st.integers(-9, 9), st.integers(1, 9), st.integers(-90, 90))
def test_a_bucket_is_closed_when_all_its_times_are_late(bucket, width, watermark):
    times = range(bucket * width, (bucket + 1) * width)
    assert closed(bucket, width, watermark) == all(time < watermark for time in times)


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=30),
    st.integers(1, 9),
    st.one_of(st.none(), st.integers(-40, 40)),
)
@settings(deadline=None)
def test_bucketing_keeps_what_is_alive_each_in_its_bucket(times, width, watermark):
    window = 12
    parts = by_bucket(timed_run(times), store(window), width, watermark)
    assert len({bucket for bucket, _ in parts}) == len(parts)
    for bucket, run in parts:
        assert all(time // width == bucket for time in run.payload.column(0).to_pylist())
        assert run.payload.column(0).to_pylist() == run.times(run.rows_slice()).tolist()
    kept = sorted(time for _, run in parts for time in run.payload.column(0).to_pylist())
    assert kept == sorted(time for time in times if not expired(time + window, watermark))


def test_rows_over_very_many_buckets_go_into_some():
    """The past of a stream in one batch: a file for each bucket would be too many."""
    times = [*range(0, 50_000, 10), 1 << 50]
    parts = by_bucket(timed_run(times), store(80), 10, 100)
    assert [bucket for bucket, _ in parts] == [*range(5000 - BUCKETS_AT_ONCE + 1, 5000), (1 << 50) // 10]
    assert sorted(time for _, run in parts for time in run.times(run.rows_slice()).tolist()) == times[3:]
    assert all(run.time_max // 10 == bucket for bucket, run in parts)


def test_results_end_when_they_say_and_not_by_their_latest_time():
    run = timed_run([0, 3, 3, 4], payload=[9, 5, 6, 5])
    assert sorted(last_of(run, results(12)).tolist()) == [4, 4, 5, 8]
    kept = [v for _, part in by_bucket(run, results(12), 2, 5) for v in part.payload.column(0).to_pylist()]
    assert sorted(kept) == [6, 9]


def test_a_cut_run_ends_when_its_own_rows_do():
    run = timed_run([0, 1, 2], payload=[7, 8, 9])
    cut = run.between_hashes(1 << 60, 2 << 60)
    assert last_of(cut, results(12)).tolist() == [7]
    assert last_of(cut, store(12)).tolist() == [12]


def test_without_windows_there_is_one_bucket():
    run = timed_run([1, 2])
    assert by_bucket(run, store(None), None, 5) == [(UNTIMED_BUCKET, run)]


@given(LENGTHS, st.booleans(), st.integers(1, 5000))
def test_groups_are_disjoint_and_bounded(lengths, is_closed, rows_max):
    groups = merge_groups(lengths, Merging(), is_closed=is_closed, rows_max=rows_max)
    chosen = [i for group in groups for i in group]
    assert len(chosen) == len(set(chosen))
    for group in groups:
        assert len(group) > 1
        assert sum(lengths[i] for i in group) <= rows_max


@given(LENGTHS)
def test_a_closed_bucket_becomes_one_layer(lengths):
    groups = merge_groups(lengths, Merging(), is_closed=True, rows_max=MERGE_ROWS_MAX)
    assert groups == ([list(range(len(lengths)))] if len(lengths) > 1 else [])


@given(st.integers(1, 400), st.integers(2, 9))
@settings(deadline=None)
def test_layers_grow_with_the_logarithm_of_the_epochs(epochs, fan_in):
    merging = Merging(small_fan_in=fan_in)
    layers: list[int] = []
    written = 0
    for _ in range(epochs):
        layers.append(10)
        groups = merge_groups(layers, merging, is_closed=False, rows_max=MERGE_ROWS_MAX)
        made = [sum(layers[i] for i in group) for group in groups]
        gone = {i for group in groups for i in group}
        written += sum(made) if made else 10
        layers = [n for i, n in enumerate(layers) if i not in gone] + made
    assert sum(layers) == 10 * epochs
    assert len(layers) <= fan_in + np.log(10 * epochs) / np.log(1 + merging.tier_ratio)
    assert written <= 10 * epochs * (2 + np.log2(epochs))


def test_equal_layers_wait_for_the_fan_in_and_become_one():
    merging = Merging()
    lengths = [100, 103, 98, 101, 100, 99, 102, 97][: merging.small_fan_in]
    assert merge_groups(lengths[1:], merging, is_closed=False, rows_max=1000) == []
    assert merge_groups([900, *lengths], merging, is_closed=False, rows_max=1000) == [[*range(1, len(lengths) + 1)]]


def test_the_allowance_follows_the_rows_that_arrived():
    assert Merging().allowance(0, 0) == Merging().rows_min
    assert Merging().allowance(100_000, 0) == Merging().rows_min + 100_000 * Merging().rows_per_arrived
    assert Merging().allowance(0, 100_000_000) == 100_000_000 // Merging().share_of_state
    assert Merging().allowance(1 << 40, 0) == MERGE_ROWS_MAX


def test_an_epoch_merges_few_more_small_rows_than_arrive():
    assert Merging().small_max(0) == Merging().small_rows_min
    assert Merging().small_max(1_000_000) == 1_250_000


LENGTHS = np.array([[500, 300, 40, 0], [400, 200, 50, 9]])
"""Two layers, in four stores; the last one has rows in one layer only."""


@pytest.mark.parametrize(
    ("rows_max", "is_first", "stores"),
    [
        (2000, False, [0, 1, 2]),
        (1000, False, [0, 2]),  # the longest that fit
        (899, False, [1, 2]),
        (10, False, []),
        (10, True, [0]),  # but something is merged
        (0, True, [0]),
    ],
)
def test_stores_with_rows_in_several_layers_are_merged_as_far_as_there_is_room(rows_max, is_first, stores):
    assert stores_to_merge(LENGTHS, rows_max, is_first=is_first) == stores


CELLS = st.integers(1, 6).flatmap(
    lambda cells: st.lists(st.lists(st.integers(0, 40), min_size=cells, max_size=cells), min_size=1, max_size=8)
)


@given(CELLS, st.booleans(), st.integers(2, 5), st.integers(1, 100))
def test_a_share_is_several_layers_in_neighbouring_cells_and_bounded(rows, is_closed, fan_in, rows_max):
    counted = np.array(rows, dtype=np.int64)
    fan_in = 2 if is_closed else fan_in
    share = next_share(counted, ratio=np.inf if is_closed else 1.5, fan_in=fan_in, rows_max=rows_max)
    if share is None:
        assert not is_closed or (counted > 0).sum(axis=0).max() < 2
        return
    taken = counted[list(share.members), share.first : share.last]
    assert (taken > 0).all()
    assert len(share.members) >= fan_in
    assert share.rows == taken.sum()
    assert share.rows <= rows_max or share.last == share.first + 1


@given(CELLS, st.booleans(), st.integers(2, 5), st.integers(2, 60))
def test_of_a_cell_the_shortest_layers_are_merged_up_to_a_bound(rows, is_closed, fan_in, cell_max):
    counted = np.array(rows, dtype=np.int64)
    ratio, fan_in = (np.inf, 2) if is_closed else (1.5, fan_in)
    share = next_share(counted, ratio=ratio, fan_in=fan_in, rows_max=1, cell_max=cell_max)
    if share is None:
        short = (counted > 0) & (2 * counted <= cell_max)
        assert not is_closed or short.sum(axis=0).max() < 2
        return
    taken = counted[list(share.members), share.first]
    assert (share.last, share.rows) == (share.first + 1, taken.sum())
    assert len(taken) >= 2
    assert share.rows <= cell_max
    assert (2 * taken <= cell_max).all()


def test_wide_rows_count_as_several_and_narrow_ones_as_one():
    merging = Merging()
    lengths = merging.bounded(merging.rows_min)
    assert lengths.of(10, 10 * 100) == 10
    assert lengths.of(10, 10 * merging.row_bytes) == 10
    assert lengths.of(10, 30 * merging.row_bytes) == 30
    most = merging.bounded(MERGE_ROWS_MAX)
    assert most.of(MERGE_ROWS_MAX, MERGE_BYTES_MAX) == MERGE_ROWS_MAX
    assert most.of(MERGE_ROWS_MAX, 2 * MERGE_BYTES_MAX) == 2 * MERGE_ROWS_MAX
    assert merging.cell_max(100) == 400
    assert merging.cell_max(MERGE_ROWS_MAX) == MERGE_ROWS_MAX


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.integers(2, 5), st.sampled_from((0.4, 1.5)))
def test_what_is_left_alone_grows_geometrically(lengths, fan_in, ratio):
    layers = list(lengths)
    while share := next_share(np.array([[n] for n in layers]), ratio=ratio, fan_in=fan_in, rows_max=1):
        layers = [n for i, n in enumerate(layers) if i not in share.members] + [share.rows]
    assert sum(layers) == sum(lengths)
    assert len(layers) <= fan_in + np.log(sum(lengths)) / np.log(1 + ratio)
