"""A slot's budget, shared by its stages."""

from hypothesis import given
from hypothesis import strategies as st

from watersmeet.epoch.memory_shares import Held, memory_shares


def test_at_the_start_stages_share_alike():
    assert memory_shares(900, [Held(), Held(), Held()]) == [300, 300, 300]


def test_what_is_free_goes_to_the_stages_with_most_active_state():
    assert memory_shares(1000, [Held(100, 899), Held(100, 99)]) == [100 + 720, 100 + 80]


def test_a_stage_keeps_what_it_has_where_nothing_is_free():
    assert memory_shares(300, [Held(200, 5000), Held(100, 0)]) == [200, 100]


@given(
    st.integers(0, 1 << 40),
    st.lists(st.builds(Held, st.integers(0, 1 << 30), st.integers(0, 1 << 40)), min_size=1, max_size=6),
)
def test_no_moment_of_an_epoch_exceeds_the_budget(budget, stages):
    """Stages settle one after the other: until then a stage has what it had."""
    shares = memory_shares(budget, stages)
    allowed = max(budget, sum(stage.resident_bytes for stage in stages))
    for settled in range(len(stages) + 1):
        held = sum(shares[:settled]) + sum(stage.resident_bytes for stage in stages[settled:])
        assert held <= allowed
