"""The state of a slot before an epoch, opened from extents and cut to its groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from watersmeet.engine.layers import Layer
from watersmeet.engine.marks import as_laid_out
from watersmeet.engine.statistics import Tally
from watersmeet.epoch.task import SlotTask, expired, stores_of
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.cuts import copies, cut_to_groups
from watersmeet.state.manifest import ExtentRef
from watersmeet.state.mapped import Runs
from watersmeet.state.measures import EXPIRE_NS, EXPIRED
from watersmeet.state.run import Run
from watersmeet.state.tiers import Tiers, task_name


def open_state(plan: JoinPlan, task: SlotTask, tiers: Tiers, tally: Tally) -> list[Layer]:
    """The active layers of the slot, oldest first: extents that have not expired, cut to their groups.

    Files without active rows leave memory, unless they are closed here and other slots have rows in them.
    """
    by_segment: dict[str, list[ExtentRef]] = defaultdict(list)
    expired_rows = 0
    for extent in task.extents:
        if task.has_expired(extent):
            expired_rows += extent.rows
        elif extent.is_active:
            by_segment[extent.segment].append(extent)
    others = {extent.segment for extent in task.closed if extent.segment in task.shares}
    dead = {extent.segment for extent in task.extents} - by_segment.keys() - others - task.foreign
    tally.count(EXPIRED, expired_rows)
    with tally.spent_on(EXPIRE_NS):
        tiers.leave(dead | task.dropped, task_name(task.epoch, task.stage, task.slot))
        copies.forget_missing(str(tiers.durable))
    layers, stores = [], stores_of(plan, task)
    for name, extents in by_segment.items():
        runs = tiers.peek(task.segments[name]) if name in task.foreign else tiers.open(task.segments[name])
        pairs = [(extent, _cut(runs[extent.index][1], extent, plan.partitions, tiers)) for extent in extents]
        held = [(_counted(e, run.rows), as_laid_out(run, stores[e.store])) for e, run in pairs if run.rows]
        if held:
            pieces = tuple((extent.store, run) for extent, run in held)
            layers.append(Layer(extents[0].bucket, pieces, tuple(e for e, _ in held), lost=_lost(runs, extents, pairs)))
    return layers


def read_state(
    plan: JoinPlan, task: SlotTask, layout: StoreLayout, extents: Sequence[ExtentRef], tiers: Tiers
) -> list[Run]:
    """The runs of a store that this stage does not keep, as they were before the epoch."""
    hold = min((hold for hold in task.holds if hold is not None), default=None)
    bound = task.watermark_us if hold is None or task.watermark_us is None else min(hold, task.watermark_us)
    alive = [extent for extent in extents if not expired(extent.expires_us, bound)]
    opened = {name: tiers.peek(task.segments[name]) for name in {extent.segment for extent in alive}}
    runs = (_cut(opened[e.segment][e.index][1], e, plan.partitions, tiers) for e in alive)
    return [as_laid_out(run, layout) for run in runs if run.rows]


def _lost(runs: Runs, extents: Sequence[ExtentRef], pairs: Sequence[tuple[ExtentRef, Run]]) -> int:
    """The rows of opened runs that are not the slot's. Those that a merge by range has taken out do not count."""
    if any(extent.is_piece for extent in extents):
        return 0
    whole = sum(runs[index][1].rows for index in {extent.index for extent in extents})
    return whole - sum(run.rows for _, run in pairs)


def _counted(extent: ExtentRef, rows: int) -> ExtentRef:
    return extent if extent.rows == rows and not extent.is_estimate else replace(extent, rows=rows, is_estimate=False)


def _cut(run: Run, extent: ExtentRef, partitions: int, tiers: Tiers) -> Run:
    if len(extent.groups.ranges) < 2:
        return cut_to_groups(run, extent.groups, partitions)
    return copies.rows_of(extent, run, partitions, str(tiers.durable))
