"""Sets of partition groups behave like sets of numbers, and always have the same form."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.state.groups import NO_GROUPS, Groups

SIZE = 12
NUMBERS = st.frozensets(st.integers(0, SIZE - 1))


def groups_of(numbers: frozenset[int]) -> Groups:
    return Groups.where(np.isin(np.arange(SIZE), list(numbers)))


@given(NUMBERS, NUMBERS)
def test_they_are_sets(some, more):
    a, b = groups_of(some), groups_of(more)
    assert set((a & b).numbers()) == some & more
    assert set((a | b).numbers()) == some | more
    assert set((a - b).numbers()) == some - more
    assert a.covers(b) == (more <= some)
    assert len(a) == len(some)
    assert bool(a) == bool(some)
    assert [g for g in range(SIZE) if g in a] == sorted(some) == a.numbers().tolist()


@given(NUMBERS, st.integers(0, SIZE), st.integers(0, SIZE))
def test_an_interval_cuts_them(some, low, high):
    cut = groups_of(some).within(low, high)
    assert set(cut.numbers()) == some & set(range(low, high))
    assert cut == groups_of(some & set(range(low, high)))


@given(NUMBERS)
def test_equal_sets_have_one_form(some):
    groups = groups_of(some)
    assert all(low < high for low, high in groups.ranges)
    assert all(last < first for (_, last), (first, _) in zip(groups.ranges, groups.ranges[1:], strict=False))
    again = Groups.of_edges(groups.edges)
    assert again == groups
    assert hash(again) == hash(groups)
    assert pickle.loads(pickle.dumps(groups)) == groups
    assert (groups.low, groups.high) == ((min(some), max(some) + 1) if some else (0, 0))


def test_a_slot_owns_what_it_is_assigned():
    assignment = (0, 2, 2, 0, 2)
    assert Groups.of(assignment, 0) == Groups(((0, 1), (3, 4)))
    assert Groups.of(assignment, 1) == NO_GROUPS
    assert Groups.of(assignment, 2) == Groups(((1, 3), (4, 5)))


@pytest.mark.parametrize(("low", "high"), [(3, 3), (4, 2)])
def test_an_empty_interval_has_no_groups(low, high):
    assert Groups.between(low, high) == NO_GROUPS
    assert not Groups.between(0, 5).within(low, high)
