"""The engine without Spark: the same `step`, commit protocol and checkpoint, in a loop, for tests and simulation.

State is in files as on Spark. To simulate a crash, abandon a runner and make a new one on the same folder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet.adaptation.clean_up import BYTES_AT_ONCE
from watersmeet.adaptation.coordinator import ASKED_FOR
from watersmeet.adaptation.migration import AUTO, strategy_named
from watersmeet.epoch import protocol
from watersmeet.epoch.after import Clock, initial_manifest, left_over, manifest_after, plan_from_text, resumed
from watersmeet.epoch.driving import Drive, handlers_of
from watersmeet.epoch.events import Event
from watersmeet.epoch.kinds import Build, Order, Switch, has_rows, plan_after, plan_run, query_after
from watersmeet.epoch.migrating import ready_to_run
from watersmeet.epoch.task import SlotReport
from watersmeet.epoch.tasks import feeds_in, tasks_of
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.placement import Move
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.inprocess_attempts import Attempts
from watersmeet.runtime.inprocess_frames import outcome_of, require_no_spark
from watersmeet.runtime.inprocess_log import BatchLog, LogInFiles, LogInMemory
from watersmeet.runtime.inprocess_slots import Setup, Slots, was_migrated
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.host_sweep import Drops, sweep_host
from watersmeet.state.manifest import Manifest
from watersmeet.state.outbox import remove_results
from watersmeet.state.private_folder import opened_or_made


class InProcessQuery:
    """A query over `folder`, fed batch by batch; it continues from the last manifest found there."""

    def __init__(self, query: JoinQuery, folder: Path, **setup: Any) -> None:
        """`setup` are fields of `Setup`."""
        self.query, self.setup = query, (given := Setup(**setup))
        trees = tuple(given.trees) or (default_tree(query),)
        self.plan = plan_join(query, trees, given.partitions, given.mode, given.orders)
        require_no_spark(query, self.plan)
        self.checkpoint = Checkpoint(folder)
        known = self.checkpoint.plan()
        if known is not None and was_migrated(known, self.plan):
            self.plan = plan_from_text(query, known, given.partitions, given.mode)
        self.slots = Slots(query, self.plan, self.checkpoint, given)
        self.coordinator = given.coordinator(self.plan)
        self.log: BatchLog = LogInFiles(self.checkpoint.spark_log) if given.keeps_log else LogInMemory()
        self.attempts = Attempts(self.checkpoint, given.cut)
        self.events: Sequence[Event] = ()
        """The events of the last epoch."""
        self._clean: dict[str, Any] = {}
        self._epochs_left: int | None = None
        self._batch: Mapping[str, pa.Table] = {}
        self._clock, self._drops = Clock(), Drops()
        self._started_ms: int | None = None
        self._reports: Sequence[SlotReport] = ()
        self._emitted: pa.Table | None = None
        self._shown: list[pa.Table] = []
        self._dealt: tuple[Manifest | None, Manifest] | None = None
        self._changing: Build | Switch | None = None
        self._unnamed: set[str] = set()
        """Segments of the last epoch that its manifest does not name: their groups were handed over at once."""
        self.drive = Drive(handlers_of(self))
        last = self.checkpoint.latest(self.plan)
        is_acknowledged = last is not None and self.checkpoint.is_acknowledged(last.epoch)
        self._start = protocol.Started(last, is_acknowledged, self.checkpoint.spark_log.end(last))

    @property
    def manifest(self) -> Manifest:
        """The state, distributed over the slots of this run."""
        return self._before(self.drive.state.last or self._start.last)

    def order(self, orders: Sequence[Order], moves: Sequence[Move] = ()) -> None:
        """Set the orders and moves of the next epoch with rows, in place of the coordinator's."""
        self.coordinator.orders = tuple(orders) or self.coordinator.orders
        self.coordinator.moves = tuple(moves) or self.coordinator.moves

    def recover(self) -> None:
        """Send the results that an earlier run did not send, and take over. The first batch does this by itself."""
        deque(self.recovery(), maxlen=0)

    def recovery(self) -> Iterator[protocol.Command]:
        """The steps of `recover`; none if it was done."""
        return self.drive.steps(self._start) if self.drive.state == protocol.State() else iter(())

    def run(self, batch: Mapping[str, pa.Table], *, now_ms: int = 0, idle_timeout_ms: int | None = None) -> pa.Table:
        """Run one epoch over the rows of a batch, commit it, close all windows that have ended, and return the results.
        The run starts with the first batch.

        With aggregates the results are rows of groups, before HAVING and the select list, which Spark evaluates.
        """
        last = self.drive.state.last or self._start.last
        number = 0 if last is None or last.batch is None else last.batch + 1
        self._started_ms = now_ms if self._started_ms is None else self._started_ms
        deque(self.steps(number, batch, Clock(now_ms, idle_timeout_ms, self._started_ms)), maxlen=0)
        return self.take_shown()

    def steps(self, number: int, batch: Mapping[str, pa.Table], clock: Clock) -> Iterator[protocol.Command]:
        """The steps of a batch, with Spark's batch number, from recovery on."""
        yield from self.recovery()
        self._batch, self._clock, self.attempts.lost = batch, clock, []
        self.log.plan(number)
        yield from self.drive.steps(protocol.BatchCame(number, *self.log.around(number)))
        self.log.commit(number)

    def clean_up(self, **how: Any) -> Iterator[pa.Table]:
        """Emit all owed results, an epoch at a time; `how` as for `cleaning`."""
        for command in self.cleaning(**how):
            if isinstance(command, protocol.Decide) and self._shown:
                yield self.take_shown()
        if self._shown:
            yield self.take_shown()

    def cleaning(
        self,
        *,
        bytes_at_once: int = BYTES_AT_ONCE,
        kept_slots: Container[int] | None = None,
        epochs_max: int | None = None,
    ) -> Iterator[protocol.Command]:
        """The steps of a clean-up, from recovery on, with a maximum number of epochs."""
        yield from self.recovery()
        self._clean = {"bytes_at_once": bytes_at_once, "kept_slots": kept_slots}
        self._epochs_left = epochs_max
        yield from self.drive.steps(protocol.AdaptationAsked(protocol.CleanUp(ASKED_FOR)))
        self._epochs_left = None

    def migrating(self, plan: JoinPlan, strategy: str = AUTO) -> Iterator[protocol.Command]:
        """The steps of a migration to another plan, from recovery on."""
        return self.pursuing(protocol.Migrate(plan, strategy_named(strategy), ASKED_FOR))

    def aborting(self) -> Iterator[protocol.Command]:
        """The steps that abort a migration, from recovery on."""
        return self.pursuing(protocol.Abort(ASKED_FOR))

    def pursuing(self, goal: protocol.Asked) -> Iterator[protocol.Command]:
        """The steps to another plan, query or placement, from recovery on."""
        yield from self.recovery()
        yield from self.drive.steps(protocol.AdaptationAsked(goal))

    def resting(self) -> Iterator[protocol.Command]:
        """The steps while sources are silent, from recovery on."""
        yield from self.recovery()
        yield from self.drive.steps(protocol.SourcesSilent())

    def take_shown(self) -> pa.Table:
        """The results sent since the last call."""
        shown, self._shown = self._shown, []
        return pa.concat_tables(shown or [self.slots.nothing_shown()])

    def _before(self, last: Manifest | None) -> Manifest:
        if self._dealt is not None and self._dealt[0] is last:
            return self._dealt[1]
        manifest = initial_manifest(self.plan, self.setup.slots) if last is None else last
        given = self.setup.placement if last is None or last is self._start.last else None
        self._dealt = last, resumed(self.plan, manifest, given or self.coordinator.placement)
        return self._dealt[1]

    # The handlers of commands

    def _decide(self, command: protocol.Decide) -> protocol.Event:
        if self._epochs_left == 0:
            self._epochs_left = None
            return protocol.Decided(None)
        self._epochs_left = None if self._epochs_left is None else self._epochs_left - 1
        last = None if command.last is None else self._before(command.last)
        return protocol.Decided(self.coordinator.next_epoch(last, command.goal, **self._clean))

    def _run(self, command: protocol.Run) -> protocol.Event:
        epoch, before = command.epoch, self._before(command.before)
        self._changing = epoch if isinstance(epoch, Build | Switch) else None
        plan, after_plan = plan_run(self.plan, epoch), plan_after(self.plan, epoch)
        query = query_after(self.query, epoch)
        slots = self.slots if plan is self.plan else Slots(query, plan, self.checkpoint, self.setup)
        before = ready_to_run(before, self.plan, epoch)
        if not self.checkpoint.is_prepared:
            self.checkpoint.prepare()
        for memory in self.setup.memories:
            if self._drops.recent.get(before.epoch, True) or not memory.exists():
                self._sweep_memory(memory, before)
        tasks = tasks_of(plan, before, epoch, self.coordinator.memory_for(epoch), self.coordinator.sketches)
        batch = self._batch if has_rows(epoch) else {}
        self._emitted, reports = self.attempts.run(
            lambda cut: slots.run(before, tasks, batch, cut, feeds_in(epoch)), has_tasks=bool(tasks)
        )
        outcome, place = outcome_of(query, plan, reports, batch), self.setup.results_in
        self._reports, self.events = reports, self.coordinator.events(epoch, before, reports)
        after = manifest_after(after_plan, before, epoch, outcome, self._clock, events=self.events, results_in=place)
        remove_results(self.slots.results, left_over(outcome, after))
        self._unnamed = outcome.segments - after.segments.keys()
        return protocol.JobDone(after)

    def _sweep_memory(self, memory: Path, before: Manifest) -> None:
        if (folder := opened_or_made(memory)) is not None:
            sweep_host(folder, before.epoch, lambda: self._drops.recent, lambda: before.segments)

    def _commit(self, command: protocol.Commit) -> protocol.Event:
        if not self.checkpoint.commit(command.manifest):
            return protocol.Fenced()
        if self._changing is not None:
            self._adopt(self._changing)
        return protocol.Committed()

    def _adopt(self, epoch: Build | Switch) -> None:
        """Continue with the plan that an epoch left."""
        self.coordinator = self.coordinator.migrated(epoch, self.manifest)
        self.plan, self.query, self._dealt = epoch.plan, query_after(self.query, epoch), None
        self.slots = Slots(self.query, self.plan, self.checkpoint, self.setup)

    def _send(self, command: protocol.Send) -> protocol.Event:
        if command.manifest.outbox.shows:
            shown = self.slots.shown(command.manifest, self._emitted)
            if self.setup.parts is not None:
                self.setup.parts.add(command.manifest.epoch, command.manifest.outbox.files)
            if self.setup.sink is not None:
                self.setup.sink(command.manifest.epoch, shown)
            self._shown.append(shown)
        self._emitted = None
        return protocol.Sent()

    def _acknowledge(self, command: protocol.Acknowledge) -> protocol.Event:
        self.checkpoint.acknowledge(command.epoch)
        return protocol.Acknowledged()

    def _discard(self, command: protocol.Discard) -> None:
        self.checkpoint.discard(command.older, command.newer, self._unnamed)
        older = {} if command.older is None else command.older.segments
        self._drops.note(command.newer.epoch, (older.keys() | self._unnamed) - command.newer.segments.keys())

    def _look(self, _: protocol.Look) -> protocol.Event:
        return protocol.Looked(self.checkpoint.files())

    def _sweep(self, command: protocol.Sweep) -> None:
        self.checkpoint.sweep(command.live, command.seen)

    def _tell(self, command: protocol.Tell) -> None:
        self.coordinator.note(command.epoch, command.manifest, self._reports)
        self._reports = ()
