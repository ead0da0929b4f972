"""How a slot's memory budget is shared by the stages that run on it, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MemoryShares = Sequence[Sequence[int]]
"""By slot and stage: bytes that may be in memory when the epoch ends."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a stage has on one slot: bytes in memory, bytes that are active, in memory or not, and bytes of closed
    generations."""

    resident_bytes: int = 0
    active_bytes: int = 0
    closed_bytes: int = 0


def memory_shares(budget_bytes: int, stages: Sequence[Held]) -> list[int]:
    """What each stage may have in memory when the next epoch ends.

    Stages settle their memory at different times, so a share grows by what is free now and never by what another stage
    is about to give up: the sum of what is there and of all shares stays within the budget at any moment.
    """
    free = max(0, budget_bytes - sum(stage.resident_bytes for stage in stages))
    weights = [1 + stage.active_bytes for stage in stages]
    total = sum(weights)
    return [stage.resident_bytes + free * weight // total for stage, weight in zip(stages, weights, strict=True)]
