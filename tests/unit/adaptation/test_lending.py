"""Slots of a host share its memory: needs first, slack where it is needed, and no byte twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.adaptation.lending import Hosts, accounts, lent, roomy, shares
from watersmeet.epoch.memory_shares import Held
from watersmeet.epoch.task import SlotReport, Worker

NEEDS = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=12)


def ran(slot: int, host: str, stage: int = 0) -> SlotReport:
    return SlotReport(0, stage, slot, (), (), worker=Worker(host, "0"))


@pytest.mark.parametrize(
    ("needs", "found"),
    [
        ([0, 0], [100, 100]),
        ([100, 100], [100, 100]),
        ([150, 20], [165, 35]),
        ([150, 100], [100, 100]),
        ([500, 30], [170, 30]),
        ([500, 110, 0], [190, 110, 0]),
        ([500, 400, 20], [140, 140, 20]),
    ],
)
def test_needs_come_first_then_loans_at_one_level_then_equal_parts(needs, found):
    assert lent(100, needs) == found


@given(st.integers(0, 1 << 40), NEEDS)
def test_accounts_add_up_to_the_memory_of_the_host(budget, needs):
    found = lent(budget, needs)
    assert sum(found) <= budget * len(needs)
    assert all(account >= min(need, budget) for account, need in zip(found, needs, strict=True))
    if sum(needs) <= budget * len(needs):
        assert all(account >= need for account, need in zip(found, needs, strict=True))
    elif budget:
        wasted = budget * len(needs) - sum(found)
        assert wasted < len(needs)


def test_only_slots_of_one_host_lend_to_each_other():
    hosts = Hosts((None,) * 4).after([ran(0, "x"), ran(1, "x"), ran(2, "y"), ran(3, "y")])
    assert accounts(100, hosts, [300, 0, 0, 50]) == [200, 0, 75, 125]


def test_a_slot_that_has_not_run_neither_lends_nor_borrows():
    hosts = Hosts((None,) * 3).after([ran(0, "x")])
    assert accounts(100, hosts, [300, 0, 300]) == [100, 100, 100]


def test_a_slot_is_where_its_last_stage_ran():
    hosts = Hosts((None,) * 2).after([ran(0, "x"), ran(1, "x"), ran(0, "y", 1)])
    assert hosts.of_slot == ("y", "x")


def test_a_host_that_is_lost_leaves_the_others_their_memory():
    both = Hosts((None,) * 4).after([ran(0, "x"), ran(1, "x"), ran(2, "y"), ran(3, "y")])
    one = both.after([ran(slot, "x") for slot in range(4)])
    assert both.bytes_max(100) == one.bytes_max(100) == 200
    assert accounts(100, one, [300, 0, 0, 0]) == [200, 0, 0, 0]
    assert sum(map(sum, shares(100, one, [[Held()]] * 4).by_slot)) <= 200


def test_memory_that_is_free_is_promised_to_one_slot_only():
    """Each of two slots could have its closed state back, but not both."""
    hosts = Hosts((None,) * 3).after([ran(slot, "x") for slot in range(3)])
    held = [[Held(100, 100, 60)], [Held(100, 100, 60)], [Held(0, 0)]]
    assert roomy(100, hosts, held) == frozenset()
    assert roomy(100, hosts, [held[0], [Held(100, 100)], held[2]]) == {0}


@given(st.integers(0, 1 << 30), st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 1 << 32)), min_size=1))
def test_shares_of_a_host_stay_within_its_cap(budget, slots):
    hosts = Hosts((None,) * len(slots)).after([ran(slot, host) for slot, (host, _) in enumerate(slots)])
    found = shares(budget, hosts, [[Held(0, need), Held(0, 5)] for _, need in slots])
    assert found.host_bytes == hosts.bytes_max(budget) <= budget * len(slots)
    for host in "xyz":
        assert sum(sum(found.by_slot[slot]) for slot, (at, _) in enumerate(slots) if at == host) <= found.host_bytes
