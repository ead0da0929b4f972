"""Whether a slot has to spill after an epoch, and which of its groups go (S2, R1).

A pure decision from the bytes of active state and the ledger's figures. The manifest records it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from watersmeet.adaptation.figures import GroupFigures
from watersmeet.adaptation.ledger import DEFAULT_UPKEEP, upkeep_named
from watersmeet.adaptation.spill_policies import Policy, choose
from watersmeet.errors import OptionError
from watersmeet.units import format_bytes

DEFAULT_FRACTION = 0.3
"""The share of active state that one spill removes. Less means more spills, more means less in memory (R1, section
3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillSettings:
    """When a slot spills, how much, and by which policy."""

    policy: Policy
    budget_bytes: int
    """Of active state on one slot."""
    fraction: float = DEFAULT_FRACTION
    upkeep: str = DEFAULT_UPKEEP

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise OptionError(
                f"cannot spill a fraction of {self.fraction}",
                hint="a fraction is more than 0 and at most 1",
                error_class="INVALID_SPILL_FRACTION",
            )
        if self.budget_bytes < 0:
            raise OptionError(f"a memory budget of {self.budget_bytes} bytes is negative")
        upkeep_named(self.upkeep)


@dataclass(frozen=True, slots=True)
class SpillDecision:
    """Groups of one slot that are closed as a generation and leave memory."""

    slot: int
    groups: Mapping[int, tuple[int, ...]]
    """By stage, ascending."""
    bytes: int
    """The bytes of files that this is expected to free."""
    reason: str


def forced_spill(
    settings: SpillSettings, slot: int, active_bytes: int, amount: int, figures: GroupFigures, reason: str
) -> SpillDecision | None:
    """The groups to spill so that about `amount` bytes leave memory, whether it is short or not; None if there is no
    such amount."""
    if not 0 < amount <= active_bytes:
        return None
    asked = replace(settings, budget_bytes=active_bytes - amount, fraction=amount / active_bytes)
    decision = decide_spill(asked, slot, active_bytes, figures)
    return None if decision is None else replace(decision, reason=reason)


def decide_spill(
    settings: SpillSettings, slot: int, active_bytes: int, figures: GroupFigures, lent_bytes: int = 0
) -> SpillDecision | None:
    """The groups to spill when active state, in bytes of its files, exceeds the budget; None if it does not, or if
    nothing can be spilled. `lent_bytes` of the budget are other slots'.

    At least the configured fraction is spilled, and at least the excess. Figures count kept columns only, which are
    fewer bytes than the files, so the amount is a share of both.
    """
    held = float(figures.size.sum())
    if active_bytes <= settings.budget_bytes or held <= 0:
        return None
    to_go = max(settings.fraction * active_bytes, active_bytes - settings.budget_bytes)
    chosen = figures.take(choose(figures, settings.policy, to_go * held / active_bytes))
    freed = round(float(chosen.size.sum()) * active_bytes / held)
    groups = {
        int(stage): tuple(np.sort(chosen.group[chosen.stage == stage]).tolist()) for stage in np.unique(chosen.stage)
    }
    lent = f", {format_bytes(lent_bytes)} of it lent" if lent_bytes > 0 else ""
    reason = (
        f"active state {format_bytes(active_bytes)} over the budget of {format_bytes(settings.budget_bytes)}{lent}: "
        f"{len(chosen)} of {np.count_nonzero(figures.size)} groups ({format_bytes(freed)}) go"
    )
    return SpillDecision(slot, groups, freed, reason)
