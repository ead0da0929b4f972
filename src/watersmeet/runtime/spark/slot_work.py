"""What a Spark task does in a stage of an epoch: take frames, run the engine on its slot, tell the driver.

What a task has to tell (its report, and results where they are complete) travels with the rows that it sends on: the
tasks of the next stage put it aside and pass it on, and those of the last yield it. Results are packed as Arrow IPC
bytes, a few large rows, unless the task writes them itself (`part_files.py`).
"""

from __future__ import annotations

import gc
import json
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from watersmeet.engine.aggregate import aggregate_step
from watersmeet.engine.step import step
from watersmeet.engine.task import SlotReport, SlotTask
from watersmeet.plan.frame import REPORT, RESULTS, STAGE
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.epoch import named
from watersmeet.runtime.spark.grouping import received, reports_only, with_reports
from watersmeet.runtime.spark.memory import remove_other_runs
from watersmeet.runtime.spark.part_files import PartFolder, PartWriter
from watersmeet.state.manifest import SegmentRef, extent_of, extent_values
from watersmeet.state.part_file import PartFile
from watersmeet.state.tiers import Tiers

PACKED = pa.schema([pa.field("report", pa.string()), pa.field("results", pa.binary())])
PACKED_DDL = "report string, results binary"
PACKED_BYTES_MAX = 16 << 20
"""About so many bytes of groups are one value of a Spark row, which cannot have 2 GiB."""

