"""Partition groups are ranges of the hash space: every hash in one, every group with one slot."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.plan.partitioning import PARTITIONS_MAX, even_assignment, first_hash, group_of
from watersmeet.state.groups import Groups

PARTITIONS = st.integers(1, PARTITIONS_MAX)


def group(value: int, partitions: int) -> int:
    return int(group_of(np.array([value], dtype=np.uint64), partitions)[0])


@given(st.integers(0, 2**64 - 1), PARTITIONS)
def test_a_hash_lies_between_the_first_hashes_of_its_group_and_the_next(value, partitions):
    number = group(value, partitions)
    assert 0 <= number < partitions
    assert first_hash(number, partitions) <= value < first_hash(number + 1, partitions)


@given(PARTITIONS, st.data())
def test_the_first_hash_of_a_group_is_its_least(partitions, data):
    number = data.draw(st.integers(0, partitions - 1))
    least = first_hash(number, partitions)
    assert group(least, partitions) == number
    assert least == 0 or group(least - 1, partitions) == number - 1


@pytest.mark.parametrize("partitions", [1, 3, 256, PARTITIONS_MAX])
def test_the_groups_span_the_hash_space(partitions):
    assert first_hash(0, partitions) == 0
    assert first_hash(partitions, partitions) == 1 << 64
    assert group(2**64 - 1, partitions) == partitions - 1


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2), PARTITIONS)
def test_sorted_by_hash_is_sorted_by_group(hashes, partitions):
    groups = group_of(np.sort(np.array(hashes, dtype=np.uint64)), partitions)
    assert (np.diff(groups) >= 0).all()


@given(st.integers(1, 300), st.integers(1, 20))
def test_shares_are_contiguous_and_equal(partitions, slots):
    assignment = even_assignment(partitions, slots)
    assert list(assignment) == sorted(assignment)
    shares = [assignment.count(slot) for slot in range(slots)]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_ranges_are_maximal_and_cover_the_groups_of_a_slot(assignment):
    for slot in range(4):
        ranges = Groups.of(assignment, slot).ranges
        covered = [g for low, high in ranges for g in range(low, high)]
        assert covered == [g for g, owner in enumerate(assignment) if owner == slot]
        assert all(before[1] < after[0] for before, after in pairwise(ranges))
