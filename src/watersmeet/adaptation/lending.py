"""Lending: the slots of a host share its memory, before any of them spills (the first resort of R3).

A slot's *account* is the bytes that it may use. The accounts of a host add up to the budgets of its slots, at most:

1. A slot gets what it needs, up to its own budget.
2. The others' slack goes to slots that need more, at one level: small needs are met first, and few slots must spill.
3. What is left is divided equally, for the rows to come.

The host of a slot is that of its last report; a slot that has not run yet neither lends nor borrows. It may run
elsewhere next time. So the cap of a host is kept there (`state/host_cap.py`). It is an equal part of all budgets, by
the most hosts that were seen in one epoch: when a host is lost, the others do not take in its slots' memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watersmeet.epoch.memory_shares import Held, MemoryShares, memory_shares
from watersmeet.epoch.task import SlotReport
from watersmeet.state.measures import ACTIVE_BYTES, CLOSED_BYTES, MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where slots ran last, and the most hosts seen in one epoch."""

    of_slot: tuple[str | None, ...]
    most: int = 1

    def after(self, reports: Sequence[SlotReport]) -> Hosts:
        """As the last report of each slot says."""
        last = {report.slot: report.worker.host for report in reports}
        seen = len({report.worker.host for report in reports})
        known = tuple(last.get(slot, host) for slot, host in enumerate(self.of_slot))
        return Hosts(known, max(self.most, seen))

    def bytes_max(self, budget_bytes: int) -> int:
        """The cap of every host."""
        return budget_bytes * -(-len(self.of_slot) // self.most)

    def neighbours(self) -> Iterable[Sequence[int]]:
        """The slots of each host."""
        found: dict[object, list[int]] = defaultdict(list)
        for slot, host in enumerate(self.of_slot):
            found[slot if host is None else host].append(slot)
        return found.values()


def accounts(budget_bytes: int, hosts: Hosts, needs: Sequence[int]) -> list[int]:
    """By slot: the bytes that it may use, given the bytes that it needs."""
    found = [0] * len(needs)
    for slots in hosts.neighbours():
        own = min(budget_bytes, hosts.bytes_max(budget_bytes) // len(slots))
        for slot, account in zip(slots, lent(own, [needs[slot] for slot in slots]), strict=True):
            found[slot] = account
    return found


def lent(budget_bytes: int, needs: Sequence[int]) -> list[int]:
    """The accounts of the slots of one host."""
    own = [min(need, budget_bytes) for need in needs]
    slack = budget_bytes * len(needs) - sum(own)
    loans = _levelled(slack, [need - mine for need, mine in zip(needs, own, strict=True)])
    rest = (slack - sum(loans)) // len(needs)
    return [mine + loan + rest for mine, loan in zip(own, loans, strict=True)]


def shares(budget_bytes: int, hosts: Hosts, held: Sequence[Sequence[Held]]) -> MemoryShares:
    """The bytes that may be in memory, by slot and stage, and per host."""
    given = accounts(budget_bytes, hosts, [active_bytes(slot) for slot in held])
    found: list[Sequence[int]] = [()] * len(held)
    for slots in hosts.neighbours():
        ours = memory_shares([given[slot] for slot in slots], [held[slot] for slot in slots])
        for slot, mine in zip(slots, ours, strict=True):
            found[slot] = mine
    return MemoryShares(found, hosts.bytes_max(budget_bytes))


def roomy(budget_bytes: int, hosts: Hosts, held: Sequence[Sequence[Held]]) -> frozenset[int]:
    """Slots with closed state for all of which there is room, should all slots have theirs back."""
    closed = [sum(stage.closed_bytes for stage in slot) for slot in held]
    needs = [active_bytes(slot) + more for slot, more in zip(held, closed, strict=True)]
    given = accounts(budget_bytes, hosts, needs)
    return frozenset(slot for slot, need in enumerate(needs) if closed[slot] and need <= given[slot])


def held_by(report: SlotReport) -> Held:
    """The state of a stage on a slot after an epoch."""
    counts = report.counts
    return Held(counts.of(MEMORY_BYTES), counts.of(ACTIVE_BYTES), counts.of(CLOSED_BYTES))


def active_bytes(stages: Sequence[Held]) -> int:
    return sum(stage.active_bytes for stage in stages)


def _levelled(amount: int, wants: Sequence[int]) -> list[int]:
    """An amount divided at one level; nobody gets more than it wants."""
    given = [0] * len(wants)
    for rank, number in enumerate(sorted(range(len(wants)), key=wants.__getitem__)):
        given[number] = min(wants[number], amount // (len(wants) - rank))
        amount -= given[number]
    return given
