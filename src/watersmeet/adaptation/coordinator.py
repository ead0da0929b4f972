"""The coordinator: after every epoch it decides what the next one does beside joining (DESIGN 3.10).

It looks at one slot at a time, as the papers' local controllers do: a slot whose active state exceeds its budget
closes groups that the policy chooses; one that has room for all it has closed gets it back, cleaned up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from watersmeet.adaptation.events import Event
from watersmeet.adaptation.ledger import DEFAULT_UPKEEP, GroupLedger
from watersmeet.adaptation.memory_shares import Held, MemoryShares, memory_shares
from watersmeet.adaptation.spilling import SpillDecision, SpillSettings, decide_spill
from watersmeet.engine.task import SlotReport
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import Manifest, Order

ASKED_FOR = "asked for"
STREAM_HAS_ENDED = "the stream has ended"
MEMORY_IS_FREE = "memory has become free"


class Coordinator:
    """Decides for all slots of a query; `spill` is None where nothing is spilled, whatever the budget."""

    def __init__(
        self, plan: JoinPlan, slots: int, budget_bytes: int | None, spill: SpillSettings | None = None
    ) -> None:
        self.plan, self.slots, self.budget, self.spill = plan, slots, budget_bytes, spill
        self.ledger = GroupLedger(plan, DEFAULT_UPKEEP if spill is None else spill.upkeep)
        self.orders: tuple[Order, ...] = ()
        """What the next epoch with rows is to do."""
        self.roomy_slots: frozenset[int] = frozenset()
        """Slots that have room for all they have closed."""
        self.memory = self._shares({})
        self._reasons: dict[Order, str] = {}

    def for_plan(self, plan: JoinPlan) -> Coordinator:
        """A coordinator with the same settings that has seen nothing yet."""
        return Coordinator(plan, self.slots, self.budget, self.spill)

    def note(self, after: Manifest, reports: Sequence[SlotReport], reason: str = ASKED_FOR) -> list[Event]:
        """Take in an epoch that was committed, with the reports of all slots and stages, and decide for the next.

        `reason` is why it carried out orders that were not given here.
        """
        for order in after.ran:
            if order.spill:
                self.ledger.spilled(order.stage, order.spill)
            if order.clean is not None:
                self.ledger.cleaned(order.stage, _owned(after, order).numbers().tolist())
        self.ledger.add(reports)
        events = self._events(after, reports, reason)
        by_slot: dict[int, dict[int, SlotReport]] = defaultdict(dict)
        for report in reports:
            by_slot[report.slot][report.stage] = report
        self.memory = self._shares(by_slot)
        self._decide(after, by_slot)
        return events

    def _decide(self, after: Manifest, by_slot: dict[int, dict[int, SlotReport]]) -> None:
        self.orders, self._reasons, self.roomy_slots = (), {}, frozenset()
        if self.spill is None:
            return
        for slot, reports in sorted(by_slot.items()):
            decision = self._spill(after, slot, reports)
            if decision is not None:
                spills = (Order(stage, slot, spill=groups) for stage, groups in decision.groups.items())
                self._reasons |= dict.fromkeys(spills, decision.reason)
            elif self._has_room(reports):
                self.roomy_slots |= {slot}
                self._reasons |= dict.fromkeys(self._return(after, slot), MEMORY_IS_FREE)
        self.orders = tuple(self._reasons)

    def _spill(self, after: Manifest, slot: int, reports: dict[int, SlotReport]) -> SpillDecision | None:
        """What other stages than those of nodes with a key have cannot be closed; at least half the budget is for
        what can."""
        assert self.spill is not None
        active = {stage: report.counts.get("active_bytes", 0) for stage, report in reports.items()}
        fixed = sum(size for stage, size in active.items() if not self._can_spill(stage))
        budget = max(self.spill.budget_bytes // 2, self.spill.budget_bytes - fixed)
        figures = self.ledger.figures(slot, after.assignment, after.epoch)
        return decide_spill(replace(self.spill, budget_bytes=budget), slot, sum(active.values()) - fixed, figures)

    def _can_spill(self, stage: int) -> bool:
        return stage < len(self.plan.stages) and bool(self.plan.stages[stage].key) and not self.plan.stages[stage].hops

    def _has_room(self, reports: dict[int, SlotReport]) -> bool:
        """Room for everything, and as much besides as one spill makes: or what comes back would soon go again."""
        assert self.spill is not None
        closed = sum(report.counts.get("closed_bytes", 0) for report in reports.values())
        active = sum(report.counts.get("active_bytes", 0) for report in reports.values())
        return closed > 0 and active + closed <= (1 - self.spill.fraction) * self.spill.budget_bytes

    def _return(self, after: Manifest, slot: int) -> tuple[Order, ...]:
        """All closed groups of a slot, lowest stages first as always, are cleaned up and become active."""
        owned = Groups.of(after.assignment, slot)
        for stage in range(len(self.plan.stages)):
            if owned and any(not extent.is_active for extent in after.extents[stage][slot]):
                return (Order(stage, slot, clean=(owned.low, owned.high), keep=True),)
        return ()

    def _shares(self, by_slot: dict[int, dict[int, SlotReport]]) -> MemoryShares | None:
        if self.budget is None:
            return None
        return [memory_shares(self.budget, self._held(by_slot.get(slot, {}))) for slot in range(self.slots)]

    def _held(self, reports: dict[int, SlotReport]) -> list[Held]:
        counts = [reports[stage].counts if stage in reports else {} for stage in range(self.plan.stage_count)]
        return [Held(c.get("memory_bytes", 0), c.get("active_bytes", 0)) for c in counts]

    def _events(self, after: Manifest, reports: Sequence[SlotReport], otherwise: str) -> list[Event]:
        """What the orders that an epoch carried out have changed."""
        counts = {(report.stage, report.slot): report.counts for report in reports}
        events = []
        for order in after.ran:
            told = counts[order.stage, order.slot]
            reason = self._reasons.get(order, otherwise)
            if order.spill:
                details = {"groups": len(order.spill), "bytes": told.get("spilled_bytes", 0), "stage": order.stage}
                events.append(Event(after.epoch, "spill", order.slot, reason, details))
            if order.clean is not None:
                details = {
                    "groups": len(_owned(after, order)),
                    "stage": order.stage,
                    "results": told.get("owed", 0),
                }
                events.append(Event(after.epoch, "cleanUp", order.slot, reason, details))
        return events


def _owned(after: Manifest, order: Order) -> Groups:
    """The groups that an order cleans up: those of its interval that its slot owns."""
    assert order.clean is not None
    return Groups.of(after.assignment, order.slot).within(*order.clean)
