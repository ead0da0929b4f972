"""The tasks of an epoch: each slot gets its part of the manifest, its orders, and the debts of others it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from watersmeet.epoch.frontiers import Debt, debts, frontier, frontier_of_stage, holds
from watersmeet.epoch.key_sketch import KeyClasses
from watersmeet.epoch.kinds import (
    Backfill,
    Batch,
    Build,
    Clean,
    Closing,
    Complete,
    Epoch,
    Spill,
    has_rows,
    moves_of,
    orders_of,
    stages_of,
)
from watersmeet.epoch.memory_shares import MemoryShares
from watersmeet.epoch.owing import extents_of_stage
from watersmeet.epoch.relocation import Lacks, lacking_groups, unused
from watersmeet.epoch.task import SlotTask
from watersmeet.plan.completion import pinned
from watersmeet.plan.handover import is_handed_over
from watersmeet.plan.spillable import kept_because
from watersmeet.plan.stages import Index, JoinPlan
from watersmeet.plan.state_matching import Feed
from watersmeet.state.file_names import slot_of
from watersmeet.state.groups import NO_GROUPS, Groups
from watersmeet.state.manifest import ExtentRef, Manifest, within
from watersmeet.state.shares import byte_shares, foreign_files


def tasks_of(
    plan: JoinPlan,
    before: Manifest,
    epoch: Epoch,
    memory: MemoryShares | None = None,
    sketches: tuple[KeyClasses, ...] = (),
) -> dict[int, list[SlotTask]]:
    """The tasks of the epoch after `before`, by stage, one per slot; the attempt fills in its own name. `memory` limits
    the bytes in memory. Arriving rows are sketched by the key classes of `sketches`. An order to spill or clean up a
    stage that cannot spill, or to spill groups whose stores are not made yet, raises a ValueError."""
    owed, lacks = debts(plan, before), lacking_groups(plan, moves_of(epoch))
    dropped = unused(before) if moves_of(epoch) else frozenset()
    for order in orders_of(epoch):
        if (reason := kept_because(plan, order.stage)) is not None:
            raise ValueError(f"the state of stage {order.stage} does not spill: {reason} ({order})")
        came = (groups for _, groups in _lacking(plan, order.stage, order.slot, lacks))
        if isinstance(order, Spill) and any(group in groups for groups in came for group in order.groups):
            raise ValueError(f"groups do not spill in the epoch in which they change shape ({order})")
    tasks = {}
    for stage in stages_of(plan, epoch):
        made = [_task(plan, before, epoch, stage, slot, owed, lacks, memory) for slot in range(before.slots)]
        if sketches and has_rows(epoch):
            made = [replace(task, sketches=sketches) for task in made]
        if dropped:
            made = [replace(task, dropped=_of_slot(task.slot, len(made), dropped)) for task in made]
        tasks[stage] = _sharing(made)
    if feeds := feeds_in(epoch):
        number = feeding_stage(plan, epoch)
        tasks[number] = [_feeding(before, epoch, feeds, number, slot) for slot in range(before.slots)]
    return tasks


def _sharing(tasks: Sequence[SlotTask]) -> list[SlotTask]:
    """The tasks of a stage, with each slot's part in files that several slots use."""
    held = [task.extents for task in tasks]
    shares = byte_shares(held)
    if not any(shares):
        return list(tasks)
    parts = zip(tasks, shares, foreign_files(held), strict=True)
    return [replace(task, shares=mine, foreign=foreign) if mine else task for task, mine, foreign in parts]


def _of_slot(slot: int, slots: int, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if slot_of(name) % slots == slot)


def feeds_in(epoch: Epoch) -> tuple[Feed, ...]:
    """The feeds of stored rows in an epoch."""
    match epoch:
        case Build():
            return epoch.rebuild.feeds
        case Backfill():
            return epoch.feeds
        case _:
            return ()


def feeding_stage(plan: JoinPlan, epoch: Epoch) -> int:
    """The stage number of the tasks that feed stored rows to the stages of an epoch."""
    return stages_of(plan, epoch).stop


def _feeding(before: Manifest, epoch: Epoch, feeds: Sequence[Feed], number: int, slot: int) -> SlotTask:
    reads = tuple(before.of(slot, [feed.source.name]) for feed in feeds)
    if isinstance(epoch, Backfill):
        reads = tuple(within(extents, epoch.low, epoch.high) for extents in reads)
    return SlotTask(
        epoch=before.epoch + 1,
        stage=number,
        slot=slot,
        attempt="",
        watermark_us=before.watermark_us,
        extents=(),
        segments={e.segment: before.segments[e.segment] for part in reads for e in part},
        groups=NO_GROUPS,
        reads=reads,
    )


