"""The driver's part of every epoch: run the job, commit, hand the results to the sink, acknowledge (DESIGN 1).

    foreachBatch(batch, id)
      id is that of the last manifest?  acknowledged: nothing to do.  not: run the epoch again *for the sink only*
      otherwise                         run the epoch on the last manifest, commit, send, acknowledge, discard

A Python foreachBatch may still be running after `stop()` (SPARK-39218), so every batch passes a gate that `close`
shuts, and the exclusive creation of the manifest fences whoever comes too late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from watersmeet.adaptation.ledger import GroupLedger
from watersmeet.errors import CheckpointError, WatersmeetError, error_from_worker
from watersmeet.failpoints import failpoint
from watersmeet.observe.progress import EpochProgress
from watersmeet.observe.statistics import arrivals, costs, selectivities, stores
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.epoch import Intake, commit, commit_closing, counts_of, must_close, resumed
from watersmeet.runtime.spark.job import EpochJob, Folders
from watersmeet.runtime.spark.part_files import PartFolder
from watersmeet.runtime.spark.sinks import FileSink, Sink
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest, before_first_epoch


class Stopped(Exception):
    """The query was stopped while this batch waited or ran."""


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
    ) -> None:
        self.query, self.plan, self.checkpoint, self.folders, self.sink = query, plan, checkpoint, folders, sink
        self.slots, self.idle_timeout_ms, self.parts, self.on_progress = slots, idle_timeout_ms, parts, on_progress
        self.failure: WatersmeetError | None = None
        self._gate = threading.Lock()
        self._closed = False
        self._committed = checkpoint.latest()
        self._started: float | None = None
        self.groups = GroupLedger(plan)
        if (kept := checkpoint.read_statistics()) is not None:
            self.groups.restore(kept)
        self._before = self._recover()

    def group_table(self) -> pa.Table:
        last = self._committed
        return self.groups.table(last.assignment if last is not None else self._nothing().assignment)

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """The foreachBatch function."""
        with self._gate:
            self._require_open()
            try:
                self._run_batch(batch, batch_id)
            except WatersmeetError as error:
                self.failure = error
                raise
            except PySparkException as error:
                self.failure = error_from_worker(str(error))
                if self.failure is None:
                    raise
                raise self.failure from error

    def refuse_further_batches(self) -> None:
        """Let no batch start, and the running one end before its next irrevocable step."""
        self._closed = True

    def close(self) -> None:
        """Wait for the running batch, and give up the checkpoint."""
        self._closed = True
        with self._gate:
            self.checkpoint.release()

    def _recover(self) -> Manifest | None:
        """The manifest before an unacknowledged one; leftovers of failed attempts are removed."""
        last = self._committed
        before = None
        if last is not None and not self.checkpoint.is_acknowledged(last.epoch) and last.epoch > 0:
            before = self.checkpoint.read(last.epoch - 1)
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
                self._close_windows(batch, last)
            return
        if last is not None and not self.checkpoint.is_acknowledged(last.epoch):
            raise CheckpointError(
                f"Spark goes on to batch {batch_id}, but the results of epoch {last.epoch} never reached the sink",
                hint="the folder 'spark' of the checkpoint does not belong to this state",
            )
        progress = self._advance(batch, batch_id, last)
        if self._committed is not None and must_close(self.plan, self._committed):
            closed = self._close_windows(batch, self._committed)
            results = progress.counts.get("results", 0) + closed
            progress = replace(
                progress,
                epoch=self._committed.epoch,
                counts={**progress.counts, "results": results},
                totals=dict(self._committed.totals),
                segments=len(self._committed.segments),
            )
        self.on_progress(progress)

    def _close_windows(self, batch: DataFrame, last: Manifest) -> int:
        """An epoch without rows: the windows that the watermark has passed are shown; how many rows that makes."""
        before = resumed(self.plan, last, self.slots)
        job = EpochJob(self.query, self.plan, before, batch, self.folders, closing=True)
        try:
            reports = job.reports()
            failpoint("after-job")
            after = commit_closing(self.plan, before, reports)
            self._require_open()
            self.checkpoint.commit(after)
            self._committed, self._before = after, last
            self._send(job, after, batch)
        finally:
            job.close()
        self.checkpoint.discard_before(after, last)
        self._before = None
        return counts_of(reports).get("results", 0)

    def _advance(self, batch: DataFrame, batch_id: int, last: Manifest | None) -> EpochProgress:
        started = time.monotonic()
        before = resumed(self.plan, last or self._nothing(), self.slots)
        job = EpochJob(self.query, self.plan, before, batch, self.folders, self.parts)
        try:
            reports = job.reports()
            failpoint("after-job")
            joined = time.monotonic()
            now_ms = time.time_ns() // 1_000_000
            intake = job.intake()
            after = commit(
                self.plan, before, reports, intake, batch=batch_id, now_ms=now_ms, idle_timeout_ms=self.idle_timeout_ms
            )
            self._require_open()
            self.checkpoint.commit(after)
            self._committed, self._before = after, last
            committed = time.monotonic()
            self._send(job, after, batch)
        finally:
            job.close()
        sent = time.monotonic()
        self.checkpoint.discard_before(after, last)
        self._before = None
        self.groups.add(reports)
        self.checkpoint.write_statistics(self.groups.table(after.assignment))
        since, self._started = self._started, started
        seconds = started - since if since is not None else sent - started
        return EpochProgress(
            epoch=after.epoch,
            batch=batch_id,
            slots=before.slots,
            rows=dict(zip((s.name for s in self.query.streams), intake.rows, strict=True)),
            counts=counts_of(reports),
            slot_counts=tuple(dict(report.counts) for report in reports),
            totals=dict(after.totals),
            watermark_us=after.watermark_us,
            times_max_us=after.times_max_us,
            segments=len(after.segments),
            join_ms=round((joined - started) * 1000),
            commit_ms=round((committed - joined) * 1000),
            sink_ms=round((sent - committed) * 1000),
            statistics=self._statistics(before, after, intake, seconds),
        )

    def _statistics(self, before: Manifest, after: Manifest, intake: Intake, seconds: float) -> dict[str, Any]:
        times = list(zip(before.times_max_us, after.times_max_us, strict=True))
        return {
            "arrivals": arrivals(self.plan.names, intake.rows, times, seconds),
            "selectivities": selectivities(self.query, self.plan, after.totals),
            "stores": stores(after.totals),
            "costsNs": costs(after.totals),
            "partitionGroups": self.groups.summary(),
        }

    def _send_again(self, batch: DataFrame, last: Manifest) -> None:
        """Compute the results of a committed epoch once more; its state stays as it was committed."""
        before = resumed(self.plan, self._before or self._nothing(), self.slots)
        job = EpochJob(self.query, self.plan, before, batch, self.folders, self.parts, closing=last.closing)
        try:
            job.reports()
            self._send(job, last, batch)
        finally:
            job.close()
        self.checkpoint.sweep(last)
        self._before = None

    def _send(self, job: EpochJob, manifest: Manifest, batch: DataFrame) -> None:
        self._require_open()
        failpoint("before-sink")
        if self.parts is not None and isinstance(self.sink, FileSink):
            self.sink.add(batch.sparkSession, job.part_files, manifest.epoch)
        else:
            self.sink.write(job.results(manifest), manifest.epoch)
        failpoint("after-sink")
        self.checkpoint.acknowledge(manifest.epoch)

    def _nothing(self) -> Manifest:
        return before_first_epoch(len(self.query.streams), self.plan.stage_count, self.plan.partitions, self.slots)

    def _require_open(self) -> None:
        if self._closed:
            raise Stopped()
