"""Relocation policies, as functions of cluster figures: when they move, what, how much, and the reason they give."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.adaptation.plans import CLOSED, extent, manifest_with
from watersmeet.adaptation.group_loads import GroupLoads, Prices
from watersmeet.adaptation.relocating import BOUND, UNDER_WAY, Relocator, moves_asked, moves_wanted, on_slots
from watersmeet.adaptation.relocation_policies import (
    BUSY_NS_MIN,
    NOTHING,
    ClusterFigures,
    RelocationSettings,
    active_disk,
    auto,
    balance,
    lazy_disk,
    policy_named,
    thresholds,
)
from watersmeet.epoch.goals import Relocate
from watersmeet.errors import OptionError
from watersmeet.plan.placement import Move, Placement, groups_moved, still_due
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.state.manifest import ACTIVE, MigrationState
from watersmeet.state.measures import EXPIRE_NS, INSERT_NS, INSERTED, PROBE_NS, RESULTS, Counts, Figure

MB = 1 << 20


def loads(*groups, slots=2) -> GroupLoads:
    """Groups of one key as (slot, bytes, CPU time, output)."""
    slot, size, cpu, output = zip(*groups, strict=True)
    numbers = np.arange(len(groups))
    arrays = (np.array(values, dtype=float) for values in (size, cpu, output))
    return GroupLoads(slots, ("k",), np.zeros(len(groups), dtype=np.int64), numbers, np.array(slot), *arrays)


def figures(found: GroupLoads, **others) -> ClusterFigures:
    return ClusterFigures(found, np.ones(len(found), dtype=np.bool_), **others)


def moved(suggestion) -> dict[int, int]:
    return {group: move.receiver for move in suggestion.moves for group in move.groups}


SETTINGS = RelocationSettings()
UNEVEN = loads(*[(0, 10, 1, n) for n in range(8)], (1, 20, 1, 0))
"""80 bytes on slot 0, 20 on slot 1."""


def test_lazy_disk_moves_half_the_difference_the_most_productive_first():
    suggestion = lazy_disk(figures(UNEVEN), SETTINGS)
    assert suggestion.moves == (Move("k", 0, 1, (5, 6, 7)),)
    assert suggestion.reason == "slot 0 uses 80 B, slot 1 20 B: below 80%"


def test_lazy_disk_waits_until_the_least_is_below_the_threshold_of_the_most():
    assert lazy_disk(figures(UNEVEN), RelocationSettings(threshold=0.25)) is NOTHING
    assert lazy_disk(figures(UNEVEN), RelocationSettings(threshold=0.26)) is not NOTHING


def test_groups_that_rest_do_not_move():
    rest = ClusterFigures(UNEVEN, np.arange(9) < 5)
    assert moved(lazy_disk(rest, SETTINGS)) == {2: 1, 3: 1, 4: 1}
    assert lazy_disk(ClusterFigures(UNEVEN, np.zeros(9, dtype=np.bool_)), SETTINGS) is NOTHING


BALANCED = loads((0, 40, 1, 9), (0, 40, 1, 9), (1, 40, 1, 4), (1, 40, 1, 4))


def test_active_disk_forces_the_least_productive_slot_to_spill_where_memory_is_balanced_and_short():
    settings = RelocationSettings(budget_bytes=100, ratio=2.0, fraction=0.5)
    suggestion = active_disk(figures(BALANCED), settings)
    assert (suggestion.moves, suggestion.forced) == ((), {1: 40})
    assert suggestion.reason == "groups of slot 0 are 2.2 times as productive as those of slot 1"


@pytest.mark.parametrize(
    ("settings", "others"),
    [
        (RelocationSettings(budget_bytes=100, ratio=2.25), {}),
        (RelocationSettings(budget_bytes=None), {}),
        (RelocationSettings(budget_bytes=1000), {}),
        (RelocationSettings(budget_bytes=100, limit_bytes=64), {"forced_bytes": 64}),
    ],
    ids=["equally productive", "no budget", "memory is not short", "the limit is reached"],
)
def test_active_disk_forces_nothing(settings, others):
    assert active_disk(figures(BALANCED, **others), settings) is NOTHING


def test_what_active_disk_forces_is_limited():
    settings = RelocationSettings(budget_bytes=100, limit_bytes=50, fraction=1.0)
    assert active_disk(figures(BALANCED, forced_bytes=40), settings).forced == {1: 10}


def test_active_disk_relocates_first():
    assert active_disk(figures(UNEVEN), RelocationSettings(budget_bytes=100)) == lazy_disk(figures(UNEVEN), SETTINGS)


def test_thresholds_move_half_the_difference_from_an_overloaded_slot_to_one_that_is_not():
    suggestion = thresholds(figures(UNEVEN), RelocationSettings(budget_bytes=100))
    assert suggestion.moves == (Move("k", 0, 1, (5, 6, 7)),)
    assert suggestion.reason == "slot 0 uses 80% of its memory, slot 1 20%"


@pytest.mark.parametrize(
    ("budget", "bounds"),
    [(None, (0.8, 0.6, 0.2)), (101, (0.8, 0.6, 0.2)), (100, (0.8, 0.19, 0.2)), (100, (0.8, 0.6, 0.61))],
    ids=["no budget", "nobody is overloaded", "everybody is", "the difference is small"],
)
def test_thresholds_move_nothing(budget, bounds):
    assert thresholds(figures(UNEVEN), RelocationSettings(budget_bytes=budget, bounds=bounds)) is NOTHING


def test_balance_weighs_memory_and_time():
    by_time = loads(*[(0, 10, 8, 0)] * 4, *[(1, 10, 1, 0)] * 4)
    new = balance(figures(by_time), SETTINGS)
    assert new.moves
    assert new.reason == "of the mean load, k: the most loaded slot from 1.78 to 1.00"
    assert balance(figures(loads(*[(0, 10, 8, 0)] * 4, *[(1, 10, 8, 0)] * 4)), SETTINGS) is NOTHING


def test_balance_plans_all_moves_at_once():
    crowded = loads(*[(0, 10, 5, 0)] * 12, slots=4)
    new = moved(balance(figures(crowded), SETTINGS))
    assert sorted(np.bincount([new.get(group, 0) for group in range(12)])) == [3, 3, 3, 3]


BUSY = loads(*[(0, MB, BUSY_NS_MIN / 2, 0)] * 4, *[(1, MB, BUSY_NS_MIN / 50, 0)] * 4)


def test_auto_moves_what_pays():
    assert auto(figures(BUSY), SETTINGS).moves
    dear = loads(*[(0, 1000 * MB, BUSY_NS_MIN / 2, 0)] * 4, *[(1, MB, BUSY_NS_MIN / 50, 0)] * 4)
    assert auto(figures(dear), SETTINGS) is NOTHING
    idle = loads(*[(0, 10, BUSY_NS_MIN / 50, 0)] * 4, *[(1, 10, 0, 0)] * 4)
    assert auto(figures(idle), SETTINGS) is NOTHING


def test_auto_leaves_memory_to_lending_on_one_host():
    full = loads(*[(0, MB, BUSY_NS_MIN, 0)] * 4, *[(1, MB // 8, BUSY_NS_MIN, 0)] * 4)
    assert auto(figures(full), SETTINGS) is NOTHING
    assert balance(figures(full), SETTINGS) is not NOTHING


def test_a_query_rests_after_a_relocation_and_so_do_its_groups():
    relocator = Relocator(RelocationSettings(policy="lazy-disk", interval_s=45))
    first = relocator.suggest(UNEVEN, 100.0, 1)
    assert first.moves
    assert relocator.suggest(UNEVEN, 145.0, 1) is NOTHING
    again = relocator.suggest(UNEVEN, 145.5, 1)
    assert again.moves
    resting = Relocator(RelocationSettings(policy="lazy-disk", interval_s=45))
    resting._moved_of("k", 7)[7] = 99.0
    assert 7 not in moved(resting.suggest(UNEVEN, 100.0, 1))


def test_one_slot_has_nowhere_to_go():
    assert Relocator(SETTINGS).suggest(loads((0, 10, 1, 1), slots=1), 0.0, 1) is NOTHING


def test_a_share_that_is_asked_for_is_at_least_one_group():
    assert moved_by(moves_asked(UNEVEN, 0, 1, 0.5)) == {4: 1, 5: 1, 6: 1, 7: 1}
    assert moved_by(moves_asked(UNEVEN, 0, 1, 0.01)) == {0: 1}
    assert moves_asked(loads((1, 10, 1, 1)), 0, 1, 0.5) == ()


def test_a_relocation_that_must_wait_says_why():
    """Slot 0 has one node, slot 1 a tree: a group with closed rows stays."""
    streams = [Stream(name, pa.schema([("k", pa.int64())])) for name in "abc"]
    query = build_query(streams, where=["a.k = b.k AND b.k = c.k"], within=None, windows={}, select=["a.k"])
    plan = plan_join(query, tuple(parse_tree(text, "abc") for text in ("(a b c)", "((a b) c)")), 8)
    key = plan.key_of_stage(0)
    loads = GroupLoads(2, (key,), *(np.array([value]) for value in (0, 3, 0, 10.0, 1.0, 1.0)))
    for closed, expected in ([extent(CLOSED, 3, 4)], ((), BOUND)), ([], ((Move(key, 0, 1, (3,)),), None)):
        last = manifest_with(plan, {(0, 0): [extent(ACTIVE), *closed]}, slots=2)
        assert moves_wanted(plan, last, loads, Relocate(0, 1, 1.0, "asked for")) == expected
    under_way = replace(last, migration=MigrationState("backfill", "asked for"))
    assert moves_wanted(plan, under_way, loads, Relocate(0, 1, 1.0, "asked for")) == ((), UNDER_WAY)


def moved_by(moves) -> dict[int, int]:
    return {group: move.receiver for move in moves for group in move.groups}


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0}, {"threshold": 1.1}, {"ratio": 0.5}, {"policy": "lazy"}, {"bounds": (0.5, 0.6, 0.2)}]
)
def test_settings_out_of_bounds_are_refused(wrong):
    with pytest.raises(OptionError):
        RelocationSettings(**wrong)


def test_an_unknown_policy_is_refused_with_the_nearest():
    with pytest.raises(OptionError, match="did you mean 'lazy-disk'"):
        policy_named("lazydisk")


def test_another_number_of_slots_moves_few_groups_and_balances_bytes_and_load():
    placement = Placement(2, {"k": (0, 0, 0, 0, 1, 1, 1, 1), "new": (0, 0, 0, 0, 1, 1, 1, 1)})
    heavy = loads(*[(0, 100, 9, 0)] * 4, *[(1, 10, 1, 0)] * 4)
    three = on_slots(placement, heavy, 3)
    assert np.bincount(three.owners["k"], weights=heavy.bytes, minlength=3).max() <= 200
    assert sorted(np.bincount(three.owners["new"])) == [2, 3, 3]
    assert groups_moved(placement, three) <= 5
    one = on_slots(three, heavy, 1)
    assert set(one.owners["k"]) == {0}
    assert on_slots(placement, heavy, 2) is placement


def test_moves_that_have_been_made_are_left_out():
    placement = Placement(3, {"k": (0, 1, 2)})
    asked = (Move("k", 0, 2, (0, 1)), Move("k", 1, 2, (0,)), Move("gone", 0, 1, (0,)))
    assert still_due(asked, placement) == (Move("k", 0, 2, (0,)),)
    assert still_due(asked, placement.after(still_due(asked, placement))) == ()


def test_prices_are_means_over_the_life_of_the_checkpoint():
    totals = Counts({Figure(INSERT_NS): 100, Figure(EXPIRE_NS): 100, Figure(INSERTED): 10, Figure(PROBE_NS): 60})
    assert Prices.of(totals) == Prices(20.0, 0.0)
    assert Prices.of(Counts({**totals.values, Figure(RESULTS): 6})) == Prices(20.0, 10.0)
