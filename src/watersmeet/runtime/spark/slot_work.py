"""The work of a Spark task in a stage of an epoch: take frames, run the engine on its slot, report to the driver.

The report of a task travels with the rows that it sends on. The tasks of the next stage set it aside and pass it on;
those of the last stage yield it. A task writes its results to files, and its report names them. Where Spark's
expressions must be applied first (`results.py`), results flow on as rows. Results that are complete before the last
stage travel packed as Arrow IPC bytes.
"""

from __future__ import annotations

import gc
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from watersmeet.engine.aggregate import aggregate_step
from watersmeet.engine.emission import Emitted
from watersmeet.engine.rebuild import fed_rows
from watersmeet.engine.step import step
from watersmeet.epoch.task import SlotReport, SlotTask
from watersmeet.epoch.task_file import read_dropped, read_task, report_to_json
from watersmeet.epoch.tasks import named
from watersmeet.plan.frame import REPORT, RESULTS, STAGE
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import Feed
from watersmeet.runtime.spark.aside import Aside, for_spark, packed, unpacked
from watersmeet.runtime.spark.group_exchange import received, reports_only, sent_schema, shown_schema, with_reports
from watersmeet.runtime.spark.memory import remove_other_runs
from watersmeet.runtime.spark.this_worker import this_worker
from watersmeet.state.allocation import use_system_allocator
from watersmeet.state.damage import reading
from watersmeet.state.file_names import committed_name
from watersmeet.state.host_sweep import sweep_host
from watersmeet.state.manifest_json import read_value, segment_names
from watersmeet.state.outbox import ResultFolder, ResultWriter
from watersmeet.state.plain_files import read_plain
from watersmeet.state.private_folder import opened_or_made
from watersmeet.state.tiers import Tiers

