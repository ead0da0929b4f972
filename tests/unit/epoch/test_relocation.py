"""Moves of partition groups between slots of different shapes: what moves, what is made, and what must stay."""

from dataclasses import replace
from functools import reduce
from operator import or_

import pyarrow as pa
import pytest

from tests.unit.adaptation.plans import CLOSED, extent, manifest_with
from watersmeet.epoch.kinds import Batch, Cleaning, Spill
from watersmeet.epoch.migrating import ready_to_run
from watersmeet.epoch.relocation import (
    alike_slots,
    bound_between,
    bound_by_key,
    fitting,
    lacking_groups,
    moves_between,
    relocated,
    unused,
)
from watersmeet.epoch.tasks import tasks_of
from watersmeet.plan.placement import Move
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ACTIVE, ExtentRef, Manifest, MigrationState

KEY = "a.x = b.x = c.x = d.x"
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
SHAPES = ("(a b c d)", "(((a b) c) d)", "((a b) (c d))")


def plan_of(*shapes: str, where: str = "a.x = b.x AND b.x = c.x AND c.x = d.x") -> JoinPlan:
    streams = [Stream(name, SCHEMA, "ts", 0) for name in "abcd"]
    query = build_query(streams, where=[where], within="100 microseconds", windows={}, select=["a.x"])
    return plan_join(query, tuple(parse_tree(text, "abcd") for text in shapes), 8)


def stored(store: int, low: int = 0, high: int = 4, generation: int = ACTIVE, segment: str = "1-0-0-x-0") -> ExtentRef:
    return replace(
        extent(generation, low, high, segment=segment, since=None if generation == ACTIVE else 5), store=store
    )


def names_on(manifest: Manifest, slot: int) -> dict[str, Groups]:
    return {name.streams: reduce(or_, (e.groups for e in mine)) for name, mine in manifest.extents[slot].items()}


def test_equal_stores_move_and_those_that_only_the_sender_has_are_dropped():
    plan = plan_of(*SHAPES[:2])
    before = manifest_with(plan, {(0, 1): [stored(n, 4, 8) for n in range(6)]}, slots=2)
    after = relocated(before, plan, (Move(KEY, 1, 0, (4, 5)),))
    moved, stayed = Groups.between(4, 6), Groups.between(6, 8)
    assert names_on(after, 0) == dict.fromkeys("abcd", moved)
    assert names_on(after, 1) == dict.fromkeys(["a", "b", "c", "d", "a b", "a b c"], stayed)
    assert after.placement.owners[KEY] == (0, 0, 0, 0, 0, 0, 1, 1)


def test_receivers_make_the_stores_that_they_alone_have():
    plan = plan_of(*SHAPES)
    found = lacking_groups(plan, [Move(KEY, 0, 1, (0, 1)), Move(KEY, 2, 1, (6,))])
    assert {name.streams: groups for name, groups in found[1].items()} == {
        "a b": Groups.between(0, 2),
        "a b c": Groups.of_numbers([0, 1, 6]),
    }
    assert not found[0]
    assert not found[2]


def test_a_group_that_goes_on_at_once_still_lacks_what_was_not_made():
    plan = plan_of(*SHAPES)
    found = lacking_groups(plan, [Move(KEY, 0, 1, (0, 1)), Move(KEY, 1, 2, (1,))])
    assert {name.streams: groups for name, groups in found[2].items()} == {
        "a b": Groups.of_numbers([1]),
        "c d": Groups.of_numbers([1]),
    }
    assert {name.streams: groups for name, groups in found[1].items() if groups} == {
        "a b": Groups.of_numbers([0]),
        "a b c": Groups.of_numbers([0]),
    }


def test_only_the_receiver_s_task_is_told_what_its_groups_lack():
    plan = plan_of(*SHAPES[:2])
    before = manifest_with(plan, {(0, 0): [stored(n) for n in range(4)]}, slots=2)
    epoch = Batch(0, moves=(Move(KEY, 0, 1, (1, 3)),))
    zero, one = tasks_of(plan, ready_to_run(before, plan, epoch), epoch)[0]
    labels = [layout.label for layout in plan.layouts(0, 1)]
    assert zero.lacks == ()
    assert {labels[store]: groups for store, groups in one.lacks} == {
        "(a b)": Groups.of_numbers([1, 3]),
        "((a b) c)": Groups.of_numbers([1, 3]),
    }


def test_segments_of_dropped_stores_leave_memory_with_a_task_of_their_slot():
    plan = plan_of(*SHAPES[:2])
    alone = "1-0-1-x-7"
    extents = {(0, 1): [*(stored(n, 4, 8) for n in (0, 1, 3)), stored(2, 4, 8, segment=alone)]}
    epoch = Cleaning((), "asked for", (Move(KEY, 1, 0, (4, 5, 6, 7)),))
    before = ready_to_run(manifest_with(plan, extents, slots=2), plan, epoch)
    assert unused(before) == {alone}
    assert [task.dropped for task in tasks_of(plan, before, epoch)[0]] == [frozenset(), {alone}]


