"""A plan that hands its partition groups over to another one, range by range (backfill where no row is exchanged).

    groups     0 ............ fed ............ fed' .............. partitions
    run by     the new plan       the next chunk     the old plan
    stores     of the new plan    built now          of the old plan

Both plans have the same stages, which get the same rows; only the nodes within a stage differ. So a row belongs to one
of the plans, by its group. A chunk is a build (`engine/rebuild.py`) of some groups from what their stores hold now:
nothing is pinned, no row is stored twice, and no join is done twice.

A stage keeps the stores of both shapes; those that both have under one name are one store. Numbers of stores are those
of the stage: first the old plan's, then those that only the new plan has.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.plan.layout import StoreName
from watersmeet.plan.stages import JoinPlan, StagePlan, exchanges


def can_hand_over(old: JoinPlan, new: JoinPlan) -> bool:
    """Whether the stages of two plans get the same rows, so that a group can go from one to the other by itself."""
    if exchanges(old.stages) != exchanges(new.stages):
        return False
    return all(_stored(a) == _stored(b) for a, b in zip(old.stages, new.stages, strict=True))


def handing_over(old: JoinPlan, new: JoinPlan) -> JoinPlan:
    """The old plan, as it hands its groups over to the new one."""
    pairs = zip(old.stages, new.stages, strict=True)
    stages = tuple(a if a.hops else replace(a, successors=b.shapes) for a, b in pairs)
    return replace(old, towards=new, stages=stages)


def is_handed_over(plan: JoinPlan) -> bool:
    return any(stage.successors for stage in plan.stages)


def takes_chunks(plan: JoinPlan) -> bool:
    """Whether stored rows are added to stores of the plan, chunk by chunk, while others arrive."""
    return plan.since is not None or is_handed_over(plan)


def without_successor(plan: JoinPlan) -> JoinPlan:
    """The old plan of one that is handed over."""
    return replace(plan, towards=None, stages=tuple(replace(stage, successors=()) for stage in plan.stages))


def new_stores(stage: StagePlan, slot: int) -> list[int]:
    """The stores of a new shape, by their numbers in the stage."""
    names = [layout.name for node in stage.shape(slot) for layout in node.inputs]
    names += [layout.name for layout in stage.added(slot)]
    return [names.index(layout.name) for node in stage.successor(slot) for layout in node.inputs]


def left_behind(plan: JoinPlan, slot: int) -> set[StoreName]:
    """The stores of a slot that only the old plan has: their groups leave them as they are handed over."""
    found: set[StoreName] = set()
    for stage in plan.stages:
        if stage.successors:
            kept = {layout.name for node in stage.successor(slot) for layout in node.inputs}
            found |= {layout.name for node in stage.shape(slot) for layout in node.inputs} - kept
    return found


def _stored(stage: StagePlan) -> list[object]:
    """The rows that a stage takes in and, if it has hops, the indexes that it probes."""
    indexes = [(index.layout.name, index.arrivals, index.kept_in) for index in stage.indexes]
    return [*(layout.name for layout in stage.inputs), *indexes]
