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

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructField, StructType

from watersmeet.epoch.memory_shares import MemoryShares
from watersmeet.engine.groups import with_intervals
from watersmeet.epoch.task import SlotReport
from watersmeet.errors import QueryError
from watersmeet.plan.frame import STAGE
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.expressions import quote
from watersmeet.query.logical import JoinQuery, SelectItem, internal_name
from watersmeet.runtime.epoch import Intake, arrived, closing_tasks, intake_of, one_report_per_task, slot_tasks
from watersmeet.runtime.spark.frames import filtered, frames, hashed, observed_intake, of_stage, split
from watersmeet.runtime.spark.grouping import sent_schema, struct_of, to_groups
from watersmeet.runtime.spark.part_files import PartFolder, remove_parts
from watersmeet.runtime.spark.slot_work import PACKED_DDL, Folders, group_work, report_from_json, slot_work, unpack
from watersmeet.runtime.spark.source import spark_type
from watersmeet.state.manifest import Manifest, Order
from watersmeet.state.part_file import PartFile

ARROW_BATCH_ROWS = 1 << 16
UNLIMITED = (1 << 31) - 1


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
            self._packed = nothing.mapInArrow(group_work(plan, tasks, folders), PACKED_DDL)
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
                self._packed = groups.mapInArrow(group_work(plan, tasks, folders), PACKED_DDL)
        if parts is None:
            self._packed = self._packed.persist(StorageLevel.MEMORY_AND_DISK)

    def _joined(self, rows: DataFrame, before: Manifest, folders: Folders, parts: PartFolder | None) -> DataFrame:
        """All stages in their order; the packed results of the last."""
        plan, last = self.plan, len(self.plan.stages) - 1
        sent: dict[int, list[DataFrame]] = defaultdict(list)
        for number, stage in enumerate(plan.stages):
            inbox = of_stage(rows, number) if last else rows
            if sent[number]:
                # The batch's rows come last: of the first child of a union, and of no other, Spark keeps aliases that
                # change nothing (`_time AS _time`), and an exchange below it would be like none of the others.
                inbox = split(plan, reduce(DataFrame.union, [*sent[number], inbox]), before.assignment, before.slots)
            tasks = slot_tasks(plan, before, number, self._duties.orders, self._duties.memory)
            work = slot_work(plan, tasks, folders, parts)
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
            return _selected(self.query, packed.mapInArrow(unpack, result_rows(self.plan)))
        seen = arrived(self.plan, after)

        def with_their_intervals(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return (with_intervals(aggregate, shown, seen) for shown in unpack(batches))

        return _selected(self.query, packed.mapInArrow(with_their_intervals, result_rows(self.plan)))

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


def frame_schema(plan: JoinPlan) -> StructType:
    return StructType([StructField(field.name, spark_type(field.type)) for field in plan.frame.schema])


def no_frames(session: SparkSession, plan: JoinPlan) -> DataFrame:
    """No rows, in a form that Spark does not see through: a relation it knows to be empty has no partitions. So the
    stage, which rows are chosen by, is no constant."""
    values = {field.name: "id" if field.name == STAGE else "NULL" for field in frame_schema(plan)}
    kinds = [field.dataType.simpleString() for field in frame_schema(plan)]
    columns = [f"CAST({value} AS {kind}) AS {name}" for (name, value), kind in zip(values.items(), kinds, strict=True)]
    return session.range(0, 1, 1, 1).filter("id < 0").selectExpr(*columns)