Work: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The type of function that `mapInArrow` takes."""

_tasks_before = count()


@dataclass(frozen=True, slots=True)
class Folders:
    """Where tasks read and write state; `tasks` is the task file (`epoch/task_file.py`)."""

    segments: Path
    memory: Path | None
    manifests: Path
    attempts: Path
    tasks: Path = Path()

    def tiers(self, task: SlotTask) -> Tiers:
        """The tiers of one slot in one stage."""
        return Tiers(self.segments, self.memory, task.memory_bytes, self.attempts, task.host_bytes)

    def live(self, committed: int) -> set[str]:
        """All segments that the last manifest names."""
        path = self.manifests / committed_name(committed)
        with reading(path):
            return segment_names(read_value(read_plain(path)))


def _this_task(folders: Folders, stage: int) -> SlotTask:
    """The slot task of the running Spark task, with a unique name for this attempt."""
    use_system_allocator()
    if next(_tasks_before) == 1:
        # Spark collects garbage after every task. Frozen objects (all imports of the first task) are not scanned again.
        gc.freeze()
    context = TaskContext.get()
    assert context is not None
    task = read_task(folders.tasks, stage, context.partitionId())
    if folders.memory is not None:
        _sweep(folders, folders.memory, task.epoch - 1)
    return named(task, f"{context.taskAttemptId():x}{uuid.uuid4().hex[:8]}")


def _sweep(folders: Folders, memory: Path, committed: int) -> None:
    """Sweep the memory tier of this host, unless another task has done so."""
    if not os.path.lexists(memory):
        remove_other_runs(memory)
    if (folder := opened_or_made(memory)) is not None:
        sweep_host(folder, committed, lambda: read_dropped(folders.tasks), lambda: folders.live(committed))


def group_work(plan: JoinPlan, folders: Folders, results: ResultFolder | None) -> Work:
    """The work of an aggregation stage, on any of its slots. It yields reports, and rows of groups unless they are
    written to files here."""

    def work(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert plan.aggregate is not None
        task = _this_task(folders, plan.aggregate.stage)
        told: list[str] = []
        if task.closing_us is not None:
            # Placeholder rows that made Spark start the task. Spark gives up a worker that leaves input unread.
            deque(frames, maxlen=0)
        accumulated = received(plan.aggregate, frames, told)
        running = aggregate_step(plan, task, accumulated, folders.tiers(task))
        with _Writing(results, task.slot) as writing:
            for emitted in writing.rest(running):
                yield with_reports(emitted.rows)
            told.append(writing.report())
        yield report_rows(told) if results is not None else reports_only(shown_schema(plan), told)

    return work


def feed_work(plan: JoinPlan, stage: int, feeds: Sequence[Feed], folders: Folders) -> Work:
    """The work of feeding: stored rows of a slot, as frames for the stages that build state from them. `stage` is the
    stage number of the feeding tasks."""

    def work(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deque(frames, maxlen=0)  # placeholder rows that made Spark start the task
        task = _this_task(folders, stage)
        for emitted in fed_rows(plan, feeds, task, folders.tiers(task)):
            yield for_spark(emitted.rows)

    return work


def slot_work(plan: JoinPlan, stage: int, folders: Folders, results: ResultFolder | None) -> Work:
    """The work of a join stage, on any of its slots. Without a `results` folder, results flow on as rows."""

    def work(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _this_task(folders, stage)
        told = _Carried(plan, stage, Aside(folders.tasks.parent), flows=results is None)
        running = step(plan, task, told.without(frames), folders.tiers(task))
        with _Writing(results, task.slot) as writing:
            for emitted in writing.rest(running):
                yield from told.sent(emitted)
                yield from told.pass_on_results()
            yield from told.pass_on_results()
            leaves_schema = results is not None and results.columns is not None and told.is_last and task.slot == 0
            told.reports.append(writing.report(plan.output_schema if leaves_schema else None))
        yield told.all_reports()

    return work


class _Writing:
    """Runs a step and writes its results to the file of this attempt, if there is a result folder."""

    def __init__(self, results: ResultFolder | None, slot: int) -> None:
        self._writer = None if results is None else ResultWriter(results, slot)
        self._done: SlotReport | None = None

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def rest(self, running: Iterator[Emitted]) -> Iterator[Emitted]:
        """The rows that the step emits and that are not written to the file."""
        while True:
            try:
                emitted = next(running)
            except StopIteration as done:
                self._done = done.value
                return
            if self._writer is not None and emitted.stage is None:
                self._writer.write(emitted.rows)
            else:
                yield emitted

    def report(self, empty: pa.Schema | None = None) -> str:
        """The report, naming the file. With `empty`, a file is written even without results."""
        assert self._done is not None
        files = () if self._writer is None else self._writer.close(empty)
        return report_to_json(replace(self._done, files=files, worker=this_worker(os.environ)))


class _Carried:
    """Reports and packed complete results, which travel to the driver along with the rows."""

    def __init__(self, plan: JoinPlan, stage: int, aside: Aside, *, flows: bool) -> None:
        self.plan, self.stage, self.flows = plan, stage, flows
        self.reports: list[str] = []
        self._results = aside

    def without(self, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The frames without the reports and results of earlier stages, which are set aside."""
        for frame in frames:
            if self.plan.frame.has_stages:
                is_row = pc.and_(pc.is_null(frame.column(REPORT)), pc.is_null(frame.column(RESULTS)))
                if pc.sum(is_row).as_py() < frame.num_rows:
                    self.reports += frame.column(REPORT).drop_null().to_pylist()
                    self._results.put(frame.column(RESULTS).drop_null().to_pylist())
                    frame = frame.filter(is_row)
            if frame.num_rows:
                yield frame

    def sent(self, emitted: Emitted) -> Iterator[pa.RecordBatch]:
        """Send emitted rows: frames go to another stage; results flow on from the last join stage, and travel packed
        before it."""
        if emitted.stage is not None and emitted.stage < len(self.plan.stages):
            yield for_spark(emitted.rows)
        elif self.is_last:
            yield with_reports(for_spark(emitted.rows))
        else:
            yield self._for_carrier([None], [packed(for_spark(emitted.rows))])

    def pass_on_results(self) -> Iterator[pa.RecordBatch]:
        for results in self._results.take():
            if self.is_last:
                yield from (with_reports(rows) for result in results for rows in unpacked(result))
            else:
                yield self._for_carrier([None] * len(results), results)

    def all_reports(self) -> pa.RecordBatch:
        if not self.is_last:
            return self._for_carrier(self.reports, [None] * len(self.reports))
        if self.flows:
            return reports_only(sent_schema(self.plan), self.reports)
        return report_rows(self.reports)

    @property
    def is_last(self) -> bool:
        return self.stage == len(self.plan.stages) - 1

    def _for_carrier(self, reports: Sequence[str | None], results: Sequence[bytes | None]) -> pa.RecordBatch:
        """Rows for the driver, in frames for the stage that passes them on."""
        carrier = pa.array([self.plan.carrier(self.stage)] * len(reports), pa.int8())
        values = {REPORT: pa.array(reports, pa.string()), RESULTS: pa.array(results, pa.binary()), STAGE: carrier}
        schema = self.plan.frame.schema
        return pa.RecordBatch.from_arrays(
            [values[f.name] if f.name in values else pa.nulls(len(reports), f.type) for f in schema], schema=schema
        )


def report_rows(reports: Sequence[str]) -> pa.RecordBatch:
    """Reports alone, as a job yields them."""
    return pa.RecordBatch.from_arrays([pa.array(reports, pa.string())], names=["report"])
