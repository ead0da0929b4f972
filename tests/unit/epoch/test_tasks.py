"""What slots are told: their own part of the manifest, their own orders, and nothing that a stage cannot do."""

from dataclasses import replace

import pytest

from tests.unit.adaptation.plans import CLOSED, chain, extent, manifest_with
from tests.unit.epoch.plans import aggregate_plan, hops
from watersmeet.epoch.after import initial_manifest
from watersmeet.epoch.kinds import Batch, Clean, Cleaning, Closing, Spill, Takeover
from watersmeet.epoch.memory_shares import MemoryShares
from watersmeet.epoch.tasks import named, tasks_of, windows_to_close
from watersmeet.state.manifest import ACTIVE


def test_a_task_for_every_stage_that_runs_and_every_slot():
    plan = aggregate_plan()
    before = initial_manifest(plan, 3)
    for epoch, stages in (
        (Batch(0), [0, 1]),
        (Cleaning((Clean(0, 0, 0, 8),), ""), [0, 1]),
        (Cleaning((), ""), []),
        (Closing(5), [1]),
        (Takeover(), []),
    ):
        tasks = tasks_of(plan, before, epoch)
        assert list(tasks) == stages
        for stage, of_stage in tasks.items():
            assert [(t.stage, t.slot, t.epoch) for t in of_stage] == [(stage, slot, 0) for slot in range(3)]
            assert [t.closing_us for t in of_stage] == [5 if isinstance(epoch, Closing) else None] * 3


def test_a_slot_is_told_of_its_own_extents_and_their_segments_only():
    plan = chain()
    held = {
        (0, 0): [extent(ACTIVE, 0, 4, segment="mine"), replace(extent(ACTIVE, 0, 4, segment="other"), store=1)],
        (0, 1): [extent(ACTIVE, 4, 8, segment="theirs")],
        (1, 0): [extent(ACTIVE, 0, 4, segment="above")],
    }
    before = manifest_with(plan, held, slots=2, watermark_us=90)
    tasks = tasks_of(plan, before, Batch(1))
    mine, theirs = tasks[0]
    assert mine.extents == tuple(held[0, 0])
    assert set(mine.segments) == {"mine", "other"}
    assert set(theirs.segments) == {"theirs"}
    assert set(tasks[1][0].segments) == {"above"}
    assert [task.groups.ranges for task in tasks[2]] == [((0, 4),), ((4, 8),)]
    assert {task.watermark_us for of_stage in tasks.values() for task in of_stage} == {90}
    assert {task.epoch for of_stage in tasks.values() for task in of_stage} == {before.epoch + 1}


def test_orders_go_to_their_stage_and_slot():
    plan = chain()
    orders = (Spill(1, 0, (3, 1)), Spill(1, 0, (1, 2)), Clean(1, 1, 4, 6, keep=True), Clean(2, 0, 0, 2))
    tasks = tasks_of(plan, initial_manifest(plan, 2), Batch(0, orders))
    told = {(t.stage, t.slot): (t.spill, t.clean, t.keep) for s in tasks.values() for t in s}
    assert told == {
        (0, 0): ((), None, False),
        (0, 1): ((), None, False),
        (1, 0): ((1, 2, 3), None, False),
        (1, 1): ((), (4, 6), True),
        (2, 0): ((), (0, 2), False),
        (2, 1): ((), None, False),
    }


@pytest.mark.parametrize("kind", [Batch, Cleaning])
@pytest.mark.parametrize(
    ("plan", "order"),
    [
        (aggregate_plan(), Spill(1, 0, (1,))),
        (aggregate_plan(), Clean(1, 0, 0, 8)),
        (hops(), Spill(0, 0, (1,))),
        (hops(), Clean(1, 0, 0, 8)),
        (chain(), Clean(3, 0, 0, 8)),
    ],
    ids=["spill groups", "clean groups", "spill hops", "clean hops", "no such stage"],
)
def test_an_order_to_a_stage_that_cannot_take_it_raises(kind, plan, order):
    epoch = Batch(0, (order,)) if kind is Batch else Cleaning((order,), "asked for")
    with pytest.raises(ValueError, match=f"stage {order.stage} does not spill"):
        tasks_of(plan, initial_manifest(plan, 1), epoch)


def test_memory_is_told_by_slot_and_stage():
    plan = chain()
    tasks = tasks_of(plan, initial_manifest(plan, 2), Batch(0), MemoryShares([[1, 2, 3], [4, 5, 6]], 21))
    assert {task.host_bytes for stage in tasks.values() for task in stage} == {21}
    assert [[task.memory_bytes for task in tasks[stage]] for stage in range(3)] == [[1, 4], [2, 5], [3, 6]]
    assert tasks_of(plan, initial_manifest(plan, 2), Batch(0))[0][0].memory_bytes is None


def test_stages_above_wait_for_what_is_owed_below():
    plan = chain()
    owing = [extent(CLOSED, since=40), extent(ACTIVE)]
    before = manifest_with(plan, {(0, 0): owing}, watermark_us=90)
    below, above, _ = (tasks_of(plan, before, Batch(1))[stage][0] for stage in range(3))
    assert (below.holds, below.frontier_us) == ((None, None), 90)
    assert (above.holds, above.frontier_us) == ((None, 40), 40)
    assert above.expiry_us(1) == 40
    assert above.expiry_us(0) == 90


def test_a_stage_of_hops_reads_what_another_keeps():
    plan = hops()
    elsewhere = [
        (stage, number, index)
        for stage, of_stage in enumerate(plan.stages)
        for number, index in enumerate(of_stage.indexes)
        if index.kept_in[0] != stage
    ]
    assert elsewhere
    stage, number, index = elsewhere[0]
    keeper, store = index.kept_in
    held = replace(extent(ACTIVE, segment="kept"), store=store)
    before = manifest_with(plan, {(keeper, 0): [held]})
    task = tasks_of(plan, before, Batch(1))[stage][0]
    assert [e.segment for e in task.reads[number]] == ["kept"]
    assert "kept" in task.segments
    assert all(not reads for other, reads in enumerate(task.reads) if other != number)


def test_windows_are_closed_when_the_frontier_has_passed_their_end():
    plan = aggregate_plan("append")
    groups = {(1, 0): [extent(ACTIVE)]}
    before = manifest_with(plan, groups, watermark_us=19)
    assert windows_to_close(plan, before) == 19
    assert windows_to_close(plan, replace(before, closed_us=9)) == 19
    assert windows_to_close(plan, replace(before, closed_us=10)) is None, "the next one ends at 20"
    assert windows_to_close(plan, manifest_with(plan, {}, watermark_us=19)) is None, "there are no groups"
    owing = {(0, 0): [extent(CLOSED, since=5), extent(ACTIVE)], **groups}
    assert windows_to_close(plan, manifest_with(plan, owing, watermark_us=19)) == 5
    assert windows_to_close(plan, replace(manifest_with(plan, owing, watermark_us=19), closed_us=5)) is None
    assert windows_to_close(aggregate_plan("update"), manifest_with(aggregate_plan("update"), groups)) is None


def test_an_attempt_has_a_name_of_its_own():
    plan = chain()
    task = tasks_of(plan, initial_manifest(plan, 1), Batch(0))[0][0]
    assert task.attempt == ""
    assert named(task, "x") == replace(task, attempt="x")