def _task(
    plan: JoinPlan,
    before: Manifest,
    epoch: Epoch,
    stage: int,
    slot: int,
    owed: Sequence[Debt],
    lacks: Lacks,
    memory: MemoryShares | None,
) -> SlotTask:
    groups = stage == len(plan.stages)
    extents = extents_of_stage(plan, before, stage, slot)
    reads = () if groups else _reads(plan, before, stage, slot)
    build, joins = None, False
    if isinstance(epoch, Build):
        build, joins = epoch.rebuild.built[stage][slot], epoch.rebuild.joins[stage]
    chunk = (epoch.low, epoch.high) if isinstance(epoch, Complete) else None
    mine = [order for order in orders_of(epoch) if (order.stage, order.slot) == (stage, slot)]
    clean = next((order for order in mine if isinstance(order, Clean)), None)
    return SlotTask(
        epoch=before.epoch + 1,
        stage=stage,
        slot=slot,
        attempt="",
        watermark_us=before.closed_us if groups else before.watermark_us,
        extents=extents,
        segments={e.segment: before.segments[e.segment] for part in (extents, *reads) for e in part},
        groups=Groups.of(before.placement.owners[plan.key_of_stage(stage)], slot),
        reads=reads,
        closing_us=epoch.until_us if isinstance(epoch, Closing) else None,
        holds=() if groups else holds(plan, stage, slot, owed),
        frontier_us=None if groups else frontier_of_stage(plan, stage, slot, before.watermark_us, owed),
        spill=tuple(sorted({group for order in mine if isinstance(order, Spill) for group in order.groups})),
        clean=None if clean is None else (clean.low, clean.high),
        keep=clean is not None and clean.keep,
        memory_bytes=None if memory is None else memory.by_slot[slot][stage],
        host_bytes=None if memory is None else memory.host_bytes,
        build=build,
        joins=joins,
        completes=epoch.completes if isinstance(epoch, Batch) else chunk,
        lacks=() if groups else _lacking(plan, stage, slot, lacks),
        handed_over=_fed(before) if is_handed_over(plan) else 0,
        is_old=isinstance(epoch, Build | Backfill | Complete),
    )


def _lacking(plan: JoinPlan, stage: int, slot: int, lacks: Lacks) -> tuple[tuple[int, Groups], ...]:
    missing = lacks.get(slot, {})
    layouts = plan.layouts(stage, slot) if missing else []
    return tuple((number, groups) for number, layout in enumerate(layouts) if (groups := missing.get(layout.name)))


def named(task: SlotTask, attempt: str) -> SlotTask:
    return replace(task, attempt=attempt)


def windows_to_close(plan: JoinPlan, manifest: Manifest) -> int | None:
    """The time up to which windows of the aggregation can be closed and shown now; None if there are none."""
    aggregate = plan.aggregate
    if aggregate is None or aggregate.window is None or aggregate.mode != "append":
        return None
    reached, closed, window = frontier(manifest, debts(plan, manifest)), manifest.closed_us, aggregate.window
    if reached is None or not any(aggregate.layout.name in slot for slot in manifest.extents):
        return None
    # Windows end at length + a multiple of slide.
    ends = [(us - window.length_us) // window.slide_us for us in (reached, closed) if us is not None]
    return reached if closed is None or ends[0] > ends[1] else None


def _reads(plan: JoinPlan, manifest: Manifest, stage: int, slot: int) -> tuple[tuple[ExtentRef, ...], ...]:
    """The state that a stage reads and does not keep: indexes of other stages, and the groups of pinned stores that are
    not complete yet."""
    if plan.since is None or plan.stages[stage].hops:
        return tuple(_kept_elsewhere(manifest, index, stage, slot) for index in plan.stages[stage].indexes)
    stores = pinned(plan, stage, slot).values()
    return tuple(within(manifest.of(slot, [layout.name]), _fed(manifest), plan.partitions) for layout in stores)


def _fed(manifest: Manifest) -> int:
    return 0 if manifest.migration is None else manifest.migration.fed


def _kept_elsewhere(manifest: Manifest, index: Index, stage: int, slot: int) -> tuple[ExtentRef, ...]:
    return () if index.kept_in[0] == stage else manifest.of(slot, [index.layout.name])
