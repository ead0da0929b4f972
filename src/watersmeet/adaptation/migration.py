"""Migration: what brings the running query nearer to another plan (M1; dissertation 12.1).

`moving-state`: results that generations owe are emitted first, which is the paper's draining of queues, and all state
becomes active. Then one epoch without rows builds what the new plan lacks. Rows wait from the first to the last of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.adaptation.clean_up import BYTES_AT_ONCE, cleaning_orders
from watersmeet.epoch.after import words_of
from watersmeet.epoch.kinds import Build, Clean, Cleaning, Epoch
from watersmeet.epoch.owing import extents_of_stage
from watersmeet.epoch.protocol import Migrate, State
from watersmeet.errors import unknown_name
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import rebuild
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import Manifest

MOVING_STATE = "moving-state"
AUTO = "auto"
STRATEGIES = (AUTO, MOVING_STATE)


def strategy_named(name: str) -> str:
    """The strategy of a name, in any case; an unknown one is refused with the nearest."""
    found = name.strip().lower()
    if found not in STRATEGIES:
        raise unknown_name("migration strategy", "strategies", name, STRATEGIES, "UNKNOWN_STRATEGY")
    return MOVING_STATE if found == AUTO else found


def next_step(
    plan: JoinPlan, last: Manifest, goal: Migrate, *, bytes_at_once: int = BYTES_AT_ONCE, entry: int | None = None
) -> Epoch | None:
    """The next epoch on the way to the plan of the goal; None when the query runs by it. An entry of a script is
    carried out in any case, so that the manifest says so."""
    if entry is None and words_of(goal.plan) == last.plan:
        return None
    orders = _draining(plan, last, bytes_at_once)
    if orders:
        return Cleaning(orders, goal.reason)
    return Build(goal.plan, rebuild(plan, goal.plan, last.slots), goal.strategy, goal.reason, entry, goal.asked)


def _draining(plan: JoinPlan, last: Manifest, bytes_at_once: int) -> tuple[Clean, ...]:
    """Orders after which nothing is owed and everything is active; none if that is so."""
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
    """The migration that a driver is carrying out, or the event of the last one; None if there is none."""
    goal, running = state.goal, state.running
    if isinstance(running, Build):
        return {"phase": "building", "plan": words_of(running.plan).trees, "strategy": running.strategy}
    if isinstance(goal, Migrate):
        return {"phase": "draining", "plan": words_of(goal.plan).trees, "strategy": goal.strategy}
    return None if done is None else {"phase": "done", **done}
