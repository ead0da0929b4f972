"""How the slots of a host, and the stages of each slot, share its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.epoch.kinds import Build, Cleaning, Epoch
from watersmeet.plan.stages import JoinPlan


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """The bytes that may be in memory when the epoch ends."""

    by_slot: Sequence[Sequence[int]]
    """By slot and stage."""
    host_bytes: int
    """On any host, at any moment: slots may change hosts (`state/host_cap.py`)."""


@dataclass(frozen=True, slots=True)
class Held:
    """The state of a stage on one slot: bytes in memory, bytes of active state (in memory or not), and bytes of closed
    generations."""

    resident_bytes: int = 0
    active_bytes: int = 0
    closed_bytes: int = 0


def shares_in(epoch: Epoch, plan: JoinPlan, memory: MemoryShares | None) -> MemoryShares | None:
    """The bytes in memory when an epoch ends. A build gets none: the state of the old plan stays in memory until the
    epoch after it. So does the state of slots whose number changes."""
    match epoch:
        case Build(new) if memory is not None:
            return no_memory(new, memory)
        case Cleaning(slots=int(slots)) if memory is not None:
            return no_memory(plan, memory, slots)
    return memory


def no_memory(plan: JoinPlan, memory: MemoryShares, slots: int | None = None) -> MemoryShares:
    """No byte for any slot, perhaps of another number of slots."""
    return replace(memory, by_slot=[[0] * plan.stage_count] * (len(memory.by_slot) if slots is None else slots))


def memory_shares(accounts: Sequence[int], held: Sequence[Sequence[Held]]) -> list[list[int]]:
    """The bytes that each stage of the slots of a host may have in memory when the next epoch ends, given the bytes
    that each slot may have.

    Slots and stages fill and free memory at different times. So shares grow only by memory that is free now, never by
    memory that another stage is about to free. The bytes in memory stay within the sum of the accounts at any moment.
    A slot that has more than its account, because another one needs what it has lent, gives memory back.
    """
    resident = [sum(stage.resident_bytes for stage in slot) for slot in held]
    free = max(0, sum(accounts) - sum(resident))
    wanted = [max(0, account - has) for account, has in zip(accounts, resident, strict=True)]
    most = max(1, sum(wanted))
    return [
        _given_back(account, slot) if account < has else _grown(free * more // most, slot)
        for account, has, more, slot in zip(accounts, resident, wanted, held, strict=True)
    ]


def _grown(free: int, stages: Sequence[Held]) -> list[int]:
    """What is free goes to the stages with most active state."""
    weights = [1 + stage.active_bytes for stage in stages]
    total = sum(weights)
    return [stage.resident_bytes + free * weight // total for stage, weight in zip(stages, weights, strict=True)]


def _given_back(account: int, stages: Sequence[Held]) -> list[int]:
    resident = sum(stage.resident_bytes for stage in stages)
    return [stage.resident_bytes * account // resident for stage in stages]
