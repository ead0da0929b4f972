"""In which order groups that owe results are cleaned up, and how many at once."""

from dataclasses import replace

from tests.unit.adaptation.plans import CLOSED, chain, extent, manifest_with
from watersmeet.adaptation.clean_up import cleaning_orders
from watersmeet.epoch.kinds import Clean
from watersmeet.epoch.owing import groups_left, is_owing
from watersmeet.state.manifest import ACTIVE, SETTLED


def test_the_lowest_stage_comes_first_and_all_its_slots_together():
    plan = chain()
    owing = [extent(CLOSED), extent(ACTIVE)]
    manifest = manifest_with(plan, {(1, 0): owing, (0, 0): [extent(ACTIVE)], (0, 1): owing}, slots=2)
    assert [(order.stage, order.slot) for order in cleaning_orders(plan, manifest)] == [(0, 1)]
    manifest = manifest_with(plan, {(1, 0): owing, (1, 1): owing}, slots=2)
    assert [(order.stage, order.slot) for order in cleaning_orders(plan, manifest)] == [(1, 0), (1, 1)]
    assert groups_left(plan, manifest) == 16
    assert is_owing(plan, manifest)


def test_an_epoch_cleans_up_so_many_bytes():
    plan = chain()
    manifest = manifest_with(plan, {(0, 0): [extent(CLOSED), extent(ACTIVE, segment="t")]}, bytes_each=1000)
    assert cleaning_orders(plan, manifest, bytes_at_once=500) == (Clean(0, 0, 0, 4),)
    assert cleaning_orders(plan, manifest, bytes_at_once=1) == (Clean(0, 0, 0, 1),)
    assert cleaning_orders(plan, manifest, kept_slots=[0]) == (Clean(0, 0, 0, 8, keep=True),)


def test_nothing_owed_needs_no_orders():
    plan = chain()
    assert cleaning_orders(plan, manifest_with(plan, {(0, 0): [extent(SETTLED)]})) == ()
    assert not is_owing(plan, replace(manifest_with(plan, {}), epoch=3))
