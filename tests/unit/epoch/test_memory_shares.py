"""The memory of a host, shared by its slots and their stages."""

from hypothesis import given
from hypothesis import strategies as st

from watersmeet.epoch.memory_shares import Held, memory_shares

HELD = st.builds(Held, st.integers(0, 1 << 30), st.integers(0, 1 << 40))


def of_one_slot(account: int, *stages: Held) -> list[int]:
    (shares,) = memory_shares([account], [stages])
    return shares


def test_at_the_start_stages_share_alike():
    assert of_one_slot(900, Held(), Held(), Held()) == [300, 300, 300]


def test_what_is_free_goes_to_the_stages_with_most_active_state():
    assert of_one_slot(1000, Held(100, 899), Held(100, 99)) == [100 + 720, 100 + 80]


def test_a_stage_keeps_what_it_has_where_nothing_is_free():
    assert of_one_slot(300, Held(200, 5000), Held(100, 0)) == [200, 100]


def test_a_slot_gives_back_what_it_has_borrowed_before_the_lender_gets_it():
    held = [[Held(90, 90), Held(60, 60)], [Held(50, 200)]]
    first = memory_shares([100, 100], held)
    assert first == [[60, 40], [50]]
    assert memory_shares([100, 100], [[Held(60), Held(40)], [Held(50)]]) == [[60, 40], [100]]


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.lists(HELD, min_size=1, max_size=4)), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_no_moment_of_an_epoch_exceeds_the_memory_of_the_host(slots, random):
    """Stages settle one after the other, in any order: until then a stage has what it had."""
    accounts, held = [account for account, _ in slots], [stages for _, stages in slots]
    shares = memory_shares(accounts, held)
    now = {(slot, stage): each.resident_bytes for slot, has in enumerate(held) for stage, each in enumerate(has)}
    allowed = max(sum(accounts), sum(now.values()))
    for slot, stage in random.sample(sorted(now), len(now)):
        now[slot, stage] = shares[slot][stage]
        assert sum(now.values()) <= allowed
