"""Cutting a run to groups: by a slice where that will do, and else by a copy that is made once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.plan.partitioning import first_hash, group_of
from watersmeet.state import cuts
from watersmeet.state.cuts import Copies, cut_to_groups
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef
from watersmeet.state.run import Run, build_runs, select_keys

PARTITIONS = 8
EVEN = Groups.of_edges([0, 1, 2, 3, 4, 5, 6, 7])


def run_over(groups: list[int], *, timed: bool = False) -> Run:
    """Two rows of one key for every group that is named, with the group as payload."""
    groups = [group for group in groups for _ in range(2)]
    hashes = np.array([first_hash(group, PARTITIONS) for group in groups], dtype=np.uint64)
    keys = pa.record_batch({"k": pa.array(groups, pa.int64())})
    times = np.arange(len(groups), dtype=np.int64) if timed else None
    return build_runs(hashes, keys, times, pa.record_batch({"v": pa.array(groups, pa.int64())}))[0]


def extent(groups: Groups, rows: int, *, is_estimate: bool = False) -> ExtentRef:
    return ExtentRef("s", 0, 0, 0, rows, None, groups, is_estimate=is_estimate)


def payload(run: Run) -> list[int]:
    return run.payload.column(0).slice(int(run.starts[0]), run.rows).to_pylist()


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """The rows of every copy that is made."""
    made: list[int] = []

    def counted(run, positions):
        found = select_keys(run, positions)
        made.append(found.rows)
        return found

    monkeypatch.setattr(cuts, "select_keys", counted)
    return made


@given(
    st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=12),
    st.frozensets(st.integers(0, PARTITIONS - 1)),
    st.booleans(),
)
@settings(deadline=None)
def test_a_cut_has_the_rows_of_its_groups(held, chosen, timed):
    groups = Groups.where(np.isin(np.arange(PARTITIONS), list(chosen)))
    cut = cut_to_groups(run_over(held, timed=timed), groups, PARTITIONS)
    assert payload(cut) == sorted(group for group in held for _ in range(2) if group in chosen)
    assert set(group_of(cut.hashes, PARTITIONS)) <= chosen
    if timed:
        assert len(cut.times(cut.rows_slice())) == cut.rows


def test_nothing_is_copied_where_no_other_rows_lie_between(calls):
    run = run_over([0, 2, 4, 6])
    assert cut_to_groups(run, EVEN, PARTITIONS, rows=run.rows) is run
    assert payload(cut_to_groups(run, Groups.between(1, 5), PARTITIONS)) == [2, 2, 4, 4]
    assert calls == []


def test_an_extent_that_does_not_change_is_copied_once(calls):
    run, held = run_over(list(range(PARTITIONS))), Copies()
    for _ in range(3):
        assert payload(held.rows_of(extent(EVEN, 8), run, PARTITIONS, "f")) == [0, 0, 2, 2, 4, 4, 6, 6]
    assert calls == [8]


def test_what_is_cut_from_a_copy_is_a_slice_of_it(calls):
    run, held = run_over(list(range(PARTITIONS))), Copies()
    held.rows_of(extent(EVEN, 8), run, PARTITIONS, "f")
    assert payload(held.rows_of(extent(EVEN.within(2, 5), 4), run, PARTITIONS, "f")) == [2, 2, 4, 4]
    assert calls == [8]


def test_an_estimate_is_no_reason_not_to_look(calls):
    """Groups 0 and 2 have as many rows as was estimated of the slice that group 1 is part of."""
    run = run_over([1, 2])
    groups = Groups.of_edges([0, 1, 2, 3])
    assert payload(Copies().rows_of(extent(groups, 4, is_estimate=True), run, PARTITIONS, "f")) == [2, 2]


def test_copies_are_bounded_and_leave_with_their_files(calls, tmp_path):
    run = run_over(list(range(PARTITIONS)))
    size = cut_to_groups(run, EVEN, PARTITIONS).kept_bytes()
    calls.clear()
    held = Copies(bytes_max=size)
    odd = Groups.of_edges([1, 2, 3, 4, 5, 6, 7, 8])
    first, second = str(tmp_path / "f"), str(tmp_path / "g")
    for folder in (first, second, second, first):
        held.rows_of(extent(EVEN, 8), run, PARTITIONS, folder)
        assert held.bytes <= size
    assert len(calls) == 3
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "s").touch()
    held.forget_missing(first)
    held.rows_of(extent(EVEN, 8), run, PARTITIONS, first)
    assert len(calls) == 3
    (tmp_path / "f" / "s").unlink()
    held.forget_missing(first)
    assert held.bytes == 0
    assert payload(held.rows_of(extent(odd, 8), run, PARTITIONS, first)) == [1, 1, 3, 3, 5, 5, 7, 7]
