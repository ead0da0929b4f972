"""How the stages of a slot, which run one after the other, share its memory budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MemoryShares = Sequence[Sequence[int]]
"""By slot and stage: bytes that may be in memory when the epoch ends."""


@dataclass(frozen=True, slots=True)
class Held:
    """The state of a stage on one slot: bytes in memory, bytes of active state (in memory or not), and bytes of closed
    generations."""

    resident_bytes: int = 0
    active_bytes: int = 0
    closed_bytes: int = 0


def memory_shares(budget_bytes: int, stages: Sequence[Held]) -> list[int]:
    """The bytes that each stage may have in memory when the next epoch ends.

    Stages fill and free memory at different times. So a share grows only by memory that is free now, never by memory
    that another stage is about to free. The bytes in memory stay within the budget at any moment.
    """
    free = max(0, budget_bytes - sum(stage.resident_bytes for stage in stages))
    weights = [1 + stage.active_bytes for stage in stages]
    total = sum(weights)
    return [stage.resident_bytes + free * weight // total for stage, weight in zip(stages, weights, strict=True)]
