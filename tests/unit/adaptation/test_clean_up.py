"""In which order groups that owe results are cleaned up, and how many at once."""

from dataclasses import replace

import pytest

from tests.unit.adaptation.plans import CLOSED, chain, extent, manifest_with
from watersmeet.adaptation.clean_up import cleaning_orders
from watersmeet.epoch.kinds import Clean
from watersmeet.epoch.owing import groups_left, is_owing, owing_groups
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ACTIVE, SETTLED


@pytest.mark.parametrize(
    ("extents", "owing"),
    [
        ([], []),
        ([extent(ACTIVE), extent(ACTIVE)], []),
        ([extent(SETTLED)], []),
        ([extent(CLOSED), extent(CLOSED)], []),
        ([extent(CLOSED), extent(ACTIVE)], [(0, 8)]),
        ([extent(CLOSED), extent(CLOSED + 1)], [(0, 8)]),
        ([extent(SETTLED, 0, 4), extent(ACTIVE, 4, 8)], []),
        ([extent(SETTLED, 0, 5), extent(ACTIVE, 3, 8)], [(3, 5)]),
        ([extent(CLOSED, 0, 2), extent(CLOSED, 6, 8), extent(ACTIVE)], [(0, 2), (6, 8)]),
        ([extent(CLOSED, 0, 2), extent(SETTLED, 2, 4), extent(ACTIVE)], [(0, 4)]),
    ],
)
def test_groups_of_several_generations_owe(extents, owing):
    assert list(owing_groups(extents).ranges) == owing


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


def test_scattered_groups_do_not_need_an_epoch_each():
    plan = chain()
    even = replace(extent(CLOSED), groups=Groups.of_edges([0, 1, 2, 3, 4, 5, 6, 7]))
    manifest = manifest_with(plan, {(0, 0): [even, extent(ACTIVE, segment="t")]}, bytes_each=1000)
    assert cleaning_orders(plan, manifest) == (Clean(0, 0, 0, 7),)
    assert cleaning_orders(plan, manifest, bytes_at_once=500) == (Clean(0, 0, 0, 3),)
    assert groups_left(plan, manifest) == 4
