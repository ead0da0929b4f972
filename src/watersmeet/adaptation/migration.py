"""Migration: the epochs that lead a running query to another plan (M1, M2; dissertation 12; and two ways of ours).

| strategy         | epochs                                                                                | rows wait |
|------------------|---------------------------------------------------------------------------------------|-----------|
| `moving-state`   | drain; one build of all that the new plan lacks                                       | all along |
| `parallel-track` | drain; begin; then batches on both plans, until the rows stored before have expired;  | never     |
|                  | end                                                                                   |           |
| `backfill`       | drain; begin; then batches as before, and after each a chunk of the stored rows;      | a chunk   |
|                  | drain; end                                                                            |           |
| `just-in-time`   | drain; begin: the new plan runs; then batches, each with a chunk of missing rows; end | a chunk   |

*Draining* is the paper's: owed results are emitted, and all state becomes active.

On a parallel track the new plan starts empty and makes the results of new rows; the old plan makes all others. In a
backfill groups are handed over range by range (`plan/handover.py`), a chunk in every other micro-batch. If rows must be
exchanged, the old plan emits all results until the end, and the new plan's state grows beside it. It takes in arriving
rows, and stored rows, which are fed group by group as if they arrived. Each combination is made when its last row
comes in, so once. Just in time, the new plan emits all results from the beginning, and makes the rows that its
stores lack when they are asked for (`plan/completion.py`). If the new plan shares all its stores, any strategy is one
epoch that touches no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.adaptation.clean_up import BYTES_AT_ONCE, cleaning_orders
from watersmeet.adaptation.migration_choice import is_short, needs_exchange, predicted_s
from watersmeet.epoch.after import plan_as_text
from watersmeet.epoch.kinds import Backfill, Build, Clean, Cleaning, Complete, Epoch, Switch
from watersmeet.epoch.owing import extents_of_stage
from watersmeet.epoch.protocol import ChangeQuery, Migrate, State
from watersmeet.epoch.task import expired
from watersmeet.errors import OptionError, unknown_name
from watersmeet.plan.completion import completed, to_complete
from watersmeet.plan.handover import is_handed_over
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import Built, leaf_stores, pins, rebuild
from watersmeet.plan.transition import feeds_of, in_transition, is_parallel, running_alone, side_by_side
from watersmeet.plan.weights import taken_apart
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import Manifest

MOVING_STATE = "moving-state"
PARALLEL_TRACK = "parallel-track"
BACKFILL = "backfill"
JUST_IN_TIME = "just-in-time"
AUTO = "auto"
STRATEGIES = (AUTO, MOVING_STATE, PARALLEL_TRACK, BACKFILL, JUST_IN_TIME)
ROWS_AT_ONCE = 1_000_000
"""The most stored rows that one epoch of a migration reads, on each slot; `adaptation/pace.py` says how many."""
CHUNKS_MAX = 12
"""The most chunks of a migration: an epoch costs something, however few rows it reads."""
NEVER_ENDS = "a stream without a window keeps its rows for ever, so the old plan would never end"
OTHER_STAGES = "rows would have to be exchanged first"
TAKEN_APART = "stored rows of {} are combined, and not taken apart again"


def strategy_named(name: str) -> str:
    """The strategy of a name, in any case; an unknown one is refused with the nearest."""
    found = name.strip().lower()
    if found not in STRATEGIES:
        raise unknown_name("migration strategy", "strategies", name, STRATEGIES, "UNKNOWN_STRATEGY")
    return found


def unfit_because(plan: JoinPlan, new: JoinPlan, strategy: str, slots: int) -> str | None:
    """Why a strategy cannot lead from one plan to another; None if it can."""
    never_ends = any(layout.span_us is None for layout in leaf_stores(new).values())
    if (streams := _taken_apart(plan, new)) and (never_ends or strategy not in (AUTO, PARALLEL_TRACK)):
        return TAKEN_APART.format(" and ".join(streams))
    if strategy == PARALLEL_TRACK and never_ends:
        return NEVER_ENDS
    if strategy == JUST_IN_TIME:
        return OTHER_STAGES if needs_exchange(plan, new, slots) else None
    return None


def require_fit(plan: JoinPlan, new: JoinPlan, strategy: str, slots: int) -> None:
    if (reason := unfit_because(plan, new, strategy, slots)) is not None:
        hint = f"use {BACKFILL}, which goes on emitting as well, or {MOVING_STATE}"
        if streams := _taken_apart(plan, new):
            is_lasting = unfit_because(plan, new, PARALLEL_TRACK, slots) is not None
            weighted = f"write weighted({streams[0]}) in the plan, which combines no more rows"
            hint = weighted if is_lasting else f"use {PARALLEL_TRACK}"
        raise OptionError(f"strategy {strategy} does not fit: {reason}", hint=hint, error_class="STRATEGY_DOES_NOT_FIT")


def _taken_apart(plan: JoinPlan, new: JoinPlan) -> list[str]:
    return taken_apart(plan.names, plan.trees[0], new.trees[0])


def chosen(
    plan: JoinPlan, last: Manifest, goal: Migrate, batch_s: float | None, *, is_overloaded: bool = False
) -> tuple[str, str]:
    """The strategy of a migration, and its reason. `batch_s` is the CPU time of a micro-batch on a slot; None if it is
    not known."""
    strategy, reason = goal.strategy, goal.reason
    if strategy == AUTO and _taken_apart(plan, goal.plan):
        return PARALLEL_TRACK, reason
    if strategy == AUTO:
        is_exchanged = needs_exchange(plan, goal.plan, last.slots)
        wait_s = predicted_s(plan, last, goal.plan)
        if is_overloaded or batch_s is None or is_short(wait_s, batch_s, is_exchanged=is_exchanged):
            return MOVING_STATE, reason
        return BACKFILL if is_exchanged else JUST_IN_TIME, reason
    if (unfit := unfit_because(plan, goal.plan, strategy, last.slots)) is not None:
        otherwise = PARALLEL_TRACK if _taken_apart(plan, goal.plan) else BACKFILL
        return otherwise, f"{reason}; not {strategy}: {unfit}"
    return strategy, reason


def first_step(
    plan: JoinPlan,
    last: Manifest,
    goal: Migrate,
    *,
    bytes_at_once: int = BYTES_AT_ONCE,
    entry: int | None = None,
    batch_s: float | None = None,
    is_overloaded: bool = False,
) -> Epoch | None:
    """The next epoch on the way to the plan of the goal; None if the query runs by it already, or a migration is under
    way. An entry of a script gets an epoch even then, so that the manifest records it. If the strategy does not fit,
    the migration is a backfill, or on a parallel track if only that leads there; a script or an option that asks for
    what no strategy can do gets an epoch that changes nothing. `batch_s`, `is_overloaded`: see `chosen`."""
    if last.migration is not None or (entry is None and plan_as_text(goal.plan) == last.plan):
        return None
    if _taken_apart(plan, goal.plan) and (unfit := unfit_because(plan, goal.plan, PARALLEL_TRACK, last.slots)):
        return _refused(plan, last, goal, unfit, entry)
    if orders := draining(plan, last, bytes_at_once):
        return Cleaning(orders, goal.reason)
    how = rebuild(plan, goal.plan, last.slots)
    strategy, reason = chosen(plan, last, goal, batch_s, is_overloaded=is_overloaded)
    if strategy == MOVING_STATE or how.is_free:
        return Build(goal.plan, how, strategy, reason, entry, goal.asked)
    return Switch(_begun(plan, last, goal.plan, strategy), "begin", strategy, reason, entry, goal.asked)


def _refused(plan: JoinPlan, last: Manifest, goal: Migrate, unfit: str, entry: int | None) -> Epoch | None:
    """An epoch that changes nothing, so that the manifest records a wish that cannot be carried out; None if nobody
    waits for that."""
    if entry is None and goal.asked is None:
        return None
    how = rebuild(plan, plan, last.slots)
    return Build(plan, how, MOVING_STATE, f"{goal.reason}; refused: {unfit}", entry, goal.asked)


def step_of_change(
    plan: JoinPlan, last: Manifest, goal: ChangeQuery, *, bytes_at_once: int = BYTES_AT_ONCE
) -> Epoch | None:
    """The next epoch on the way to another query; None if it is in force. A migration that is under way is given up,
    and what is owed is emitted by the old query."""
    if plan is goal.new.plan:
        return None
    if last.migration is not None:
        return given_up(plan, last, goal.reason)
    if orders := draining(plan, last, bytes_at_once):
        return Cleaning(orders, goal.reason)
    how = rebuild(plan, goal.new.plan, last.slots, goal.carry(plan))
    return Build(goal.new.plan, how, MOVING_STATE, goal.reason, query=goal.new.query)


def _begun(plan: JoinPlan, last: Manifest, new: JoinPlan, strategy: str) -> JoinPlan:
    match strategy:
        case "parallel-track":
            return side_by_side(plan, new, last.epoch)
        case "just-in-time":
            return to_complete(plan, new)
        case _:
            return in_transition(plan, new)


def next_step(
    plan: JoinPlan, last: Manifest, *, bytes_at_once: int = BYTES_AT_ONCE, rows_at_once: int = ROWS_AT_ONCE
) -> Epoch | None:
    """The next epoch of a migration that is under way; None if it waits for rows to expire."""
    going = last.migration
    assert going is not None
    if is_parallel(plan):
        return _end(plan, last, _all_stores(plan, last.slots)) if expired(going.until_us, last.watermark_us) else None
    if (chunk := next_to_complete(plan, last, rows_at_once)) is not None:
        return Complete(*chunk)
    if plan.since is not None or is_handed_over(plan):
        return Switch(plan.towards or completed(plan), "end", going.strategy, going.reason, asked=going.asked)
    if going.fed < plan.partitions:
        return Backfill(going.fed, _fed_next(plan, last, going.fed, rows_at_once), feeds_of(plan))
    if orders := draining(plan, last, bytes_at_once):
        return Cleaning(orders, going.reason)
    assert plan.towards is not None
    return _end(plan, last, rebuild(running_alone(plan), plan.towards, last.slots).built)


def next_to_complete(plan: JoinPlan, last: Manifest, rows_at_once: int) -> tuple[int, int] | None:
    """The groups to complete or hand over next; None if there are none."""
    going = last.migration
    if going is None or going.fed >= plan.partitions:
        return None
    lacks = plan.since is not None and not expired(going.until_us, last.watermark_us)
    if not lacks and not is_handed_over(plan):
        return None
    return going.fed, _fed_next(plan, last, going.fed, rows_at_once)


def _end(plan: JoinPlan, last: Manifest, built: Built) -> Epoch:
    going, new = last.migration, plan.towards
    assert going is not None
    assert new is not None
    return Switch(new, "end", going.strategy, going.reason, asked=going.asked, built=built)


def _all_stores(plan: JoinPlan, slots: int) -> Built:
    new = plan.towards
    assert new is not None
    stages = range(len(new.stages))
    return tuple(tuple(tuple(range(len(new.layouts(stage, slot)))) for slot in range(slots)) for stage in stages)


def given_up(plan: JoinPlan, last: Manifest, reason: str) -> Epoch | None:
    """The epoch that gives up the current migration and goes on with the old plan; None if there is no migration. If
    the new plan runs already, the stores of the old one are built again."""
    going = last.migration
    if going is None:
        return None
    if plan.since is not None:
        how = rebuild(plan, plan.since, last.slots)
        return Build(plan.since, how, going.strategy, reason, gives_up=True)
    old = running_alone(plan)
    if is_handed_over(plan) and going.fed and plan.towards is not None:
        return Build(old, rebuild(plan.towards, old, last.slots), going.strategy, reason, gives_up=True)
    return Switch(old, "give up", going.strategy, reason)


def _fed_next(plan: JoinPlan, last: Manifest, fed: int, rows_at_once: int) -> int:
    """The group up to which stored rows are read next, so that each slot reads about `rows_at_once` rows."""
    groups = int(rows_at_once / max(1.0, rows_of_group(plan, last)))
    return min(plan.partitions, fed + max(1, plan.partitions // CHUNKS_MAX, groups))


def rows_of_group(plan: JoinPlan, last: Manifest) -> float:
    """The stored rows that a chunk of one group reads, on a slot."""
    slots = range(last.slots)
    stores = [pins(plan, slot) or list(leaf_stores(plan).values()) for slot in slots]
    names = [[layout.name for layout in found] for found in stores]
    return max(sum(extent.rows for extent in last.of(slot, names[slot])) for slot in slots) / plan.partitions


def draining(plan: JoinPlan, last: Manifest, bytes_at_once: int) -> tuple[Clean, ...]:
    """Orders after which no results are owed and all state is active; none if that is already true."""
    if all(extent.is_active for extent in last.all_extents()):
        return ()
    everywhere = range(last.slots)
    if owed := cleaning_orders(plan, last, bytes_at_once=bytes_at_once, kept_slots=everywhere):
        return owed
    found = []
    for stage in range(len(plan.stages)):
        for slot in everywhere:
            owned = Groups.of(last.placement.owners[plan.key_of_stage(stage)], slot)
            if any(not extent.is_active for extent in extents_of_stage(plan, last, stage, slot)):
                found.append(Clean(stage, slot, owned.low, owned.high, keep=True))
    return tuple(found)


def migration_now(state: State, done: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The current migration by the driver's state, or else the event of the last one; None if there is none."""
    goal, running, last = state.goal, state.running, state.last
    if last is not None and (going := last.migration) is not None:
        part = going.fed / last.placement.partitions
        about = {"plan": (last.plan.towards or last.plan).trees, "strategy": going.strategy}
        if last.plan.parallel_since is not None:
            return {"phase": "running side by side", **about}
        return {"phase": "feeding" if part < 1 else "ending", **about, "progress": part}
    if isinstance(running, Build):
        return {"phase": "building", "plan": plan_as_text(running.plan).trees, "strategy": running.strategy}
    if isinstance(goal, Migrate):
        return {"phase": "draining", "plan": plan_as_text(goal.plan).trees, "strategy": goal.strategy}
    return None if done is None else {"phase": "done", **done}
