"""The events of an epoch: what it changed in the state before it, with the reason and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.adaptation.group_loads import GroupLoads
from watersmeet.adaptation.migration_choice import predicted_s
from watersmeet.epoch.after import plan_as_text
from watersmeet.epoch.events import Event
from watersmeet.epoch.kinds import Build, Clean, Cleaning, Epoch, Order, Spill, Switch, moves_of, orders_of
from watersmeet.epoch.task import SlotReport
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import BEFORE_FIRST_EPOCH, Manifest
from watersmeet.state.measures import BUILD_NS, BUILT_ROWS, OWED, SPILLED_BYTES

ASKED_FOR = "asked for"
DEALT_OUT = "what is owed is dealt out over all slots"


def plan_events(plan: JoinPlan, epoch: Epoch, before: Manifest, reports: Sequence[SlotReport]) -> list[Event]:
    """A migration that begins, ends or is given up; or a plan, perhaps only its probe orders, that differs from that of
    the state."""
    if isinstance(epoch, Build | Switch):
        return [_migrated(plan, epoch, before, reports)]
    now, then = plan_as_text(plan), before.plan
    if before.epoch == BEFORE_FIRST_EPOCH or now == then:
        return []
    what = "probe orders" if now.trees == then.trees else "plan"
    details = {"plan": now.trees, "orders": now.orders, "previousPlan": then.trees, "previousOrders": then.orders}
    return [Event(before.epoch + 1, "plan", None, f"started with other {what} than before", details)]


def order_events(
    plan: JoinPlan, epoch: Epoch, before: Manifest, reports: Sequence[SlotReport], reasons: Mapping[Order, str]
) -> list[Event]:
    """The orders that slots have carried out."""
    number, events = before.epoch + 1, []
    counts = {(report.stage, report.slot): report.counts for report in reports}
    otherwise = epoch.reason if isinstance(epoch, Cleaning) else ASKED_FOR
    for order in orders_of(epoch):
        told = counts[order.stage, order.slot]
        reason = reasons.get(order, otherwise)
        match order:
            case Spill(stage, slot, groups):
                details = {"groups": len(groups), "bytes": told.of(SPILLED_BYTES), "stage": stage}
                events.append(Event(number, "spill", slot, reason, details))
            case Clean(stage, slot, low, high):
                cleaned = owned(plan, before, stage, slot).within(low, high)
                details = {"groups": len(cleaned), "stage": stage, "results": told.of(OWED)}
                events.append(Event(number, "cleanUp", slot, reason, details))
    if isinstance(epoch, Cleaning) and epoch.entry is not None and not epoch.orders and not epoch.moves:
        events.append(Event(number, "rehearsal", None, epoch.reason, {"entry": epoch.entry}))
    return events


def move_events(epoch: Epoch, before: Manifest, loads: GroupLoads, reason: str) -> list[Event]:
    """The moves of groups. If they have bytes in use, with those of both slots before and after all moves. `before` has
    the groups where the moves have brought them, and so have the loads. One event if the number of slots changes."""
    moves = moves_of(epoch)
    if isinstance(epoch, Cleaning) and epoch.slots is not None:
        now = {"slots": epoch.slots, "groups": sum(len(move.groups) for move in moves)}
        return [Event(before.epoch + 1, "slots", None, epoch.reason, now)]
    if not moves:
        return []
    came = {(move.key, group): move for move in moves for group in move.groups}
    units = [(loads.keys[key], group) for key, group in zip(loads.key.tolist(), loads.group.tolist(), strict=True)]
    sizes = loads.bytes.tolist()
    after = [0.0] * loads.slots
    then = [0.0] * loads.slots
    moved = dict.fromkeys(moves, 0.0)
    for unit, slot, size in zip(units, loads.slot.tolist(), sizes, strict=True):
        after[slot] += size
        move = came.get(unit)
        then[slot if move is None else move.sender] += size
        if move is not None:
            moved[move] += size
    why = reason or ASKED_FOR
    if isinstance(epoch, Cleaning):
        why = f"{epoch.reason}; {DEALT_OUT}" if epoch.orders else epoch.reason
    events = []
    for move in moves:
        details: dict[str, Any] = {"to": move.receiver, "key": move.key, "groups": len(move.groups)}
        if any(moved.values()):
            ends = (move.sender, move.receiver)
            before_after = {"bytesBefore": [int(then[s]) for s in ends], "bytesAfter": [int(after[s]) for s in ends]}
            details |= {"bytes": int(moved[move]), **before_after}
        events.append(Event(before.epoch + 1, "relocate", move.sender, why, details))
    return events


def owned(plan: JoinPlan, manifest: Manifest, stage: int, slot: int) -> Groups:
    """The groups of a slot in a stage."""
    return Groups.of(manifest.placement.owners[plan.key_of_stage(stage)], slot)


def _migrated(plan: JoinPlan, epoch: Build | Switch, before: Manifest, reports: Sequence[SlotReport]) -> Event:
    kind = "migrate"
    if isinstance(epoch, Switch) and epoch.move == "begin":
        kind = "migrationBegun"
    elif epoch.gives_up:
        kind = "migrationGivenUp"
    now, then = plan_as_text(epoch.plan), before.plan
    now, then = now.towards or now, then.since or then
    details: dict[str, Any] = {
        "plan": now.trees,
        "orders": now.orders,
        "previousPlan": then.trees,
        "previousOrders": then.orders,
        "strategy": epoch.strategy,
    }
    is_change = isinstance(epoch, Build) and epoch.query is not None
    kind = "changeQuery" if is_change else kind
    if not epoch.gives_up and not is_change and not (isinstance(epoch, Switch) and epoch.move == "end"):
        details["predictedMs"] = round(predicted_s(plan, before, epoch.plan.towards or epoch.plan) * 1e3, 3)
    if isinstance(epoch, Build):
        details["builtRows"] = sum(report.counts.of(BUILT_ROWS) for report in reports)
        details["buildMs"] = sum(report.counts.of(BUILD_NS) for report in reports) // 1_000_000
    return Event(before.epoch + 1, kind, None, epoch.reason, details)
