"""When partition groups change slots: a relocation policy, asked after every epoch, with what it must not do (R2-R4).

    epoch ends ─▶ figures of all groups ─▶ policy suggests ─▶ coordinator decides ─▶ moves of the next epoch

Groups rest for `relocationInterval` after a move, and so does the whole query after a relocation. A slot that gives
groups away spills none in that epoch. No group moves while a migration is under way. Where slots have stores of their
own, groups that owe results or are closed stay (`epoch/relocation.py`). Times are event times, or the driver's clock
where rows have none: see `adaptation/memories.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from watersmeet.adaptation.evening import reassigned
from watersmeet.adaptation.figures import Floats
from watersmeet.adaptation.group_loads import GroupLoads
from watersmeet.adaptation.relocation_policies import (
    NOTHING,
    ClusterFigures,
    RelocationSettings,
    Suggestion,
    moves_of_share,
    moves_to,
    policy_named,
    share_of,
)
from watersmeet.epoch.goals import Relocate
from watersmeet.epoch.relocation import bound_between
from watersmeet.plan.placement import Move, Placement
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import NO_GROUPS, Groups
from watersmeet.state.manifest import Manifest

Bound: TypeAlias = Mapping[str, Groups]
"""By key, groups that cannot change slots now."""
NOTHING_BOUND: Bound = {}
UNDER_WAY = "a migration is under way"
BOUND = "groups that owe results go to slots with the same stores only"
COUNT_WEIGHT = 0.2
"""The weight of the number of groups on another number of slots, where memory and CPU time have 1 each. If nothing is
known of groups, their number decides."""


def fixed_because(manifest: Manifest) -> str | None:
    """Why no group can change slots now; None if they can."""
    return None if manifest.migration is None else UNDER_WAY


def on_slots(placement: Placement, loads: GroupLoads, slots: int) -> Placement:
    """The placement on another number of slots: few bytes move, and memory, CPU time and number of groups are even."""
    if placement.slots == slots:
        return placement
    owners = {}
    for key, mine in placement.owners.items():
        size, load = np.zeros(len(mine)), np.full(len(mine), COUNT_WEIGHT / len(mine))
        if key in loads.keys:
            here = loads.take(np.flatnonzero(loads.key == loads.keys.index(key)))
            size[here.group] = here.bytes
            load[here.group] += share_of(here.bytes) + share_of(here.cpu_ns)
        found = reassigned(np.array(mine, dtype=np.int64), load, size, slots)
        owners[key] = tuple(found.tolist())
    return Placement(slots, owners)


class Relocator:
    """The relocations of a run: its policy, and when groups moved."""

    def __init__(self, settings: RelocationSettings) -> None:
        self.settings = settings
        self._policy = policy_named(settings.policy)
        self._last_s: float | None = None
        self._moved_s: dict[str, Floats] = {}
        """By key, when every group last moved."""
        self._forced_bytes = 0

    def suggest(self, loads: GroupLoads, at_s: float | None, hosts: int, bound: Bound = NOTHING_BOUND) -> Suggestion:
        """What the policy suggests at a time. `bound` groups stay."""
        interval_s = self.settings.interval_s
        now_s = 0.0 if at_s is None else at_s
        if loads.slots < 2 or not len(loads) or (self._last_s is not None and now_s - self._last_s <= interval_s):
            return NOTHING
        figures = ClusterFigures(loads, self._rested(loads, now_s) & _unbound(loads, bound), hosts, self._forced_bytes)
        suggested = self._policy(figures, self.settings)
        if suggested.moves or suggested.forced:
            self._last_s = now_s
        for move in suggested.moves:
            self._moved_of(move.key, max(move.groups))[list(move.groups)] = now_s
        self._forced_bytes += sum(suggested.forced.values())
        return suggested

    def _rested(self, loads: GroupLoads, now_s: float) -> np.typing.NDArray[np.bool_]:
        found = np.ones(len(loads), dtype=np.bool_)
        for number, key in enumerate(loads.keys):
            here = loads.key == number
            if groups := loads.group[here].max(initial=-1) + 1:
                moved_s = self._moved_of(key, groups - 1)[loads.group[here]]
                found[here] = now_s - moved_s > self.settings.interval_s
        return found

    def _moved_of(self, key: str, group: int) -> Floats:
        """When the groups of a key last moved, up to a group at least."""
        known = self._moved_s.get(key, np.zeros(0))
        if len(known) <= group:
            known = np.append(known, np.full(group + 1 - len(known), -np.inf))
            self._moved_s[key] = known
        return known


def _unbound(loads: GroupLoads, bound: Bound) -> np.typing.NDArray[np.bool_]:
    found = np.ones(len(loads), dtype=np.bool_)
    for number, key in enumerate(loads.keys):
        if groups := bound.get(key, NO_GROUPS):
            here = loads.key == number
            size = max(groups.high, 1 + int(loads.group[here].max(initial=-1)))
            found[here] = ~groups.mask(size)[loads.group[here]]
    return found


def moves_wanted(
    plan: JoinPlan, last: Manifest, loads: GroupLoads, goal: Relocate
) -> tuple[tuple[Move, ...], str | None]:
    """The moves of a relocation that a user or a script asks for; if there are none, the reason, if one is known."""
    if (fixed := fixed_because(last)) is not None:
        return (), fixed
    bound = bound_between(plan, last, goal.sender, goal.receiver)
    moves = moves_asked(loads, goal.sender, goal.receiver, goal.share, bound)
    is_bound = any(groups & Groups.of(last.placement.owners[key], goal.sender) for key, groups in bound.items())
    return moves, BOUND if is_bound and not moves else None


def moves_asked(
    loads: GroupLoads, sender: int, receiver: int, share: float, bound: Bound = NOTHING_BOUND
) -> tuple[Move, ...]:
    """The moves that a user asks for: a share of the sender's bytes, but at least one group if it has any that is not
    bound."""
    figures = ClusterFigures(loads, _unbound(loads, bound))
    held = float(loads.bytes_by_slot[sender])
    if moves := moves_of_share(figures, sender, receiver, share * held):
        return moves
    mine = np.flatnonzero((loads.slot == sender) & (loads.bytes > 0) & figures.may_move)
    new = loads.slot.copy()
    new[mine[np.argsort(loads.bytes[mine], kind="stable")[:1]]] = receiver
    return moves_to(loads, new)
