"""How far what is owed holds back expiry, stage by stage and store by store."""

from tests.unit.adaptation.plans import CLOSED, chain, extent, manifest_with
from watersmeet.epoch.frontiers import Debt, debts, frontier, frontier_of_stage, holds
from watersmeet.state.manifest import ACTIVE

A, B, C, D = range(4)


def test_closed_extents_that_owe_are_debts_of_their_node():
    plan = chain()
    owing = [extent(CLOSED, since=50), extent(CLOSED + 1, since=40), extent(ACTIVE)]
    manifest = manifest_with(plan, {(0, 0): owing, (1, 0): [extent(CLOSED, since=10)]}, watermark_us=90)
    assert debts(plan, manifest) == [Debt(0, 0, frozenset({A, B}), 40)]


def test_stores_above_wait_and_those_of_the_node_itself_do_not():
    plan = chain()
    owed = [Debt(0, 1, frozenset({A, B}), 40)]
    assert holds(plan, 0, 1, owed) == (None, None)
    assert holds(plan, 1, 0, owed) == (None, 40)  # (a b), and c that joins it
    assert holds(plan, 2, 0, owed) == (None, 40)
    assert holds(plan, 1, 0, []) == ()


def test_other_slots_of_the_same_stage_do_not_matter():
    plan = chain("((a b) c)", fused=True)
    owed = [Debt(0, 1, frozenset({A, B}), 40)]
    assert holds(plan, 0, 0, owed) == ()
    assert holds(plan, 0, 1, owed) == (None, None, None, 40)


def test_frontiers():
    plan = chain()
    owed = [Debt(0, 1, frozenset({A, B}), 40), Debt(1, 0, frozenset({A, B, C}), 20)]
    manifest = manifest_with(plan, {}, watermark_us=90)
    assert frontier(manifest, owed) == 20
    assert frontier(manifest, []) == 90
    assert frontier_of_stage(plan, 0, 1, 90, owed) == 90
    assert frontier_of_stage(plan, 1, 0, 90, owed) == 40
    assert frontier_of_stage(plan, 2, 0, 90, owed) == 20
    assert frontier_of_stage(plan, 2, 0, None, owed) is None
