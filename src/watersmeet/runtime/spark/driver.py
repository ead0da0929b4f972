"""The driver's part of every epoch: run the job, commit, hand the results to the sink, acknowledge (DESIGN 1).

    foreachBatch(batch, id)
      id is that of the last manifest?  acknowledged: nothing to do.  not: run the epoch again *for the sink only*
      otherwise                         run the epoch on the last manifest, commit, send, acknowledge, discard

Epochs without rows follow a batch (windows that close), or are run on their own (clean-up, at the end of a finite
stream or when asked for). They need no batch to be sent again, so one that never reached the sink is sent first.

A Python foreachBatch may still be running after `stop()` (SPARK-39218), so every batch passes a gate that `close`
shuts, and the exclusive creation of the manifest fences whoever comes too late.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from watersmeet.adaptation.clean_up import cleaning_orders
from watersmeet.adaptation.coordinator import ASKED_FOR, Coordinator
from watersmeet.epoch.events import Event
from watersmeet.epoch.task import SlotReport
from watersmeet.errors import CheckpointError, WatersmeetError, error_from_worker
from watersmeet.failpoints import failpoint
from watersmeet.observe.progress import EpochProgress
from watersmeet.plan.fingerprint import fingerprint
from watersmeet.plan.probe_orders import orders_as_texts
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.epoch import Intake, commit, commit_cleaning, commit_closing, counts_of, must_close, resumed
from watersmeet.runtime.spark.job import Duties, EpochJob
from watersmeet.runtime.spark.part_files import PartFolder
from watersmeet.runtime.spark.progress import Times, progress_of
from watersmeet.runtime.spark.sinks import FileSink, Sink
from watersmeet.runtime.spark.slot_work import Folders
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest, Order, before_first_epoch


class Stopped(Exception):
    """The query was stopped while this batch waited or ran."""


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors of ours that a Python worker raised, as they were there."""
    try:
        yield
    except PySparkException as error:
        found = error_from_worker(str(error))
        if found is None:
            raise
        raise found from error