Work: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes."""

_tasks_before = count()


@dataclass(frozen=True, slots=True)
class Folders:
    """Where tasks find and put state."""

    segments: Path
    memory: Path | None

    def tiers(self, task: SlotTask) -> Tiers:
        """The tiers of one slot in one stage."""
        return Tiers(self.segments, self.memory, task.memory_bytes)


def report_to_json(report: SlotReport, files: Sequence[PartFile] = ()) -> str:
    value = asdict(replace(report, extents=()))
    value["extents"] = [extent_values(extent) for extent in report.extents]
    return json.dumps({**value, "files": [asdict(file) for file in files]})


def report_from_json(text: str) -> tuple[SlotReport, list[PartFile]]:
    value = json.loads(text)
    files = [PartFile(**entry) for entry in value.pop("files")]
    value["extents"] = tuple(extent_of(entry) for entry in value["extents"])
    value["segments"] = tuple(SegmentRef(**entry) for entry in value["segments"])
    value["seen"] = {name: tuple(seen) for name, seen in value["seen"].items()}
    return SlotReport(**value), files


def _this_task(tasks: Sequence[SlotTask], folders: Folders) -> SlotTask:
    """What the running Spark task has to do, with a name of its own for this attempt."""
    if next(_tasks_before) == 1:
        # Spark collects garbage after every task; it need not look each time through all that the first one imported.
        gc.freeze()
    context = TaskContext.get()
    assert context is not None
    if folders.memory is not None and not folders.memory.exists():
        remove_other_runs(folders.memory)
    attempt = f"{context.taskAttemptId():x}{uuid.uuid4().hex[:8]}"
    return named(tasks[context.partitionId() % len(tasks)], attempt)


def group_work(plan: JoinPlan, tasks: Sequence[SlotTask], folders: Folders) -> Work:
    """The work of the stage of an aggregation, on any of its slots."""

    def work(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert plan.aggregate is not None
        task = _this_task(tasks, folders)
        reports: list[str | None] = []
        if task.closing_us is not None:
            # What made Spark start the task, and is no rows of ours. It gives up a worker that leaves something unread.
            deque(frames, maxlen=0)
        accumulated = received(plan.aggregate, frames, reports)
        running = aggregate_step(plan, task, accumulated, folders.tiers(task))
        while True:
            try:
                rows = next(running).rows
            except StopIteration as done:
                reports.append(report_to_json(done.value))
                break
            for packed in map(_packed, in_parts(rows, PACKED_BYTES_MAX)):
                columns = [pa.nulls(1, pa.string()), pa.array([packed], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, schema=PACKED)
        columns = [pa.array(reports, pa.string()), pa.nulls(len(reports), pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=PACKED)

    return work


def slot_work(plan: JoinPlan, tasks: Sequence[SlotTask], folders: Folders, parts: PartFolder | None) -> Work:
    """The work of a stage of the join, on any of its slots."""

    def work(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _this_task(tasks, folders)
        told = _Told(plan, task.stage)
        running = step(plan, task, told.without(frames), folders.tiers(task))
        writer = PartWriter(parts, task.slot) if parts is not None else None
        try:
            while True:
                try:
                    emitted = next(running)
                except StopIteration as done:
                    leaves_schema = task.slot == 0 and task.stage == len(plan.stages) - 1
                    files = writer.close(plan.output_schema if leaves_schema else None) if writer is not None else ()
                    told.reports.append(report_to_json(done.value, files))
                    break
                if emitted.stage is not None:
                    yield from told.sent(emitted.rows, emitted.stage)
                elif writer is not None:
                    writer.write(emitted.rows)
                else:
                    yield told.packed([None], [_packed(emitted.rows)])
                yield from told.pass_on_results()
            yield from told.pass_on_results()
            yield told.packed(told.reports, [None] * len(told.reports))
        finally:
            if writer is not None:
                writer.abandon()

    return work


class _Told:
    """What travels to the driver along with the rows: reports, and results that are complete, packed."""

    def __init__(self, plan: JoinPlan, stage: int) -> None:
        self.plan, self.stage = plan, stage
        self.reports: list[str | None] = []
        self._results: list[bytes | None] = []

    def without(self, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The frames without what earlier stages have told; that is put aside."""
        for frame in frames:
            if self.plan.frame.has_stages:
                is_row = pc.and_(pc.is_null(frame.column(REPORT)), pc.is_null(frame.column(RESULTS)))
                if pc.sum(is_row).as_py() < frame.num_rows:
                    self.reports += frame.column(REPORT).drop_null().to_pylist()
                    self._results += frame.column(RESULTS).drop_null().to_pylist()
                    frame = frame.filter(is_row)
            if frame.num_rows:
                yield frame

    def pass_on_results(self) -> Iterator[pa.RecordBatch]:
        results, self._results = self._results, []
        if results and self.plan.aggregate is not None and self._is_last:
            yield from (with_reports(rows) for result in results for rows in _unpacked(result))
        elif results:
            yield self.packed([None] * len(results), results)

    def sent(self, rows: pa.RecordBatch, stage: int) -> Iterator[pa.RecordBatch]:
        """Rows for another stage; those of groups travel like results until all stages of the join are done."""
        if self.plan.aggregate is None or stage != self.plan.aggregate.stage:
            yield rows
        elif self._is_last:
            yield with_reports(rows)
        else:
            yield self.packed([None], [_packed(rows)])

    @property
    def _is_last(self) -> bool:
        return self.stage == len(self.plan.stages) - 1

    def packed(self, reports: Sequence[str | None], results: Sequence[bytes | None]) -> pa.RecordBatch:
        """Rows for the driver: as the last stage yields them, or in frames for the stage that passes them on."""
        if self._is_last and self.plan.aggregate is not None:
            return reports_only(self.plan, reports)
        columns = [pa.array(reports, pa.string()), pa.array(results, pa.binary())]
        if self._is_last:
            return pa.RecordBatch.from_arrays(columns, schema=PACKED)
        heir = pa.array([self.plan.heir(self.stage)] * len(reports), pa.int8())
        values = {REPORT: columns[0], RESULTS: columns[1], STAGE: heir}
        schema = self.plan.frame.schema
        return pa.RecordBatch.from_arrays(
            [values[f.name] if f.name in values else pa.nulls(len(reports), f.type) for f in schema], schema=schema
        )


def in_parts(rows: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Rows in parts of about so many bytes."""
    size = max(1, rows.num_rows * bytes_max // max(1, rows.nbytes))
    return (rows.slice(start, size) for start in range(0, rows.num_rows, size))


def _packed(results: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, results.schema) as writer:
        writer.write_batch(results)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Results as they were before they were packed, for `mapInArrow`."""
    for batch in batches:
        for value in batch.column(0).drop_null():
            yield from _unpacked(value.as_buffer())


def _unpacked(packed: bytes | pa.Buffer | None) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(packed) as reader:
        yield from reader
