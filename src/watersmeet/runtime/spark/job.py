"""The Spark job of an epoch: `step` per slot in `mapInArrow`, one shuffle before it, packed results after it.

    united batch ─ observe ─ filter ─ hash ─ repartitionById ─ mapInArrow(step) ─ persist ─┬─ collect reports (runs it)
                                                                                          └─ unpack ─ results

A task yields its results packed as Arrow IPC bytes, a few large rows that cost nothing to keep, and last its report.
They are persisted, so that the results can go to the sink *after* the epoch is committed without running twice; if
an executor is lost in between, Spark computes the lost tasks again and they yield the same multiset.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructField, StructType

from watersmeet.engine.fold import SlotReport, SlotTask
from watersmeet.engine.step import step
from watersmeet.errors import QueryError
from watersmeet.plan.mjoin import MJoinPlan
from watersmeet.query.expressions import quote
from watersmeet.query.logical import JoinQuery, SelectItem, internal_name
from watersmeet.runtime.epoch import Intake, named, one_report_per_slot, slot_tasks
from watersmeet.runtime.spark.memory import remove_other_runs
from watersmeet.runtime.spark.source import intake_of, observe, spark_type, split
from watersmeet.state.manifest import ExtentRef, Manifest, SegmentRef
from watersmeet.state.tiers import Tiers

PACKED = pa.schema([pa.field("report", pa.string()), pa.field("results", pa.binary())])
PACKED_DDL = "report string, results binary"
ARROW_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Folders:
    """Where tasks find and put state, and how much of it may be in memory per slot."""

    segments: Path
    memory: Path | None
    budget_bytes: int | None


class EpochJob:
    """One run of one epoch. `reports` runs it; `results` may be read until `close`."""

    def __init__(self, query: JoinQuery, plan: MJoinPlan, before: Manifest, batch: DataFrame, folders: Folders) -> None:
        session = batch.sparkSession  # the stream's own clone: what is set here does not reach the user's session
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_ROWS))
        self.query, self.plan, self.slots = query, plan, before.slots
        self._observation = Observation()
        kept = observe(query, plan, batch, self._observation)
        shares = split(plan, kept, before.assignment, before.slots)
        work = _slot_work(plan, slot_tasks(before), folders)
        self._packed = shares.mapInArrow(work, PACKED_DDL).persist(StorageLevel.MEMORY_AND_DISK)

    def reports(self) -> list[SlotReport]:
        """Run the job; one accepted report per slot."""
        rows = self._packed.filter("report IS NOT NULL").select("report").collect()
        return one_report_per_slot([report_from_json(row[0]) for row in rows], self.slots)

    def intake(self) -> Intake:
        return intake_of(self.plan, self._observation)

    def results(self) -> DataFrame:
        """The results under the names, and with the expressions, of the select list."""
        unpacked = self._packed.select("results").mapInArrow(_unpack, joined_schema(self.plan))
        return unpacked.selectExpr(*(_select_text(item) for item in self.query.select))

    def close(self) -> None:
        self._packed.unpersist()


def joined_schema(plan: MJoinPlan) -> StructType:
    return StructType([StructField(f.name, spark_type(f.type)) for f in plan.output_schema])


def result_schema(query: JoinQuery, plan: MJoinPlan, spark: SparkSession) -> StructType:
    """The schema of the results; raises what Spark has against an expression of the select list."""
    try:
        return spark.createDataFrame([], joined_schema(plan)).selectExpr(*map(_select_text, query.select)).schema
    except AnalysisException as error:
        raise QueryError(f"the select list is refused by Spark: {error}", error_class="INVALID_SELECT") from error


def _select_text(item: SelectItem) -> str:
    source = item.sql if item.column is None else quote(internal_name(item.column))
    return f"{source} AS {quote(item.name)}"


def report_to_json(report: SlotReport) -> str:
    return json.dumps(asdict(report))


def report_from_json(text: str) -> SlotReport:
    value = json.loads(text)
    value["extents"] = tuple(ExtentRef(**entry) for entry in value["extents"])
    value["segments"] = tuple(SegmentRef(**entry) for entry in value["segments"])
    return SlotReport(**value)


def _slot_work(plan: MJoinPlan, tasks: Sequence[SlotTask], folders: Folders):  # type: ignore[no-untyped-def]
    def work(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if folders.memory is not None and not folders.memory.exists():
            remove_other_runs(folders.memory)
        attempt = f"{context.taskAttemptId():x}{uuid.uuid4().hex[:8]}"
        tiers = Tiers(folders.segments, folders.memory, folders.budget_bytes)
        running = step(plan, named(tasks[context.partitionId()], attempt), frames, tiers)
        while True:
            try:
                yield _pack(None, next(running))
            except StopIteration as done:
                yield _pack(report_to_json(done.value), None)
                return

    return work


def _pack(report: str | None, results: pa.RecordBatch | None) -> pa.RecordBatch:
    packed = None
    if results is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, results.schema) as writer:
            writer.write_batch(results)
        packed = sink.getvalue().to_pybytes()
    return pa.RecordBatch.from_arrays([pa.array([report], pa.string()), pa.array([packed], pa.binary())], schema=PACKED)


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for value in batch.column(0).drop_null():
            with pa.ipc.open_stream(value.as_buffer()) as reader:
                yield from reader
