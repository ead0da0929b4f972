"""Partition groups that change slots, also between slots of different shapes (MSLB, moving-state load balancing; D2;
dissertation 22).

State is matched by the names of stores, as in a migration (`plan/state_matching.py`):

| store                    | its rows of a group that moves                                                         |
|--------------------------|----------------------------------------------------------------------------------------|
| both slots have it       | move: their extents are cut, and no row is touched                                     |
| only the sender has it   | are dropped                                                                            |
| only the receiver has it | are made by the receiver, before it joins the epoch's rows (`engine/moved_groups.py`)  |

A group can go to other stores if all its rows are active, and if no node below its stage owes results. Then every row
that a future result may contain is in a store of the stage's inputs, which all slots have. A group that owes results
can go to equal stores only.

Deviation: of the ten steps of the text, four are left. At the end of an epoch nothing is in flight, so no rows are
buffered, and no time is agreed on (SyncTime).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from watersmeet.epoch.frontiers import debts
from watersmeet.epoch.owing import extents_of_stage
from watersmeet.plan.layout import StoreName
from watersmeet.plan.placement import Move, Placement
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import shape_count, store_names, stores_by_slot
from watersmeet.plan.tree import streams_of
from watersmeet.state.groups import NO_GROUPS, Groups
from watersmeet.state.manifest import Manifest, moved

Lacks: TypeAlias = Mapping[int, Mapping[StoreName, Groups]]
"""By slot and store: the groups whose rows are to be made."""


def relocated(manifest: Manifest, plan: JoinPlan, moves: tuple[Move, ...], slots: int | None = None) -> Manifest:
    """The state after some moves, perhaps to another number of slots, without the stores that receivers do not have; no
    file is touched. ValueError if the moves do not fit."""
    for move, fit in zip(moves, _fitting(plan, manifest, moves), strict=True):
        if fit != move:
            raise ValueError(f"not all its groups can go to slots with other stores: {move}")
    if slots is not None:
        manifest = _with_slots(manifest, max(slots, manifest.slots))
    if moves:
        manifest = moved(manifest, moves)
        names = [store_names(plan, slot) for slot in range(shape_count(plan))]
        kept = (
            {name: mine for name, mine in state.items() if name in names[slot % len(names)]}
            for slot, state in enumerate(manifest.extents)
        )
        manifest = replace(manifest, extents=tuple(kept))
    return manifest if slots is None else _with_slots(manifest, slots)


def fitting(plan: JoinPlan, manifest: Manifest, moves: Iterable[Move]) -> tuple[Move, ...]:
    """The moves without groups that cannot go to slots with other stores now."""
    return tuple(move for move in _fitting(plan, manifest, moves) if move.groups)


def moves_between(before: Placement, after: Placement) -> tuple[Move, ...]:
    """The moves from one placement to another of the same keys."""
    going: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for key, owners in before.owners.items():
        for group, (sender, receiver) in enumerate(zip(owners, after.owners[key], strict=True)):
            if sender != receiver:
                going[key, sender, receiver].append(group)
    return tuple(Move(*place, tuple(groups)) for place, groups in going.items())


def bound_groups(plan: JoinPlan, manifest: Manifest, key: str) -> Groups:
    """The groups of a key that cannot go to slots with other stores: their rows are closed, a node below owes them
    results, or their stores belong to a migration."""
    if manifest.migration is not None:
        return Groups.between(0, plan.partitions)
    if all(extent.is_active for extent in manifest.all_extents()):
        return NO_GROUPS
    found, owed = NO_GROUPS, debts(plan, manifest)
    for number, stage in enumerate(plan.stages):
        if stage.key_text != key:
            continue
        inside = streams_of(stage.node)
        if any(debt.stage != number and debt.streams < inside for debt in owed):
            return Groups.between(0, plan.partitions)
        for slot in range(manifest.slots):
            for extent in extents_of_stage(plan, manifest, number, slot):
                found = found if extent.is_active else found | extent.groups
    return found


def bound_by_key(plan: JoinPlan, manifest: Manifest) -> dict[str, Groups]:
    """The groups that cannot go to slots with other stores, of every key under which slots have other stores."""
    keys = (key for key in manifest.placement.owners if len(set(stores_by_slot(plan, key))) > 1)
    return {key: bound_groups(plan, manifest, key) for key in keys}


def bound_between(plan: JoinPlan, manifest: Manifest, sender: int, receiver: int) -> dict[str, Groups]:
    """By key, the groups that cannot go from one slot to another."""
    return {
        key: groups for key, groups in bound_by_key(plan, manifest).items() if not _alike(plan, key, sender, receiver)
    }


def alike_slots(plan: JoinPlan, key: str, slots: int) -> list[list[int]]:
    """The slots in lists of slots that have the same stores under a key."""
    stores = stores_by_slot(plan, key)
    found: dict[frozenset[StoreName], list[int]] = defaultdict(list)
    for slot in range(slots):
        found[stores[slot % len(stores)]].append(slot)
    return list(found.values())


def lacking_groups(plan: JoinPlan, moves: Iterable[Move]) -> Lacks:
    """What the receivers of some moves must make."""
    found: dict[int, dict[StoreName, Groups]] = defaultdict(dict)
    by_key: dict[str, list[frozenset[StoreName]]] = {}
    for move in moves:
        stores = by_key.get(move.key) or by_key.setdefault(move.key, stores_by_slot(plan, move.key))
        if len(set(stores)) < 2:
            continue
        held, wanted = (stores[slot % len(stores)] for slot in (move.sender, move.receiver))
        going = Groups.of_numbers(move.groups)
        before, after = found[move.sender], found[move.receiver]
        for name in sorted(wanted):
            # A group may have come to the sender by an earlier move of the same epoch.
            if lacking := going & before.get(name, NO_GROUPS) if name in held else going:
                after[name] = after.get(name, NO_GROUPS) | lacking
        for name in held & before.keys():
            before[name] -= going
    return found


def unused(manifest: Manifest) -> frozenset[str]:
    """The segments that no slot needs any more after moves: those of stores that no receiver has."""
    return frozenset(manifest.segments) - {extent.segment for extent in manifest.all_extents()}


def _fitting(plan: JoinPlan, manifest: Manifest, moves: Iterable[Move]) -> list[Move]:
    bound = bound_by_key(plan, manifest)
    found = []
    for move in moves:
        stays = bound.get(move.key, NO_GROUPS)
        if stays and not _alike(plan, move.key, move.sender, move.receiver):
            move = replace(move, groups=tuple(group for group in move.groups if group not in stays))
        found.append(move)
    return found


def _alike(plan: JoinPlan, key: str, one: int, other: int) -> bool:
    stores = stores_by_slot(plan, key)
    return stores[one % len(stores)] == stores[other % len(stores)]


def _with_slots(manifest: Manifest, slots: int) -> Manifest:
    """The same state with more slots, which have nothing, or without slots that have nothing."""
    assert not any(manifest.extents[slots:])
    extents = (*manifest.extents, *({} for _ in range(manifest.slots, slots)))[:slots]
    return replace(manifest, placement=Placement(slots, manifest.placement.owners), extents=extents)
