"""The Spark job of an epoch: `step` per stage and slot in `mapInArrow`, with a shuffle before each.

    united batch ─ filter ─ frames ─ repartitionById ─ mapInArrow(step) ─┬─ collect reports (runs it)
                                         ▲                  │            └─ results: part files, or persisted,
                                         └── frames of the next stage        unpacked and sent to the sink

Where the sink takes part files, tasks write their results themselves (`part_files.py`) and yield reports only.
Otherwise it yields them packed as Arrow IPC bytes, a few large rows that cost nothing to keep. They are persisted, so
that they can go to the sink *after* the epoch is committed without running twice; if an executor is lost in between,
Spark computes the lost tasks again and they yield the same multiset.

With aggregates one more stage follows, on the groups (`grouping.py`); an epoch that closes windows is that stage alone.

A batch is read and shuffled once; every stage takes its rows from that one exchange. Where a stage also gets rows from
other stages, the union is shuffled again, because Spark cannot zip partitions that were placed by number.
"""

from __future__ import annotations

import gc
import json
import uuid
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel, TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructField, StructType

from watersmeet.adaptation.memory_shares import MemoryShares
from watersmeet.engine.aggregate import aggregate_step
from watersmeet.engine.groups import with_intervals
from watersmeet.engine.step import step
from watersmeet.engine.task import SlotReport, SlotTask
from watersmeet.errors import QueryError
from watersmeet.plan.frame import REPORT, RESULTS, STAGE
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.expressions import quote
from watersmeet.query.logical import JoinQuery, SelectItem, internal_name
from watersmeet.runtime.epoch import (
    Intake,
    arrived,
    closing_tasks,
    intake_of,
    named,
    one_report_per_task,
    slot_tasks,
)
from watersmeet.runtime.spark.frames import filtered, frames, hashed, observed_intake, of_stage, split
from watersmeet.runtime.spark.grouping import (
    received,
    reports_only,
    sent_schema,
    struct_of,
    to_groups,
    with_reports,
)
from watersmeet.runtime.spark.memory import remove_other_runs
from watersmeet.runtime.spark.part_files import PartFolder, PartWriter, remove_parts
from watersmeet.runtime.spark.source import spark_type
from watersmeet.state.manifest import ExtentRef, Manifest, Order, SegmentRef
from watersmeet.state.part_file import PartFile
from watersmeet.state.tiers import Tiers

PACKED = pa.schema([pa.field("report", pa.string()), pa.field("results", pa.binary())])
PACKED_DDL = "report string, results binary"
ARROW_BATCH_ROWS = 1 << 16
UNLIMITED = (1 << 31) - 1
PACKED_BYTES_MAX = 16 << 20
"""About so many bytes of groups are one value of a Spark row, which cannot have 2 GiB."""

_tasks_before = count()


@dataclass(frozen=True, slots=True)
class Folders:
    """Where tasks find and put state."""

    segments: Path
    memory: Path | None

    def tiers(self, task: SlotTask) -> Tiers:
        """The tiers of one slot in one stage."""
        return Tiers(self.segments, self.memory, task.memory_bytes)


@dataclass(frozen=True, slots=True)
class Duties:
    """What an epoch does beside joining: carry out orders, or close windows of the aggregation and nothing else."""

    orders: Sequence[Order] = ()
    closing: bool = False
    memory: MemoryShares | None = None


NO_DUTIES = Duties()


