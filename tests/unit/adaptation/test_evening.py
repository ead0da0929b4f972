"""Making loads equal: moves help, are few, and never make the busiest slot busier."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.adaptation.evening import evened, reassigned, taken


def loads(slot, load, slots):
    return np.bincount(slot, weights=load, minlength=slots)


@st.composite
def cases(draw):
    slots = draw(st.integers(1, 8))
    units = draw(st.lists(st.tuples(st.integers(0, slots - 1), st.integers(0, 50), st.integers(0, 9)), max_size=60))
    arrays = [np.array([unit[i] for unit in units], dtype=kind) for i, kind in enumerate((np.int64, float, float))]
    return slots, *arrays


@given(cases())
def test_the_most_loaded_slot_never_gets_more(case):
    slots, slot, load, size = case
    after = loads(evened(slot, load, size, slots), load, slots)
    assert after.max(initial=0) <= loads(slot, load, slots).max(initial=0)
    assert after.sum() == load.sum()


@given(cases())
def test_what_is_left_uneven_is_due_to_units_that_are_too_large(case):
    """No slot with too much load has a unit that would fit into half of what lies between it and the emptiest slot."""
    slots, slot, load, size = case
    new = evened(slot, load, size, slots)
    after = loads(new, load, slots)
    if after.max(initial=0) > 1.05 * load.sum() / slots + 1e-9:
        most = int(np.argmax(after))
        gap = (after[most] - after.min()) / 2
        assert not ((new == most) & (load > 0) & (load <= min(gap, after[most] - load.sum() / slots))).any()


def test_equal_units_of_one_slot_are_shared_out_with_as_few_moves_as_possible():
    slot, one = np.zeros(12, dtype=np.int64), np.ones(12)
    new = evened(slot, one, one, 3)
    assert loads(new, one, 3).tolist() == [4, 4, 4]
    assert (new != slot).sum() == 8


def test_units_with_much_load_in_few_bytes_go_first():
    slot, load = np.zeros(4, dtype=np.int64), np.array([5.0, 5.0, 5.0, 5.0])
    new = evened(slot, load, np.array([100.0, 1.0, 100.0, 1.0]), 2)
    assert new.tolist() == [0, 1, 0, 1]


def test_even_loads_stay():
    slot = np.array([0, 1, 0, 1])
    assert evened(slot, np.array([3.0, 3.0, 3.0, 3.1]), np.ones(4), 2).tolist() == slot.tolist()


def test_what_does_not_fit_is_passed_over():
    assert taken(np.array([4.0, 9.0, 3.0, 2.0]), 7.0).tolist() == [0, 2]


@given(cases(), st.integers(1, 9))
def test_on_another_number_of_slots_every_unit_has_a_slot(case, slots):
    _, slot, load, size = case
    new = reassigned(slot, load + 1, size, slots)
    assert ((new >= 0) & (new < slots)).all()


def test_units_of_slots_that_remain_stay_where_they_are():
    slot, one = np.array([0, 0, 1, 1, 2, 2]), np.ones(6)
    assert reassigned(slot, one, one, 2).tolist()[:4] == [0, 0, 1, 1]
    assert loads(reassigned(slot, one, one, 2), one, 2).tolist() == [3, 3]
