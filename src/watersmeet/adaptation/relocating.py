"""When partition groups change slots: a relocation policy, asked after every epoch, with what it must not do (R2-R4).

    epoch ends ─▶ figures of all groups ─▶ policy suggests ─▶ coordinator decides ─▶ moves of the next epoch

Groups rest for `relocationInterval` after a move, and so does the whole query after a relocation. A slot that gives
groups away spills none in that epoch. No group moves while a migration is under way, and none where slots keep stores
of their own. Times are event times, or the driver's clock where rows have none: see `adaptation/memories.py`.
"""

from __future__ import annotations

import numpy as np

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
)
from watersmeet.plan.placement import Move
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import differs_by_slot
from watersmeet.state.manifest import Manifest

OTHER_STORES = "slots keep stores of their own"
UNDER_WAY = "a migration is under way"


def fixed_because(plan: JoinPlan, manifest: Manifest) -> str | None:
    """Why no group can change slots now; None if they can."""
    if manifest.migration is not None:
        return UNDER_WAY
    return OTHER_STORES if differs_by_slot(plan) else None


class Relocator:
    """The relocations of a run: its policy, and when groups moved."""

    def __init__(self, settings: RelocationSettings) -> None:
        self.settings = settings
        self._policy = policy_named(settings.policy)
        self._last_s: float | None = None
        self._moved_s: dict[str, Floats] = {}
        """By key, when every group last moved."""
        self._forced_bytes = 0

    def suggest(self, loads: GroupLoads, at_s: float | None, hosts: int) -> Suggestion:
        """What the policy suggests at a time."""
        interval_s = self.settings.interval_s
        now_s = 0.0 if at_s is None else at_s
        if loads.slots < 2 or not len(loads) or (self._last_s is not None and now_s - self._last_s <= interval_s):
            return NOTHING
        figures = ClusterFigures(loads, self._may_move(loads, now_s), hosts, self._forced_bytes)
        suggested = self._policy(figures, self.settings)
        if suggested.moves or suggested.forced:
            self._last_s = now_s
        for move in suggested.moves:
            self._moved_of(move.key, max(move.groups))[list(move.groups)] = now_s
        self._forced_bytes += sum(suggested.forced.values())
        return suggested

    def _may_move(self, loads: GroupLoads, now_s: float) -> np.typing.NDArray[np.bool_]:
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


def moves_asked(loads: GroupLoads, sender: int, receiver: int, share: float) -> tuple[Move, ...]:
    """The moves that a user asks for: a share of the sender's bytes, but at least one group if it has any."""
    figures = ClusterFigures(loads, np.ones(len(loads), dtype=np.bool_))
    held = float(loads.bytes_by_slot[sender])
    if moves := moves_of_share(figures, sender, receiver, share * held):
        return moves
    mine = np.flatnonzero((loads.slot == sender) & (loads.bytes > 0))
    new = loads.slot.copy()
    new[mine[np.argsort(loads.bytes[mine], kind="stable")[:1]]] = receiver
    return moves_to(loads, new)