class EpochJob:
    """One run of one epoch. `reports` runs it; afterwards `part_files` names the results if tasks wrote them (`parts`),
    and otherwise `results` may be read until `close`."""

    def __init__(
        self,
        query: JoinQuery,
        plan: JoinPlan,
        before: Manifest,
        rows: DataFrame | SparkSession,
        folders: Folders,
        parts: PartFolder | None = None,
        duties: Duties = NO_DUTIES,
    ) -> None:
        """`rows` is the batch, or the session of an epoch without rows."""
        # The stream's own clone of the session: what is set here does not reach the user's.
        session = rows.sparkSession if isinstance(rows, DataFrame) else rows
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_ROWS))
        grouped = () if plan.aggregate is None else sent_schema(plan).types[:-1]
        if all(_has_fixed_width(kind) for kind in (*plan.frame.pool, *grouped)):
            # Spark would measure the batch after every row; rows of fixed width are bounded by their number.
            session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(UNLIMITED))
        self.query, self.plan, self.slots, self.parts = query, plan, before.slots, parts
        self._observation = Observation() if query.filters else None
        self._reports: list[SlotReport] = []
        self.part_files: list[PartFile] = []
        self._stages = range(plan.stage_count)
        self._duties = duties
        if duties.closing:
            assert plan.aggregate is not None
            self._stages = range(plan.aggregate.stage, plan.stage_count)
            nothing = session.range(0, before.slots, 1, before.slots)
            tasks = closing_tasks(plan, before, duties.memory)
            self._packed = nothing.mapInArrow(_group_work(plan, tasks, folders), PACKED_DDL)
        else:
            if isinstance(rows, DataFrame):
                kept = rows if self._observation is None else filtered(query, rows, self._observation)
                arrived_rows = frames(query, plan, kept)
            else:
                arrived_rows = no_frames(session, plan)
            exchanged = split(plan, arrived_rows, before.assignment, before.slots)
            self._packed = self._joined(exchanged, before, folders, parts)
            if plan.aggregate is not None:
                groups = split(plan, to_groups(query, plan, self._packed), before.assignment, before.slots)
                tasks = slot_tasks(plan, before, plan.aggregate.stage, memory=duties.memory)
                self._packed = groups.mapInArrow(_group_work(plan, tasks, folders), PACKED_DDL)
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
            tasks = slot_tasks(plan, before, number, self._duties.orders, self._duties.memory)
            work = _slot_work(plan, tasks, folders, parts)
            if number < last:
                passed = hashed(plan, inbox.mapInArrow(work, frame_schema(plan)))
                followers = stage.sends_to | {plan.heir(number)}
                if len(followers) > 1:
                    passed = split(plan, passed, before.assignment, before.slots)  # an exchange that they share
                for follower in followers:
                    sent[follower].append(of_stage(passed, follower) if len(followers) > 1 else passed)
        return inbox.mapInArrow(work, PACKED_DDL if plan.aggregate is None else struct_of(sent_schema(plan)))

    def reports(self) -> list[SlotReport]:
        """Run the job; one accepted report per stage and slot."""
        told_only = self.parts is not None  # tasks yield nothing else
        rows = (self._packed if told_only else self._packed.filter("report IS NOT NULL").select("report")).collect()
        told = [report_from_json(row[0]) for row in rows]
        accepted = one_report_per_task([report for report, _ in told], self._stages, self.slots)
        for report, files in told:
            if any(report is one for one in accepted):
                self.part_files += files
            else:
                remove_parts(files)
        self._reports = accepted
        return accepted

    def intake(self) -> Intake:
        """What the batch brought; call it after `reports`."""
        if self._observation is None:
            return intake_of(self.plan, self._reports)
        return observed_intake(self.query, self._observation)

    def results(self, after: Manifest) -> DataFrame:
        """The results under the names, and with the expressions, of the select list."""
        packed = self._packed.select("results")
        aggregate = self.plan.aggregate
        if aggregate is None or aggregate.confidence is None:
            return _selected(self.query, packed.mapInArrow(_unpack, result_rows(self.plan)))
        seen = arrived(self.plan, after)

        def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return (with_intervals(aggregate, shown, seen) for shown in _unpack(batches))

        return _selected(self.query, packed.mapInArrow(unpack, result_rows(self.plan)))

    def close(self) -> None:
        self._packed.unpersist()


def _has_fixed_width(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind)


def result_rows(plan: JoinPlan) -> StructType:
    """The rows that the select list is about: joined ones, or groups."""
    return struct_of(plan.output_schema if plan.aggregate is None else plan.aggregate.output_schema)


def _selected(query: JoinQuery, rows: DataFrame) -> DataFrame:
    """The select list over joined rows or groups, and what Spark filters them by."""
    conditions = [predicate.sql for predicate in query.spark_residuals]
    if query.aggregation is not None:
        conditions = [] if query.aggregation.having is None else [query.aggregation.having]
    for condition in conditions:
        rows = rows.filter(condition)
    return rows.selectExpr(*(_select_text(item) for item in query.select))


def result_schema(query: JoinQuery, plan: JoinPlan, spark: SparkSession) -> StructType:
    """The schema of the results; raises what Spark has against an expression of the select list."""
    try:
        return _selected(query, spark.createDataFrame([], result_rows(plan))).schema
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
    value["seen"] = {name: tuple(seen) for name, seen in value["seen"].items()}
    return SlotReport(**value), files


def frame_schema(plan: JoinPlan) -> StructType:
    return StructType([StructField(field.name, spark_type(field.type)) for field in plan.frame.schema])


def no_frames(session: SparkSession, plan: JoinPlan) -> DataFrame:
    """No rows, in a form that Spark does not see through: a relation it knows to be empty has no partitions. So the
    stage, which rows are chosen by, is no constant."""
    values = {field.name: "id" if field.name == STAGE else "NULL" for field in frame_schema(plan)}
    kinds = [field.dataType.simpleString() for field in frame_schema(plan)]
    columns = [f"CAST({value} AS {kind}) AS {name}" for (name, value), kind in zip(values.items(), kinds, strict=True)]
    return session.range(0, 1, 1, 1).filter("id < 0").selectExpr(*columns)


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


def _group_work(plan: JoinPlan, tasks: Sequence[SlotTask], folders: Folders):  # type: ignore[no-untyped-def]
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


def _slot_work(  # type: ignore[no-untyped-def]
    plan: JoinPlan, tasks: Sequence[SlotTask], folders: Folders, parts: PartFolder | None
):
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


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for value in batch.column(0).drop_null():
            yield from _unpacked(value.as_buffer())


def _unpacked(packed: bytes | pa.Buffer | None) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(packed) as reader:
        yield from reader
