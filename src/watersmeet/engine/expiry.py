"""Which rows of a slot may be dropped before they are written: rows that no future arrival can join."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.epoch.task import SlotTask, stores_of
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import Leaf
from watersmeet.state.moments import before_us
from watersmeet.state.run import Run


def expiry_bounds(
    plan: JoinPlan, task: SlotTask, arrived: Sequence[Sequence[tuple[int, Run]]], *, holds_all: bool
) -> list[int | None]:
    """Per store, the time such that rows that end by it may be dropped at once. If there are closed generations, an
    ended row may still owe results: it is kept until its extent expires and these are emitted."""
    stores = range(len(stores_of(plan, task)))
    if holds_all:
        return [None for _ in stores]
    bound = watermark_bound(plan, task, arrived)
    holds = task.holds or (None,) * len(stores)
    return [bound if hold is None or bound is None else min(bound, hold) for hold in holds]


def watermark_bound(plan: JoinPlan, task: SlotTask, arrived: Sequence[Sequence[tuple[int, Run]]]) -> int | None:
    """A lower bound on the next epoch's watermark, from the rows this slot has seen.

    The true watermark is the minimum, over the streams, of the latest event time seen by *any* slot minus the delay.
    The times that this slot saw can only be earlier, so a row that is dead by this bound is dead. Stored rows do not
    move it.
    """
    stores = stores_of(plan, task)
    latest: dict[int, int] = {}
    for store, run in (pair for chunk in arrived for pair in chunk):
        tree = stores[store].tree
        if isinstance(tree, Leaf):
            latest[tree.stream] = max(run.time_max, latest.get(tree.stream, run.time_max))
    if not plan.windowed or task.is_old or len(latest) < len(plan.names):
        return task.watermark_us
    bound = min(before_us(latest[stream], delay) for stream, delay in enumerate(plan.delays_us))
    return bound if task.watermark_us is None else max(bound, task.watermark_us)
