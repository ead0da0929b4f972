"""Migration: the epochs that lead a running query to another plan (M1; dissertation 12.1; and backfill, ours).

| strategy       | epochs                                                                                  | rows wait |
|----------------|-----------------------------------------------------------------------------------------|-----------|
| `moving-state` | drain; one build of all that the new plan lacks                                         | all along |
| `backfill`     | drain; begin; then batches as before, and after each a chunk of the stored rows; drain; | a chunk   |
|                | end                                                                                     |           |

*Draining* is the paper's: owed results are emitted, and all state becomes active. In a backfill the running plan emits
all results until the end. The new plan's state grows beside it and emits nothing. It takes in arriving rows, and stored
rows, which are fed group by group as if they arrived. Each combination is made when its last row comes in, so once. If
the new plan shares all its stores, any strategy is one epoch that touches no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.adaptation.clean_up import BYTES_AT_ONCE, cleaning_orders
from watersmeet.epoch.after import words_of
from watersmeet.epoch.kinds import Backfill, Build, Clean, Cleaning, Epoch, Switch
from watersmeet.epoch.owing import extents_of_stage
from watersmeet.epoch.protocol import Migrate, State
from watersmeet.errors import unknown_name
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import pinned_stores, rebuild
from watersmeet.plan.transition import feeds_of, in_transition, running_alone
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import Manifest

MOVING_STATE = "moving-state"
BACKFILL = "backfill"
AUTO = "auto"
STRATEGIES = (AUTO, MOVING_STATE, BACKFILL)
ROWS_AT_ONCE = 60_000
"""The stored rows that one epoch of a backfill feeds, on each slot."""


def strategy_named(name: str) -> str:
    """The strategy of a name, in any case; an unknown one is refused with the nearest."""
    found = name.strip().lower()
    if found not in STRATEGIES:
        raise unknown_name("migration strategy", "strategies", name, STRATEGIES, "UNKNOWN_STRATEGY")
    return MOVING_STATE if found == AUTO else found


def first_step(
    plan: JoinPlan, last: Manifest, goal: Migrate, *, bytes_at_once: int = BYTES_AT_ONCE, entry: int | None = None
) -> Epoch | None:
    """The next epoch on the way to the plan of the goal; None if the query runs by it already, or a migration is under
    way. An entry of a script gets an epoch even then, so that the manifest records it."""
    if last.migration is not None or (entry is None and words_of(goal.plan) == last.plan):
        return None
    if orders := _draining(plan, last, bytes_at_once):
        return Cleaning(orders, goal.reason)
    how = rebuild(plan, goal.plan, last.slots)
    if goal.strategy == MOVING_STATE or how.is_free:
        return Build(goal.plan, how, goal.strategy, goal.reason, entry, goal.asked)
    return Switch(in_transition(plan, goal.plan), "begin", goal.strategy, goal.reason, entry, goal.asked)


def next_step(
    plan: JoinPlan, last: Manifest, *, bytes_at_once: int = BYTES_AT_ONCE, rows_at_once: int = ROWS_AT_ONCE
) -> Epoch:
    """The next epoch of a migration that is under way."""
    going, new = last.migration, plan.towards
    assert going is not None
    assert new is not None
    if going.fed < plan.partitions:
        return Backfill(going.fed, _fed_next(plan, last, going.fed, rows_at_once), feeds_of(plan))
    if orders := _draining(plan, last, bytes_at_once):
        return Cleaning(orders, going.reason)
    how = rebuild(running_alone(plan), new, last.slots)
    return Switch(new, "end", going.strategy, going.reason, asked=going.asked, built=how.built)


def given_up(plan: JoinPlan, last: Manifest, reason: str) -> Epoch | None:
    """The epoch that gives up the current migration and keeps the running plan; None if there is no migration."""
    if last.migration is None:
        return None
    return Switch(running_alone(plan), "give up", last.migration.strategy, reason)


def _fed_next(plan: JoinPlan, last: Manifest, fed: int, rows_at_once: int) -> int:
    """The group up to which stored rows are fed next, so that each slot feeds about `rows_at_once` rows."""
    pinned = [layout.name for layout in pinned_stores(plan).values()]
    rows = max(sum(extent.rows for extent in last.of(slot, pinned)) for slot in range(last.slots))
    groups = plan.partitions * rows_at_once // max(1, rows)
    return min(plan.partitions, fed + max(1, groups))


def _draining(plan: JoinPlan, last: Manifest, bytes_at_once: int) -> tuple[Clean, ...]:
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
    if last is not None and last.migration is not None and last.plan.towards is not None:
        part = last.migration.fed / last.placement.partitions
        about = {"plan": last.plan.towards.trees, "strategy": last.migration.strategy, "progress": part}
        return {"phase": "feeding" if part < 1 else "ending", **about}
    if isinstance(running, Build):
        return {"phase": "building", "plan": words_of(running.plan).trees, "strategy": running.strategy}
    if isinstance(goal, Migrate):
        return {"phase": "draining", "plan": words_of(goal.plan).trees, "strategy": goal.strategy}
    return None if done is None else {"phase": "done", **done}