# What must stay


def test_closed_groups_go_to_slots_with_the_same_stores_only():
    plan = plan_of("(a b c d)", "(((a b) c) d)")
    before = manifest_with(plan, {(0, 0): [stored(0, 0, 2), stored(0, 1, 3, CLOSED)]}, slots=4)
    assert bound_by_key(plan, before) == {KEY: Groups.between(1, 3)}
    assert bound_between(plan, before, 0, 1) == {KEY: Groups.between(1, 3)}
    assert bound_between(plan, before, 0, 2) == {}
    other, same = Move(KEY, 0, 1, (0, 1)), Move(KEY, 0, 2, (0, 1))
    assert fitting(plan, before, (other,)) == (Move(KEY, 0, 1, (0,)),)
    assert fitting(plan, before, (same,)) == (same,)
    with pytest.raises(ValueError, match="not all its groups can go"):
        relocated(before, plan, (other,))
    assert relocated(before, plan, (same,)).placement.owners[KEY][:2] == (2, 2)


def test_a_move_without_groups_is_none():
    plan = plan_of(*SHAPES[:2])
    before = manifest_with(plan, {(0, 0): [stored(0, 0, 4, CLOSED)]}, slots=2)
    assert fitting(plan, before, (Move(KEY, 0, 1, (0, 1)),)) == ()


def test_no_group_changes_shape_while_results_are_owed_below():
    plan = plan_of("((a b) (c d))", "(a b (c d))", where="a.x = b.x AND b.x = c.x AND c.y = d.y")
    below, above = plan.key_of_stage(0), plan.key_of_stage(1)
    owing = {(0, 0): [stored(0), stored(1), stored(0, 2, 3, CLOSED)], (1, 0): [stored(0)]}
    before = manifest_with(plan, owing, slots=2, watermark_us=9)
    assert bound_by_key(plan, before) == {above: Groups.between(0, 8)}
    assert fitting(plan, before, (Move(above, 0, 1, (0,)),)) == ()
    assert fitting(plan, before, (Move(below, 0, 1, (2,)),)) == (Move(below, 0, 1, (2,)),)
    settled = manifest_with(plan, {(0, 0): [stored(0, 2, 3, CLOSED)], (1, 0): [stored(0)]}, slots=2, watermark_us=9)
    assert bound_by_key(plan, settled) == {above: Groups()}


def test_groups_do_not_spill_in_the_epoch_in_which_they_change_shape():
    plan = plan_of(*SHAPES[:2])
    before = manifest_with(plan, {(0, 0): [stored(n) for n in range(4)]}, slots=2)
    moves = (Move(KEY, 0, 1, (1,)),)
    other, same = (Batch(0, (Spill(0, 1, (group,)),), moves=moves) for group in (2, 1))
    tasks_of(plan, ready_to_run(before, plan, other), other)
    with pytest.raises(ValueError, match="in which they change shape"):
        tasks_of(plan, ready_to_run(before, plan, same), same)


def test_no_group_changes_shape_in_a_migration():
    plan = plan_of(*SHAPES[:2])
    before = manifest_with(plan, {(0, 0): [stored(0)]}, slots=2)
    assert bound_by_key(plan, before) == {KEY: Groups()}
    going = replace(before, migration=MigrationState("backfill", "asked for"))
    assert bound_by_key(plan, going) == {KEY: Groups.between(0, 8)}


# Other numbers of slots


@pytest.mark.parametrize("slots", [1, 3])
def test_moves_lead_to_another_number_of_slots(slots):
    plan = plan_of(*SHAPES[:2])
    before = manifest_with(plan, {(0, 0): [stored(0)], (0, 1): [stored(0, 4, 8)]}, slots=2)
    owners = tuple(group % slots for group in range(8))
    target = replace(before.placement, slots=slots, owners={KEY: owners})
    moves = moves_between(before.placement, target)
    after = relocated(before, plan, moves, slots)
    assert after.placement == target
    assert [len(mine) for mine in after.extents] == [1] * slots
    held = [groups for slot in range(slots) for groups in names_on(after, slot).values()]
    assert held == [Groups.of(owners, slot) for slot in range(slots)]


def test_slots_with_the_same_stores_are_told_apart_from_others():
    plan = plan_of("(a b c d)", "(((a b) c) d)", "(((b a) c) d)")
    assert alike_slots(plan, KEY, 5) == [[0, 3], [1, 2, 4]]