class EpochDriver:
    """Runs the epochs of one query on an acquired checkpoint."""

    def __init__(
        self,
        query: JoinQuery,
        plan: JoinPlan,
        checkpoint: Checkpoint,
        folders: Folders,
        sink: Sink,
        *,
        slots: int,
        idle_timeout_ms: int | None,
        parts: PartFolder | None,
        on_progress: Callable[[EpochProgress], None],
        coordinator: Coordinator,
        session: SparkSession,
        choose: Callable[[DataFrame], tuple[JoinPlan, Event]] | None = None,
    ) -> None:
        """`choose` gives the plan when the first batch is seen; until then `plan` stands for it."""
        self.query, self.plan, self.checkpoint, self.folders, self.sink = query, plan, checkpoint, folders, sink
        self.slots, self.idle_timeout_ms, self.parts, self.on_progress = slots, idle_timeout_ms, parts, on_progress
        self.failure: WatersmeetError | None = None
        self._gate = threading.Lock()
        self._closed = self._is_cleaning = False
        self._committed = checkpoint.latest()
        self._started: float | None = None
        self._session, self._choose = session, choose
        self._untold: list[Event] = []
        self._clone: SparkSession | None = None
        self._tag = f"watersmeet-{uuid.uuid4().hex}"
        self.coordinator = coordinator
        if (kept := checkpoint.read_statistics()) is not None:
            self.coordinator.ledger.restore(kept)
        self._before = self._recover()

    def group_table(self) -> pa.Table:
        last = self._committed
        return self.coordinator.ledger.table(
            last.assignment if last is not None else self._nothing(self.slots).assignment
        )

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """The foreachBatch function."""
        with self._gate:
            self._require_open()
            self._clone = batch.sparkSession
            try:
                with _plain_errors():
                    self._run_batch(batch, batch_id)
            except Exception as error:
                self._closed = True  # Spark ends the query
                self.failure = error if isinstance(error, WatersmeetError) else None
                raise

    def clean_up(self, reason: str) -> int:
        """Emit all that is owed, an epoch at a time; how many results that makes.

        Refused while results of a batch have not reached the sink: its rows come again from Spark only. Raises Stopped
        when the query is stopped meanwhile; what is still owed then stays owed.
        """
        with self._gate, self._cancelled_when_stopped(), _plain_errors():
            self._require_open()
            self._send_unsent()
            self._require_sent("clean up", hint="wait until the batch is repeated, and ask again")
            results = 0
            while self._committed is not None:
                self._require_open()
                last = resumed(self.plan, self._committed, self.slots)
                if must_close(self.plan, last):
                    results += self._close_windows(last)
                    continue
                orders = cleaning_orders(self.plan, last, kept_slots=self.coordinator.roomy_slots)
                if not orders:
                    break
                results += self._clean(last, orders, reason)
            return results

    def refuse_further_batches(self) -> None:
        """Let no batch start, the running one end before its next irrevocable step, and a clean-up end at once."""
        self._closed = True
        if self._is_cleaning:
            self._session.sparkContext.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        """Wait for the running batch, and give up the checkpoint."""
        self._closed = True
        with self._gate:
            self.checkpoint.release()

    @contextmanager
    def _cancelled_when_stopped(self) -> Iterator[None]:
        """Spark cancels the jobs of a batch when its query is stopped; those of a clean-up are found by their tag."""
        context = self._session.sparkContext
        context.addJobTag(self._tag)
        self._is_cleaning = True
        try:
            yield
        except Exception as error:
            if self._closed:
                raise Stopped() from error
            raise
        finally:
            self._is_cleaning = False
            context.removeJobTag(self._tag)

    def _recover(self) -> Manifest | None:
        """The manifest before an unacknowledged one; leftovers of failed attempts are removed."""
        last = self._committed
        before = None
        if last is not None and not self.checkpoint.is_acknowledged(last.epoch):
            before = self.checkpoint.before(last)
        self.checkpoint.sweep(last, before)
        return before

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        last = self._committed
        if last is not None and last.batch is not None and batch_id <= last.batch:
            if batch_id < last.batch:
                raise CheckpointError(
                    f"Spark starts at batch {batch_id}, but the state has seen batch {last.batch}",
                    hint="the folder 'spark' of the checkpoint was removed or replaced: restore it",
                )
            if not self.checkpoint.is_acknowledged(last.epoch):
                self._send_again(batch, last)
            if must_close(self.plan, last):
                self._close_windows(last)
            return
        self._send_unsent()
        self._require_sent(
            f"go on to batch {batch_id}", hint="the folder 'spark' of the checkpoint does not belong to this state"
        )
        if self._choose is not None:
            self._adopt(*self._choose(batch))
        progress = self._advance(batch, batch_id, self._committed)
        if self._committed is not None and must_close(self.plan, self._committed):
            closed = self._close_windows(self._committed)
            results = progress.counts.get("results", 0) + closed
            progress = replace(
                progress,
                epoch=self._committed.epoch,
                counts={**progress.counts, "results": results},
                totals=dict(self._committed.totals),
                segments=len(self._committed.segments),
            )
        self.on_progress(progress)

    def _adopt(self, plan: JoinPlan, event: Event) -> None:
        """From now on the checkpoint is for this plan. (After a crash before this, another one may be chosen.)"""
        self.plan, self._choose, self._untold = plan, None, [event]
        self.coordinator = self.coordinator.for_plan(plan)
        self.remember_plan()

    def remember_plan(self) -> None:
        self.checkpoint.remember_join(
            fingerprint(self.query, self.plan), orders_as_texts(self.plan.orders, self.plan.names)
        )

    def _close_windows(self, last: Manifest) -> int:
        """An epoch without rows: the windows that the watermark has passed are shown; how many rows that makes."""
        before = resumed(self.plan, last, self.slots)
        job = self._job(before, self._rowless, Duties(closing=True, memory=self.coordinator.memory))
        with closing(job):
            reports = job.reports()
            failpoint("after-job")
            self._commit_and_send(job, commit_closing(self.plan, before, reports), last)
        return counts_of(reports).get("results", 0)

    def _clean(self, last: Manifest, orders: Sequence[Order], reason: str) -> int:
        """An epoch without rows that cleans up some groups; how many results that makes."""
        started = time.monotonic()
        before = resumed(self.plan, last, self.slots)
        job = self._job(before, self._rowless, Duties(orders, memory=self.coordinator.memory))
        with closing(job):
            reports = job.reports()
            failpoint("after-job")
            joined = time.monotonic()
            after = commit_cleaning(self.plan, before, reports, orders)
            committed = self._commit_and_send(job, after, last)
        results = counts_of(reports).get("results", 0)
        intake = Intake((0,) * len(self.plan.names), (None,) * len(self.plan.names))
        progress = self._progress(
            before, after, intake, reports, Times(started, joined, committed, time.monotonic()), reason
        )
        if must_close(self.plan, after):
            results += self._close_windows(after)
        self.on_progress(progress)
        return results

    def _advance(self, batch: DataFrame, batch_id: int, last: Manifest | None) -> EpochProgress:
        started = time.monotonic()
        before = resumed(self.plan, last or self._nothing(self.slots), self.slots)
        orders = self.coordinator.orders
        job = self._job(before, batch, Duties(orders, memory=self.coordinator.memory))
        with closing(job):
            reports = job.reports()
            failpoint("after-job")
            joined = time.monotonic()
            now_ms = time.time_ns() // 1_000_000
            intake = job.intake()
            after = commit(
                self.plan,
                before,
                reports,
                intake,
                batch=batch_id,
                now_ms=now_ms,
                idle_timeout_ms=self.idle_timeout_ms,
                orders=orders,
            )
            committed = self._commit_and_send(job, after, last)
        return self._progress(before, after, intake, reports, Times(started, joined, committed, time.monotonic()))

    def _progress(
        self,
        before: Manifest,
        after: Manifest,
        intake: Intake,
        reports: Sequence[SlotReport],
        times: Times,
        reason: str = ASKED_FOR,
    ) -> EpochProgress:
        """What a committed epoch did; what is learned from it is kept."""
        events = [*self._untold, *self.coordinator.note(after, reports, reason)]
        self._untold = []
        self.checkpoint.write_statistics(self.coordinator.ledger.table(after.assignment))
        self.checkpoint.write_events([event.to_json() for event in events])
        since, self._started = self._started, times.started
        groups = self.coordinator.ledger.summary()
        return progress_of(self.query, self.plan, before, after, intake, reports, times, since, events, groups)

    def _send_unsent(self) -> None:
        """Send the results of an epoch without rows that was committed and never acknowledged."""
        last = self._committed
        if last is not None and (last.closing or last.cleaning) and not self.checkpoint.is_acknowledged(last.epoch):
            self._send_again(self._rowless, last)
            if must_close(self.plan, last):
                self._close_windows(last)

    def _require_sent(self, what: str, hint: str) -> None:
        """The next epoch must not hide one whose results the sink does not have."""
        last = self._committed
        if last is not None and not self.checkpoint.is_acknowledged(last.epoch):
            raise CheckpointError(
                f"cannot {what}: the results of epoch {last.epoch} (batch {last.batch}) never reached the sink",
                hint=hint,
            )

    def _send_again(self, rows: DataFrame | SparkSession, last: Manifest) -> None:
        """Compute the results of a committed epoch once more; its state stays as it was committed.

        The epoch's orders are for the slots that it ran on, so it runs on these; nothing stays in memory.
        """
        before = resumed(self.plan, self._before or self._nothing(last.slots), last.slots)
        without_rows = last.closing or last.cleaning
        nothing_kept = [[0] * self.plan.stage_count] * last.slots
        job = self._job(before, self._rowless if without_rows else rows, Duties(last.ran, last.closing, nothing_kept))
        with closing(job):
            job.reports()
            self._send(job, last)
        self.checkpoint.sweep(last)
        self._before = None

    def _job(self, before: Manifest, rows: DataFrame | SparkSession, duties: Duties) -> EpochJob:
        parts = None if duties.closing else self.parts
        return EpochJob(self.query, self.plan, before, rows, self.folders, parts, duties)

    def _commit_and_send(self, job: EpochJob, after: Manifest, last: Manifest | None) -> float:
        """The irrevocable steps of an epoch; when it was committed."""
        self._require_open()
        self.checkpoint.commit(after)
        self._committed, self._before = after, last
        committed = time.monotonic()
        self._send(job, after)
        self.checkpoint.discard_before(after, last)
        self._before = None
        return committed

    def _send(self, job: EpochJob, manifest: Manifest) -> None:
        self._require_open()
        failpoint("before-sink")
        if self.parts is not None and isinstance(self.sink, FileSink):
            self.sink.add(self._rowless, job.part_files, manifest.epoch)
        else:
            self.sink.write(job.results(manifest), manifest.epoch)
        failpoint("after-sink")
        self.checkpoint.acknowledge(manifest.epoch)

    @property
    def _rowless(self) -> SparkSession:
        """The session of epochs without rows: the clone that the stream has made of the user's, or one like it."""
        if self._clone is None:
            self._clone = SparkSession(self._session.sparkContext, self._session._jsparkSession.cloneSession())
        return self._clone

    def _nothing(self, slots: int) -> Manifest:
        return before_first_epoch(len(self.query.streams), self.plan.stage_count, self.plan.partitions, slots)

    def _require_open(self) -> None:
        if self._closed:
            raise Stopped()
