"""The coordinator: after every epoch it decides what the next one does besides joining (DESIGN 3.10).

It looks at one slot at a time, as the papers' local controllers do. A slot whose active state exceeds its budget, and
what slots of its host can lend it (`lending.py`), closes groups that the policy chooses. If a slot has room for all its
closed groups, they are cleaned up and become active.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from watersmeet.adaptation.adaptation_events import ASKED_FOR as ASKED_FOR
from watersmeet.adaptation.adaptation_events import move_events, order_events, owned, plan_events
from watersmeet.adaptation.clean_up import BYTES_AT_ONCE, cleaning_orders, returning
from watersmeet.adaptation.dealing import dealt
from watersmeet.adaptation.group_loads import GroupLoads, Prices
from watersmeet.adaptation.ledger import DEFAULT_UPKEEP, GroupLedger
from watersmeet.adaptation.lending import Hosts, accounts, active_bytes, held_by, roomy, shares
from watersmeet.adaptation.memories import Memories, data_time_s
from watersmeet.adaptation.migration import (
    ROWS_AT_ONCE,
    first_step,
    given_up,
    next_step,
    next_to_complete,
    rows_of_group,
    step_of_change,
)
from watersmeet.adaptation.pace import Pace
from watersmeet.adaptation.rehearsal import due
from watersmeet.adaptation.relocating import Relocator, fixed_because, moves_wanted, on_slots
from watersmeet.adaptation.relocation_policies import NOTHING, Suggestion
from watersmeet.adaptation.reoptimizer import Reoptimizing
from watersmeet.adaptation.slot_count import step_to_slots
from watersmeet.adaptation.spilling import SpillDecision, SpillSettings, decide_spill, forced_spill
from watersmeet.adaptation.wishes import NO_WISHES, Wishes
from watersmeet.epoch.events import Event
from watersmeet.epoch.key_sketch import KeyClasses
from watersmeet.epoch.kinds import (
    Backfill,
    Batch,
    Build,
    Clean,
    Cleaning,
    Closing,
    Complete,
    Epoch,
    Order,
    Spill,
    Switch,
    chunk_of,
    has_rows,
    moves_of,
    orders_of,
)
from watersmeet.epoch.memory_shares import Held, MemoryShares, no_memory, shares_in
from watersmeet.epoch.protocol import Abort, ChangeQuery, CleanUp, Goal, JoinBatch, Migrate, Relocate, Rest, SpillShare
from watersmeet.epoch.relocation import bound_by_key, fitting
from watersmeet.epoch.task import SlotReport
from watersmeet.epoch.tasks import windows_to_close
from watersmeet.plan.placement import Move, Placement, still_due
from watersmeet.plan.spillable import can_spill
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest, moved
from watersmeet.state.requests import APPROVE

MOVING_MARK = b"moving"
"""In the metadata of the statistics table: moving values, and what the optimiser has chosen."""
STREAM_HAS_ENDED = "the stream has ended"
MEMORY_IS_FREE = "memory has become free"
NO_SPILLS = "option spill is off, or there is no memory budget"


class Coordinator:
    """Decides for all slots of a query; if `spill` is None, nothing is spilled, whatever the budget."""

    def __init__(
        self,
        plan: JoinPlan,
        slots: int,
        budget_bytes: int | None,
        spill: SpillSettings | None = None,
        wishes: Wishes = NO_WISHES,
        reoptimizer: Reoptimizing | None = None,
        memories: Memories | None = None,
        relocator: Relocator | None = None,
    ) -> None:
        """Without `reoptimizer`, plans change only as wished. `memories` are for progress; a `reoptimizer` adds to
        them. Without `relocator`, groups change slots only as asked for."""
        self.reoptimizer, self.memories, self.relocator = reoptimizer, memories, relocator
        self.plan, self.slots, self.budget, self.spill, self.wishes = plan, slots, budget_bytes, spill, wishes
        self.ledger = GroupLedger(plan, DEFAULT_UPKEEP if spill is None else spill.upkeep)
        self.orders: tuple[Order, ...] = ()
        """The orders of the next epoch with rows."""
        self.moves: tuple[Move, ...] = ()
        """The moves of the next epoch with rows."""
        self._why_moved = ""
        self._carried_out: Goal | None = None
        self.roomy_slots: frozenset[int] = frozenset()
        """Slots with room for all their closed groups."""
        self._held = [[Held()] * plan.stage_count for _ in range(slots)]
        self.hosts = Hosts((None,) * slots)
        self.memory = self._shares()
        self._reasons: dict[Order, str] = {}
        self.pace = Pace(ROWS_AT_ONCE)
        self._has_fed = False
        """Whether a chunk was done since the last batch, or waits for the next, or a migration has just begun."""
        self._has_turn = False
        """Whether the next batch merges state. Every other one does, those between them have a chunk."""

    def expect_hosts(self, count: int) -> None:
        """Note how many hosts there are, before any slot has told."""
        self.hosts = replace(self.hosts, most=count)
        self.memory = self._shares()

    def for_plan(self, plan: JoinPlan) -> Coordinator:
        """A coordinator with the same settings, without any statistics."""
        found = Coordinator(
            plan, self.slots, self.budget, self.spill, self.wishes, self.reoptimizer, self.memories, self.relocator
        )
        found._fit(len(self._held), self.hosts)
        return found

    def placement(self, manifest: Manifest) -> Placement:
        """Where the groups of a state are in this run, which may have another number of slots."""
        if manifest.slots == self.slots:
            return manifest.placement
        return on_slots(manifest.placement, self._loads(manifest), self.slots)

    def migrated(self, epoch: Build | Switch, before: Manifest) -> Coordinator:
        """A coordinator for the plan after an epoch, with the group statistics so far. Memory still holds state of the
        previous plan: nothing is added until the first epoch has reported the resident bytes."""
        found = self.for_plan(epoch.plan)
        found.ledger.restore(self.ledger.table(before.placement))
        found.pace, found._has_fed = self.pace, self._has_fed or isinstance(epoch, Switch)
        if found.memory is not None:
            found.memory = no_memory(epoch.plan, found.memory)
        return found

    @property
    def sketches(self) -> tuple[KeyClasses, ...]:
        """The key classes of which the next epoch sketches arriving rows."""
        return () if self.reoptimizer is None else self.reoptimizer.sketched

    def table(self, placement: Placement) -> pa.Table:
        """All statistics that outlive the run: partition groups as rows, moving values as metadata."""
        table = self.ledger.table(placement)
        keeper = self.reoptimizer or self.memories
        if keeper is None:
            return table
        value = json.dumps(keeper.to_value()).encode()
        return table.replace_schema_metadata({**(table.schema.metadata or {}), MOVING_MARK: value})

    def restore(self, table: pa.Table) -> None:
        """Continue from the statistics of an earlier run. Those that cannot be read are ignored."""
        self.ledger.restore(table)
        value = (table.schema.metadata or {}).get(MOVING_MARK)
        keeper = self.reoptimizer or self.memories
        if keeper is not None and value is not None:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                keeper.restore(json.loads(value))

    @property
    def is_fallback(self) -> bool:
        """Whether the running plan is the fallback, until one is chosen."""
        return self.reoptimizer is not None and self.reoptimizer.is_fallback

    @property
    def better_plan(self) -> tuple[JoinPlan, str] | None:
        """A plan that was found better than the running one, and the reason of the decision."""
        return None if self.reoptimizer is None else self.reoptimizer.other_plan()

    def note_request(self, request: str) -> None:
        """Heed a request from another process."""
        if request == APPROVE and self.reoptimizer is not None:
            self.reoptimizer.approve()

    def memory_for(self, epoch: Epoch) -> MemoryShares | None:
        """The bytes that stages may have in memory when the epoch ends."""
        return shares_in(epoch, self.plan, self.memory)

    def next_epoch(
        self,
        last: Manifest | None,
        goal: Goal,
        *,
        bytes_at_once: int = BYTES_AT_ONCE,
        kept_slots: Container[int] | None = None,
    ) -> Epoch | None:
        """The epoch to run next; None if the goal is reached. A waiting batch comes first, then windows that can be
        closed."""
        if last is not None:
            self._fit(last.slots)
        if isinstance(goal, JoinBatch):
            due = None if last is None else next_to_complete(self.plan, last, self.pace.rows)
            chunk = None if self._has_turn else due
            self._has_fed, self._has_turn = due is not None, chunk is not None
            return Batch(goal.number, self.orders, goal.offsets, chunk, self._moves_now(last))
        if last is None:
            return None
        if (until_us := windows_to_close(self.plan, last)) is not None:
            return Closing(until_us)
        if last.slots != self.slots and last.migration is None:
            return step_to_slots(self.plan, last, self.placement(last), bytes_at_once)
        match goal:
            case Rest(is_silent):
                return self._due(last, bytes_at_once, is_silent=is_silent)
            case CleanUp(reason):
                return self._clean_up(last, reason, bytes_at_once, kept_slots)
            case Migrate():
                return self._first_step(last, goal, bytes_at_once)
            case ChangeQuery():
                return step_of_change(self.plan, last, goal, bytes_at_once=bytes_at_once)
            case Relocate() | SpillShare():
                is_done, self._carried_out = self._carried_out is goal, goal
                return None if is_done else self._asked(last, goal, None)
            case Abort(reason):
                return given_up(self.plan, last, reason)

    def _clean_up(
        self,
        last: Manifest,
        reason: str,
        bytes_at_once: int,
        kept_slots: Container[int] | None,
        entry: int | None = None,
    ) -> Epoch | None:
        """The next epoch of a clean-up, with its work dealt out over all slots. An entry of a script ends with one that
        only records it."""
        moves = () if self.relocator is None else dealt(self.plan, last, self.relocator.settings.dealt_bytes_min)
        kept = self.roomy_slots if kept_slots is None else kept_slots
        orders = cleaning_orders(self.plan, moved(last, moves), bytes_at_once=bytes_at_once, kept_slots=kept)
        if not orders:
            return None if entry is None else Cleaning((), reason, (), entry)
        return Cleaning(orders, reason, moves)

    def _asked(self, last: Manifest, goal: Relocate | SpillShare, entry: int | None) -> Cleaning | None:
        """The epoch that carries out what a user or a script asks for; if that is impossible, one that only records the
        entry. An entry waits until the sizes of groups are known."""
        if entry is not None and not len(self._loads(last)):
            return None
        orders: tuple[Order, ...] = ()
        moves: tuple[Move, ...] = ()
        if isinstance(goal, Relocate):
            moves, why = moves_wanted(self.plan, last, self._loads(last), goal)
        else:
            active = active_bytes(self._held[goal.slot]) if goal.slot < last.slots else 0
            why = NO_SPILLS if self.spill is None else None
            decision = None if why else self._forced(last, goal.slot, int(goal.share * active), goal.reason)
            found = {} if decision is None else decision.groups
            orders = tuple(Spill(stage, goal.slot, groups) for stage, groups in found.items())
        if not orders and not moves and entry is None:
            return None
        return Cleaning(orders, goal.reason if why is None else f"{goal.reason}; refused: {why}", moves, entry)

    def _moves_now(self, last: Manifest | None) -> tuple[Move, ...]:
        """The moves that still fit: another driver may have moved groups, and groups do not move in a migration."""
        if not self.moves or last is None or last.migration is not None:
            return ()
        return fitting(self.plan, last, still_due(self.moves, last.placement))

    def _fit(self, slots: int, hosts: Hosts | None = None) -> None:
        """Note how many slots the state has: with stores of their own, they keep their number for a while."""
        if slots != len(self._held) or hosts is not None:
            self._held = [[Held()] * self.plan.stage_count for _ in range(slots)]
            self.hosts = hosts or Hosts((None,) * slots, self.hosts.most)
            self.memory = self._shares()

    def _due(self, last: Manifest, bytes_at_once: int, *, is_silent: bool) -> Epoch | None:
        """The next step of a migration: one that is under way, one that is wanted, or a rehearsal that is due."""
        if last.migration is not None:
            step = next_step(self.plan, last, bytes_at_once=bytes_at_once, rows_at_once=self.pace.rows)
            has_waited = isinstance(step, Complete | Backfill) and self._has_fed
            if has_waited and not is_silent:
                return None
            self._has_fed = True
            return step
        wanted = self.wishes.wanted
        if wanted is not None and last.asked != wanted.asked:
            return self._first_step(last, wanted, bytes_at_once)
        if (found := due(self.wishes.script, last)) is not None:
            number, entry = found
            match entry.goal:
                case Migrate():
                    return self._first_step(last, entry.goal, bytes_at_once, number)
                case CleanUp(reason):
                    return self._clean_up(last, reason, bytes_at_once, None, number)
                case goal:
                    return self._asked(last, goal, number)
        if self.reoptimizer is not None and (wish := self.reoptimizer.wish()) is not None:
            return self._first_step(last, wish, bytes_at_once)
        return None

    def _first_step(self, last: Manifest, goal: Migrate, bytes_at_once: int, entry: int | None = None) -> Epoch | None:
        pace = self.pace
        return first_step(
            self.plan,
            last,
            goal,
            bytes_at_once=bytes_at_once,
            entry=entry,
            batch_s=pace.batch_s,
            is_overloaded=pace.is_overloaded,
        )

    def note(self, epoch: Epoch, after: Manifest, reports: Sequence[SlotReport]) -> None:
        """Note a committed epoch, with the reports of the slots and stages that ran, and decide for the next."""
        for order in orders_of(epoch):
            match order:
                case Spill(stage, _, groups):
                    self.ledger.spilled(stage, groups)
                case Clean(stage, slot, low, high):
                    cleaned = owned(self.plan, after, stage, slot).within(low, high)
                    self.ledger.cleaned(stage, cleaned.numbers().tolist())
        if self.reoptimizer is not None:
            self.reoptimizer.note(epoch, self.plan, after, reports)
        elif self.memories is not None:
            self.memories.note(epoch, after, reports)
        self._fit(after.slots)
        if not reports:
            return
        self.ledger.moved(moves_of(epoch))
        self.ledger.add(reports, with_rows=has_rows(epoch))
        if has_rows(epoch):
            self.pace.note_batch(reports, self.slots, after.watermark_us, is_usual=after.migration is None)
        if (chunk := chunk_of(epoch)) is not None:
            rows = rows_of_group(self.plan, after) * (chunk[1] - chunk[0])
            self.pace.note_chunk(rows, reports, self.slots)
        for report in reports:
            self._held[report.slot][report.stage] = held_by(report)
        self.hosts = self.hosts.after(reports)
        self.memory = self._shares()
        self._decide(after)

    def events(self, epoch: Epoch, before: Manifest, reports: Sequence[SlotReport]) -> list[Event]:
        """The changes that an epoch made to the state `before`: a new plan, if any, moves, and orders carried out."""
        events = plan_events(self.plan, epoch, before, reports)
        if self.reoptimizer is not None:
            told = [replace(e, details={**e.details, **self.reoptimizer.predicted(e.reason)}) for e in events]
            events = [*self.reoptimizer.events(before.epoch + 1), *told]
        moves = move_events(epoch, before, self._loads(before), self._why_moved) if moves_of(epoch) else []
        return [*events, *moves, *order_events(self.plan, epoch, before, reports, self._reasons)]

    def _decide(self, after: Manifest) -> None:
        self.orders, self.moves, self._reasons, self.roomy_slots = (), (), {}, frozenset()
        suggested = self._suggested(after)
        self.moves, self._why_moved = suggested.moves, suggested.reason
        if self.spill is None:
            return
        budget = self.spill.budget_bytes
        given = accounts(budget, self.hosts, [active_bytes(held) for held in self._held])
        # Room for all state, plus the room that one spill makes. With less, groups would soon be spilled again.
        with_room = roomy(int((1 - self.spill.fraction) * budget), self.hosts, self._held)
        senders = {move.sender for move in self.moves}
        for slot, held in enumerate(self._held):
            decision = None if slot in senders else self._spill(after, slot, held, given[slot])
            if decision is None and slot in suggested.forced:
                decision = self._forced(after, slot, suggested.forced[slot], suggested.reason)
            if decision is not None:
                spills = (Spill(stage, slot, groups) for stage, groups in decision.groups.items())
                self._reasons |= dict.fromkeys(spills, decision.reason)
            elif slot in with_room:
                self.roomy_slots |= {slot}
                self._reasons |= dict.fromkeys(returning(self.plan, after, slot), MEMORY_IS_FREE)
        self.orders = tuple(self._reasons)

    def _suggested(self, after: Manifest) -> Suggestion:
        if self.relocator is None or self.slots < 2 or fixed_because(after) is not None:
            return NOTHING
        loads, bound = self._loads(after), bound_by_key(self.plan, after)
        return self.relocator.suggest(loads, data_time_s(after), self.hosts.most, bound)

    def _loads(self, manifest: Manifest) -> GroupLoads:
        return self.ledger.loads(manifest.placement, Prices.of(manifest.totals))

    def _forced(self, after: Manifest, slot: int, amount: int, reason: str) -> SpillDecision | None:
        """A spill of so many bytes, whether memory is short or not."""
        assert self.spill is not None
        figures = self.ledger.figures(slot, after.placement, after.epoch)
        return forced_spill(self.spill, slot, active_bytes(self._held[slot]), amount, figures, reason)

    def _spill(self, after: Manifest, slot: int, held: Sequence[Held], account: int) -> SpillDecision | None:
        """At least half the account is for stages that can spill, however much state the others have."""
        assert self.spill is not None
        fixed = sum(here.active_bytes for stage, here in enumerate(held) if not can_spill(self.plan, stage))
        budget, active = max(account // 2, account - fixed), active_bytes(held) - fixed
        if active <= budget:
            return None
        settings, lent = replace(self.spill, budget_bytes=budget), account - self.spill.budget_bytes
        return decide_spill(settings, slot, active, self.ledger.figures(slot, after.placement, after.epoch), lent)

    def _shares(self) -> MemoryShares | None:
        """All slots together have the budgets of as many as the run has, even while the state has more."""
        slots = max(self.slots, len(self._held))
        return None if self.budget is None else shares(self.budget * self.slots // slots, self.hosts, self._held)
