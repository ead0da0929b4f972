"""A plan in transition: the running plan, and beside it the stages of another one (M2, backfill).

|                      | stages 0 .. n-1, of the new plan           | stages n .., of the old plan                  |
|----------------------|--------------------------------------------|-----------------------------------------------|
| backfill             | silent: arriving rows are stored, and      | emit all results                              |
|                      | joined only if stores above need it        |                                               |
| parallel track       | emit the results of rows that have arrived | emit all other results; their rows are marked |
|                      | since the migration began                  | (`plan/layout.py`)                            |

Both get all rows that arrive. Stores of the new plan are on a track of their own, which distinguishes two stores of the
same name. In a backfill its topmost node joins nothing, and stages whose stores are all shared are left out. Where no
row has to be exchanged, a backfill needs no second stages: `plan/handover.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import lcm

from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.plan.frame import frame_of
from watersmeet.plan.handover import can_hand_over, handing_over, is_handed_over, without_successor
from watersmeet.plan.layout import BUILD, MARK, StoreLayout, with_mark, without_mark
from watersmeet.plan.stages import HopPlan, Index, JoinPlan, Place, StagePlan
from watersmeet.plan.state_matching import Feed, Rebuild, pinned_stores, rebuild
from watersmeet.plan.weights import weighings_of_both


def in_transition(old: JoinPlan, new: JoinPlan) -> JoinPlan:
    """The running plan with the stages that build the new one; if both get the same rows, it hands groups over."""
    if can_hand_over(old, new):
        return handing_over(old, new)
    joins = _joins(new, rebuild(old, new, slots=lcm(len(old.trees), len(new.trees))))
    numbers = {stage: number for number, stage in enumerate(sorted(joins))}
    build = tuple(_silent(new.stages[stage], stage, joins[stage], numbers) for stage in numbers)
    shift = len(build)
    moved = {stage: stage + shift for stage in range(len(old.stages))}
    return _of_stages(replace(old, towards=new), (*build, *(_renumbered(stage, moved) for stage in old.stages)))


def side_by_side(old: JoinPlan, new: JoinPlan, since: int) -> JoinPlan:
    """Both plans on parallel tracks, after epoch `since`; the new one has no state yet."""
    shift = len(new.stages)
    same, moved = {stage: stage for stage in range(shift)}, {s: s + shift for s in range(len(old.stages))}
    build = (_renumbered(_laid_out(stage, _on_build_track), same) for stage in new.stages)
    marked = (_renumbered(_laid_out(stage, partial(with_mark, number=since + 1)), moved) for stage in old.stages)
    return _of_stages(replace(old, towards=new, aggregate=_aggregate_of_both(old, new)), (*build, *marked))


def _aggregate_of_both(old: JoinPlan, new: JoinPlan) -> AggregatePlan | None:
    if old.aggregate is None or new.aggregate is None:
        return None
    return replace(old.aggregate, weighings=weighings_of_both(old.aggregate.weighings, new.aggregate.weighings))


def is_parallel(plan: JoinPlan) -> bool:
    """Whether two plans run on parallel tracks."""
    return plan.stages[-1].is_marked


def parallel_since(plan: JoinPlan) -> int | None:
    """The epoch after which two plans run on parallel tracks; None if they do not."""
    return int(plan.stages[-1].inputs[0].payload.names[-1].removeprefix(MARK)) - 1 if is_parallel(plan) else None


def build_alone(plan: JoinPlan) -> JoinPlan:
    """The building stages of a plan in transition, as a plan of their own, with the same numbers."""
    return _of_stages(replace(plan, aggregate=None), plan.stages[: plan.build_count])


def running_alone(plan: JoinPlan) -> JoinPlan:
    """The old plan of a plan in transition; any other plan is returned as it is."""
    if is_handed_over(plan):
        return without_successor(plan)
    shift = plan.build_count
    moved = {stage: stage - shift for stage in range(len(plan.stages))}
    stages = [_laid_out(stage, without_mark) if stage.is_marked else stage for stage in plan.stages[shift:]]
    return _of_stages(replace(plan, towards=None), tuple(_renumbered(stage, moved) for stage in stages))


def feeds_of(plan: JoinPlan) -> tuple[Feed, ...]:
    """The inputs of building stages that get stored rows of streams, and the pinned stores that these come from."""
    sources = pinned_stores(plan)
    return tuple(
        Feed(place, sources[stream])
        for stream in range(len(plan.names))
        for place in plan.places(stream)
        if plan.stages[place.stage].is_built
    )


def _joins(new: JoinPlan, how: Rebuild) -> dict[int, bool]:
    """The building stages of the new plan, and whether their results are needed: by stores that are built, and by every
    building stage, since it reads nothing of the running plan."""
    joins = {stage: how.joins[stage] for stage in range(len(new.stages)) if how.joins[stage] or any(how.built[stage])}
    for number in reversed(range(len(new.stages))):
        stage = new.stages[number]
        others = {place for place in _feeds(stage) if new.stages[place.stage].node != stage.node}
        if any(place.stage in joins for place in others):
            same = [n for n, other in enumerate(new.stages) if stage.hops and other.node == stage.node]
            joins |= dict.fromkeys([number, *same], True)
    return joins


def _feeds(stage: StagePlan) -> list[Place]:
    return [*stage.feeds, *(place for hop in stage.hops for place in hop.feeds)]


def _silent(stage: StagePlan, number: int, joins: bool, numbers: Mapping[int, int]) -> StagePlan:
    """A stage of the new plan, on the build track. Its results go to other building stages. Hops that do not run need
    only the indexes that their stage keeps."""
    kept = tuple(index for index in stage.indexes if joins or index.kept_in[0] == number)
    made = _laid_out(replace(stage, indexes=kept, is_silent=not joins), _on_build_track)
    return _renumbered(made, numbers)


def _on_build_track(layout: StoreLayout) -> StoreLayout:
    return replace(layout, track=BUILD)


def _laid_out(stage: StagePlan, change: Callable[[StoreLayout], StoreLayout]) -> StagePlan:
    """A stage with all its layouts changed."""

    def changed(layouts: Iterable[StoreLayout]) -> tuple[StoreLayout, ...]:
        return tuple(change(layout) for layout in layouts)

    shapes = tuple(tuple(replace(node, inputs=changed(node.inputs)) for node in shape) for shape in stage.shapes)
    hops = tuple(replace(hop, node=replace(hop.node, inputs=changed(hop.node.inputs))) for hop in stage.hops)
    indexes = tuple(replace(index, layout=change(index.layout)) for index in stage.indexes)
    return replace(stage, inputs=changed(stage.inputs), shapes=shapes, hops=hops, indexes=indexes)


def _of_stages(plan: JoinPlan, stages: tuple[StagePlan, ...]) -> JoinPlan:
    """The plan with other stages. Its aggregation comes after them."""
    aggregate = None if plan.aggregate is None else replace(plan.aggregate, stage=len(stages))
    frame = frame_of([(stage.key_types, stage.inputs) for stage in stages], plan.frame.time_type)
    return replace(plan, stages=stages, frame=frame, aggregate=aggregate)


def _renumbered(stage: StagePlan, numbers: Mapping[int, int]) -> StagePlan:
    """A stage with the new numbers of its plan's stages. Results for stages without a number are not sent."""

    def places(found: Sequence[Place]) -> tuple[Place, ...]:
        return tuple(Place(numbers[place.stage], place.input) for place in found if place.stage in numbers)

    hops = tuple(HopPlan(hop.node, hop.rows, hop.targets, places(hop.feeds)) for hop in stage.hops)
    indexes = tuple(
        Index(index.layout, index.arrivals, (numbers[index.kept_in[0]], index.kept_in[1])) for index in stage.indexes
    )
    return replace(stage, feeds=places(stage.feeds), hops=hops, indexes=indexes)
