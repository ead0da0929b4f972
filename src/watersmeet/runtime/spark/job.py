"""The Spark job of an epoch: `step` per stage and slot in `mapInArrow`, with a shuffle before each.

    united batch ─ observe ─ filter ─ hash ─ repartitionById ─ mapInArrow(step) ─┬─ collect reports (runs it)
                                                 ▲                  │            └─ results: part files, or persisted,
                                                 └── frames of the next stage        unpacked and sent to the sink

Where the sink takes part files, tasks write their results themselves (`part_files.py`) and yield reports only.
Otherwise it yields them packed as Arrow IPC bytes, a few large rows that cost nothing to keep. They are persisted, so
that they can go to the sink *after* the epoch is committed without running twice; if an executor is lost in between,
Spark computes the lost tasks again and they yield the same multiset.

A batch is read and shuffled once; every stage takes its rows from that one exchange. Where a stage also gets rows from
other stages, the union is shuffled again, because Spark cannot zip partitions that were placed by number.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel, TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructField, StructType

from watersmeet.engine.fold import SlotReport, SlotTask
from watersmeet.engine.step import step
from watersmeet.errors import QueryError
from watersmeet.plan.frame import REPORT, RESULTS, STAGE
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.expressions import quote
from watersmeet.query.logical import JoinQuery, SelectItem, internal_name
from watersmeet.runtime.epoch import Intake, named, one_report_per_task, slot_tasks
from watersmeet.runtime.spark.memory import remove_other_runs
from watersmeet.runtime.spark.part_files import PartFolder, PartWriter, remove_parts
from watersmeet.runtime.spark.source import hashed, intake_of, observe, of_stage, spark_type, split
from watersmeet.state.manifest import ExtentRef, Manifest, SegmentRef
from watersmeet.state.part_file import PartFile
from watersmeet.state.tiers import Tiers

PACKED = pa.schema([pa.field("report", pa.string()), pa.field("results", pa.binary())])
PACKED_DDL = "report string, results binary"
ARROW_BATCH_ROWS = 1 << 16
UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Folders:
    """Where tasks find and put state, and how much of it may be in memory per slot."""

    segments: Path
    memory: Path | None
    budget_bytes: int | None


class EpochJob:
    """One run of one epoch. `reports` runs it; afterwards `part_files` names the results if tasks wrote them (`parts`),
    and otherwise `results` may be read until `close`."""

    def __init__(
        self,
        query: JoinQuery,
        plan: JoinPlan,
        before: Manifest,
        batch: DataFrame,
        folders: Folders,
        parts: PartFolder | None = None,
    ) -> None:
        session = batch.sparkSession  # the stream's own clone: what is set here does not reach the user's session
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_ROWS))
        if all(_has_fixed_width(kind) for kind in plan.frame.pool):
            # Spark would measure the batch after every row; rows of fixed width are bounded by their number.
            session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(UNLIMITED))
        self.query, self.plan, self.slots, self.parts = query, plan, before.slots, parts
        self._observation = Observation()
        rows = split(plan, observe(query, plan, batch, self._observation), before.assignment, before.slots)
        self.part_files: list[PartFile] = []
        self._packed = self._joined(rows, before, folders, parts)
        if parts is None:
            self._packed = self._packed.persist(StorageLevel.MEMORY_AND_DISK)

    def _joined(self, rows: DataFrame, before: Manifest, folders: Folders, parts: PartFolder | None) -> DataFrame:
        """All stages in their order; the packed results of the last."""
        plan, last = self.plan, len(self.plan.stages) - 1
        sent: dict[int, list[DataFrame]] = defaultdict(list)
        for number, stage in enumerate(plan.stages):
            inbox = of_stage(rows, number) if last else rows
            if sent[number]:
                inbox = split(plan, reduce(DataFrame.union, sent[number], inbox), before.assignment, before.slots)
            work = _slot_work(plan, slot_tasks(plan, before, number), folders, parts)
            if number < last:
                frames = hashed(plan, inbox.mapInArrow(work, frame_schema(plan)))
                followers = stage.sends_to | {plan.heir(number)}
                if len(followers) > 1:
                    frames = split(plan, frames, before.assignment, before.slots)  # an exchange that they share
                for follower in followers:
                    sent[follower].append(of_stage(frames, follower) if len(followers) > 1 else frames)
        return inbox.mapInArrow(work, PACKED_DDL)

    def reports(self) -> list[SlotReport]:
        """Run the job; one accepted report per stage and slot."""
        told_only = self.parts is not None  # tasks yield nothing else
        rows = (self._packed if told_only else self._packed.filter("report IS NOT NULL").select("report")).collect()
        told = [report_from_json(row[0]) for row in rows]
        accepted = one_report_per_task([report for report, _ in told], len(self.plan.stages), self.slots)
        for report, files in told:
            if any(report is one for one in accepted):
                self.part_files += files
            else:
                remove_parts(files)
        return accepted

    def intake(self) -> Intake:
        return intake_of(self.plan, self._observation)

    def results(self) -> DataFrame:
        """The results under the names, and with the expressions, of the select list; without the joined rows for which
        a predicate that was left to Spark is false or unknown."""
        unpacked = self._packed.select("results").mapInArrow(_unpack, joined_schema(self.plan))
        for predicate in self.query.spark_residuals:
            unpacked = unpacked.filter(predicate.sql)
        return unpacked.selectExpr(*(_select_text(item) for item in self.query.select))

    def close(self) -> None:
        self._packed.unpersist()


def _has_fixed_width(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind)


def joined_schema(plan: JoinPlan) -> StructType:
    return StructType([StructField(f.name, spark_type(f.type)) for f in plan.output_schema])


def result_schema(query: JoinQuery, plan: JoinPlan, spark: SparkSession) -> StructType:
    """The schema of the results; raises what Spark has against an expression of the select list."""
    try:
        return spark.createDataFrame([], joined_schema(plan)).selectExpr(*map(_select_text, query.select)).schema
    except AnalysisException as error:
        raise QueryError(f"the select list is refused by Spark: {error}", error_class="INVALID_SELECT") from error


def _select_text(item: SelectItem) -> str:
    source = item.sql if item.column is None else quote(internal_name(item.column))
    return f"{source} AS {quote(item.name)}"


def report_to_json(report: SlotReport, files: Sequence[PartFile] = ()) -> str:
    return json.dumps({**asdict(report), "files": [asdict(file) for file in files]})


def report_from_json(text: str) -> tuple[SlotReport, list[PartFile]]:
    value = json.loads(text)
    files = [PartFile(**entry) for entry in value.pop("files")]
    value["extents"] = tuple(ExtentRef(**entry) for entry in value["extents"])
    value["segments"] = tuple(SegmentRef(**entry) for entry in value["segments"])
    return SlotReport(**value), files


def frame_schema(plan: JoinPlan) -> StructType:
    return StructType([StructField(field.name, spark_type(field.type)) for field in plan.frame.schema])


def _slot_work(  # type: ignore[no-untyped-def]
    plan: JoinPlan, tasks: Sequence[SlotTask], folders: Folders, parts: PartFolder | None
):
    def work(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if folders.memory is not None and not folders.memory.exists():
            remove_other_runs(folders.memory)
        attempt = f"{context.taskAttemptId():x}{uuid.uuid4().hex[:8]}"
        task = named(tasks[context.partitionId() % len(tasks)], attempt)
        budget = None if folders.budget_bytes is None else folders.budget_bytes // len(plan.stages)
        told = _Told(plan, task.stage)
        running = step(plan, task, told.without(frames), Tiers(folders.segments, folders.memory, budget))
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
                    yield emitted.rows
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
            if self.plan.frame.reports:
                is_row = pc.and_(pc.is_null(frame.column(REPORT)), pc.is_null(frame.column(RESULTS)))
                if pc.sum(is_row).as_py() < frame.num_rows:
                    self.reports += frame.column(REPORT).drop_null().to_pylist()
                    self._results += frame.column(RESULTS).drop_null().to_pylist()
                    frame = frame.filter(is_row)
            if frame.num_rows:
                yield frame

    def pass_on_results(self) -> Iterator[pa.RecordBatch]:
        results, self._results = self._results, []
        if results:
            yield self.packed([None] * len(results), results)

    def packed(self, reports: Sequence[str | None], results: Sequence[bytes | None]) -> pa.RecordBatch:
        """Rows for the driver: as the last stage yields them, or in frames for the stage that passes them on."""
        columns = [pa.array(reports, pa.string()), pa.array(results, pa.binary())]
        if self.stage == len(self.plan.stages) - 1:
            return pa.RecordBatch.from_arrays(columns, schema=PACKED)
        heir = pa.array([self.plan.heir(self.stage)] * len(reports), pa.int8())
        values = {REPORT: columns[0], RESULTS: columns[1], STAGE: heir}
        schema = self.plan.frame.schema
        return pa.RecordBatch.from_arrays(
            [values[f.name] if f.name in values else pa.nulls(len(reports), f.type) for f in schema], schema=schema
        )


def _packed(results: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, results.schema) as writer:
        writer.write_batch(results)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for value in batch.column(0).drop_null():
            with pa.ipc.open_stream(value.as_buffer()) as reader:
                yield from reader
