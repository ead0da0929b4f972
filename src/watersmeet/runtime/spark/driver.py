"""The driver on Spark: an interpreter of the commit protocol (`epoch/protocol.py`), with one handler per command.

Spark hands over micro-batches (`run_batch` is its foreachBatch function); the handle requests clean-ups. Only one of
them drives at a time. A Python foreachBatch may still be running after `stop()` (SPARK-39218): the protocol is stopped
before its next command, and the exclusive creation of the manifest fences a late driver.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.epoch import protocol
from watersmeet.epoch.after import Clock, initial_manifest, left_over, manifest_after, resumed
from watersmeet.epoch.driving import Drive, handlers_of
from watersmeet.epoch.events import Event
from watersmeet.epoch.kinds import Build, Switch, changes_query, has_rows, plan_after, plan_run
from watersmeet.epoch.migrating import ready_to_run
from watersmeet.errors import FencedError, WatersmeetError
from watersmeet.failpoints import failpoint
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.spark.epoch_record import EpochRecord
from watersmeet.runtime.spark.job import JobSetting, Work, run_epoch
from watersmeet.runtime.spark.outside import Outside, Stopped, cancellable, clone_of, plain_errors
from watersmeet.runtime.spark.progress import Ran, Times
from watersmeet.runtime.spark.results import delivery
from watersmeet.state.host_sweep import Drops
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import RESULTS
from watersmeet.state.outbox import remove_results

Choose = Callable[[DataFrame], tuple[JoinPlan, Event]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class EpochDriver:
    """Runs the epochs of one query on an acquired checkpoint."""

    def __init__(
        self, plan: JoinPlan, outside: Outside, coordinator: Coordinator, choose: Choose | None = None
    ) -> None:
        """With `choose`, the plan is chosen by the first micro-batch; `plan` is the fallback until then."""
        self.plan, self.coordinator = plan, coordinator
        self._outside, self._choose = outside, choose
        self.gate = threading.RLock()
        """Held while epochs run."""
        self.is_stopped = self._is_cleaning = False
        self._tag = f"watersmeet-{uuid.uuid4().hex}"
        self._clone: SparkSession | None = None
        self._batch: DataFrame | None = None
        self._started_ms = now_ms()
        self._drops = Drops()
        if (kept := outside.checkpoint.read_statistics()) is not None:
            coordinator.restore(kept)
        self._begin()

    def _begin(self) -> None:
        """Read the durable state; `recover` continues from it."""
        checkpoint = self._outside.checkpoint
        self._cause: Exception | None = None
        self._record = EpochRecord(self._outside)
        self._unreported: list[Event] = []
        self._changing: Build | Switch | None = None
        self._unnamed: set[str] = set()
        """Segments of the last epoch that its manifest does not name: their groups were handed over at once."""
        last = checkpoint.latest(self.plan)
        is_acknowledged = last is not None and checkpoint.is_acknowledged(last.epoch)
        self._start = protocol.Started(last, is_acknowledged, checkpoint.spark_log.end(last))
        self._drive = Drive(handlers_of(self), lambda: self.is_stopped)

    @property
    def failure(self) -> WatersmeetError | None:
        """The error that ended the driver, if it is a WatersmeetError."""
        return self._cause if isinstance(self._cause, WatersmeetError) else None

    @property
    def state(self) -> protocol.State:
        return self._drive.state

    def group_table(self) -> pa.Table:
        return self.coordinator.ledger.table(self._before(self._drive.state.last or self._start.last).placement)

    def recover(self) -> None:
        """Send the results that an earlier run did not send, and take over; once per run."""
        with self.gate:
            if self._drive.state == protocol.State():
                if (last := self._start.last) is not None:
                    self._outside.checkpoint.events.restore(last.epoch, last.events)
                self._play(self._start)

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """The foreachBatch function."""
        with self.gate:
            self._clone = batch.sparkSession
            self.recover()
            self._batch = batch
            self._outside.checkpoint.spark_log_sync.begin_sync()
            try:
                self._play(protocol.BatchCame(batch_id, *self._outside.checkpoint.spark_log.around(batch_id)))
            finally:
                self._batch = None

    def clean_up(self, reason: str) -> int:
        """Emit all owed results, an epoch at a time, and return their number.

        Raises Stopped when the query is stopped meanwhile; the remaining results stay owed. After any other failure
        the query continues from the durable state, as after a crash.
        """
        return self.adapt(protocol.CleanUp(reason))

    def adapt(self, goal: protocol.Asked) -> int:
        """Reach a goal, and return the number of results emitted meanwhile. Raises as `clean_up`."""
        return self._between_batches(protocol.AdaptationAsked(goal))

    def _between_batches(self, asked: protocol.Event) -> int:
        with self.gate, cancellable(self._outside.session, self._tag):
            self._is_cleaning = True
            try:
                self.recover()
                before = self._results_so_far()
                self._play(asked)
                return self._results_so_far() - before
            except FencedError:
                raise
            except Exception as error:
                if self.is_stopped:
                    raise Stopped() from error
                self._begin()
                raise
            finally:
                self._is_cleaning = False

    def refuse_further_batches(self) -> None:
        """Start no more batches, stop the running one before its next step, and stop a clean-up at once."""
        self.is_stopped = True
        if self._is_cleaning:
            self._outside.session.sparkContext.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        """Wait for the running batch, and give up the checkpoint."""
        self.is_stopped = True
        with self.gate:
            self._outside.checkpoint.release()

    def _play(self, event: protocol.Event) -> None:
        """Carry out commands until none is left. After a failure, every later call raises that failure."""
        if self.is_stopped or self._drive.state.is_closed:
            raise self._cause or Stopped()
        try:
            with plain_errors():
                self._drive.play(event)
        except Exception as error:
            self._cause = None if self.is_stopped else error
            raise
        if self.is_stopped or self._drive.state.is_closed:
            raise Stopped()

    def _results_so_far(self) -> int:
        last = self._drive.state.last
        return 0 if last is None else last.counters.of(RESULTS)

    # The handlers of commands

    def _decide(self, command: protocol.Decide) -> protocol.Event:
        if isinstance(command.goal, protocol.JoinBatch) and self._choose is not None and command.last is None:
            assert self._batch is not None
            self.plan, event = self._choose(self._batch)
            self.coordinator = self.coordinator.for_plan(self.plan)
            self._unreported = [event]
        last = None if command.last is None else self._before(command.last)
        return protocol.Decided(self.coordinator.next_epoch(last, command.goal))

    def _run(self, command: protocol.Run) -> protocol.Event:
        started, outside, epoch = time.monotonic(), self._outside, command.epoch
        before, plan = self._before(command.before), plan_after(self.plan, epoch)
        self._changing = epoch if isinstance(epoch, Build | Switch) else None
        before = ready_to_run(before, self.plan, epoch)
        memory, sketches = self.coordinator.memory_for(epoch), self.coordinator.sketches
        work = Work(epoch, before, memory, self._drops.recent, sketches)
        rows = self._batch if has_rows(epoch) else self._rowless
        assert rows is not None
        outcome = run_epoch(JobSetting(plan_run(self.plan, epoch), outside.results, outside.folders), work, rows)
        failpoint("after-job")
        events = [*self._unreported, *self.coordinator.events(epoch, before, outcome.reports)]
        clock = Clock(now_ms(), outside.idle_timeout_ms, self._started_ms)
        after = manifest_after(plan, before, epoch, outcome, clock, events=events, results_in=outside.results.place)
        remove_results(outside.results.folder, left_over(outcome, after))
        self._unnamed = outcome.segments - after.segments.keys()
        self._record.ran = Ran(epoch, before, outcome, events, Times(started, time.monotonic()))
        return protocol.JobDone(after)

    def _commit(self, command: protocol.Commit) -> protocol.Event:
        is_ours = self._outside.checkpoint.commit(command.manifest, changes_query=changes_query(self._changing))
        if is_ours and self._changing is not None:
            self.coordinator = self.coordinator.migrated(self._changing, self._before(self._drive.state.last))
            self.plan = self._changing.plan
        self._record.note_time("committed")
        return protocol.Committed() if is_ours else protocol.Fenced()

    def _send(self, command: protocol.Send) -> protocol.Event:
        failpoint("before-sink")
        is_recovery, results = self._record.ran is None, self._outside.results
        self._outside.sink.deliver(
            delivery(results, self.plan, command.manifest, self._rowless, is_recovery=is_recovery)
        )
        failpoint("after-sink")
        if is_recovery:
            self._outside.note_resent(command.manifest)
        self._record.note_time("sent")
        return protocol.Sent()

    def _acknowledge(self, command: protocol.Acknowledge) -> protocol.Event:
        self._outside.checkpoint.acknowledge(command.epoch)
        return protocol.Acknowledged()

    def _discard(self, command: protocol.Discard) -> None:
        older = {} if command.older is None else command.older.segments
        self._drops.note(command.newer.epoch, (older.keys() | self._unnamed) - command.newer.segments.keys())
        self._outside.checkpoint.discard(command.older, command.newer, self._unnamed)

    def _look(self, _: protocol.Look) -> protocol.Event:
        return protocol.Looked(self._outside.files())

    def _sweep(self, command: protocol.Sweep) -> None:
        self._outside.sweep(command.live, command.seen)

    def _tell(self, command: protocol.Tell) -> None:
        self._unreported = []
        self._record.tell(self.plan, self.coordinator, command.manifest)

    def _before(self, last: Manifest | None) -> Manifest:
        """The state, distributed over the slots of this run."""
        slots = self.coordinator.slots
        found = initial_manifest(self.plan, slots, self.coordinator.wishes.asked) if last is None else last
        return resumed(self.plan, found, self.coordinator.placement)

    @property
    def _rowless(self) -> SparkSession:
        """The session of epochs without rows: the stream's clone of the user's session, or a new clone."""
        if self._clone is None:
            self._clone = clone_of(self._outside.session)
        return self._clone
