"""The Spark job of an epoch: `step` per stage and slot in `mapInArrow`, with a shuffle before each.

    united batch ─ filter ─ frames ─ repartitionById ─ mapInArrow(step) ─┬─ reports, which name files of results
                                         ▲                  │            └─ or rows ─ expressions ─ files, reports
                                         └── frames of the next stage

Collecting the reports runs the job, once; the driver receives nothing else. A file (`epoch/task_file.py`) describes
all tasks, and each task reads its own part.

With aggregates one more stage follows, on the groups (`grouping.py`); an epoch that closes windows is that stage alone.

A batch is read and shuffled once; every stage takes its rows from that one exchange. Where a stage also gets rows from
other stages, the union is shuffled again, because Spark cannot zip partitions that were placed by number. On several
hosts rows are shuffled so that slots stay at home (`homes.py`).
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructField, StructType

from watersmeet.engine.inbox import CHUNK_BYTES
from watersmeet.epoch.key_sketch import KeyClasses
from watersmeet.epoch.kinds import Backfill, Build, Complete, Epoch, stages_of
from watersmeet.epoch.memory_shares import MemoryShares
from watersmeet.epoch.task import Intake, Outcome, SlotReport, intake_of, no_intake, one_report_per_task
from watersmeet.epoch.task_file import report_from_json, write_tasks
from watersmeet.epoch.tasks import feeding_stage, feeds_in, tasks_of
from watersmeet.plan.frame import REPORT, STAGE
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.spark.frames import filtered, frames, hashed, observed_intake, of_stage, split
from watersmeet.runtime.spark.group_exchange import sent_schema, shown_schema, struct_of, to_groups
from watersmeet.runtime.spark.homes import Anchor, Homes
from watersmeet.runtime.spark.results import REPORTS_DDL, ResultPath, with_expressions
from watersmeet.runtime.spark.slot_work import Folders, feed_work, group_work, slot_work
from watersmeet.runtime.spark.source import spark_type
from watersmeet.state import attempts
from watersmeet.state.host_sweep import Dropped
from watersmeet.state.manifest import Manifest
from watersmeet.state.outbox import remove_results
from watersmeet.state.widths import is_fixed

ARROW_BATCH_ROWS = 1 << 16
UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class JobSetting:
    """The settings that all jobs of a query share."""

    plan: JoinPlan
    results: ResultPath
    folders: Folders
    """`tasks` is the folder of task files."""
    homes: Homes


@dataclass(frozen=True, slots=True)
class Work:
    """An epoch to run: its state, the memory per slot and stage, the segments that recent commits dropped, and the key
    classes to sketch."""

    epoch: Epoch
    before: Manifest
    memory: MemoryShares | None
    dropped: Dropped
    sketches: tuple[KeyClasses, ...] = ()


def run_epoch(setting: JobSetting, work: Work, rows: DataFrame | SparkSession) -> Outcome:
    """Run an epoch; `rows` is the batch, or the session of an epoch without rows. The outcome is durable. All other
    segments that attempts wrote are removed, and if the epoch fails, also all result files."""
    stages = stages_of(setting.plan, work.epoch)
    if not stages:
        return Outcome((), no_intake(setting.plan))
    tasks = tasks_of(setting.plan, work.before, work.epoch, work.memory, work.sketches)
    path = setting.folders.tasks / f"{work.before.epoch + 1}-{uuid.uuid4().hex}"
    attempts.begin(setting.folders.attempts)
    write_tasks(path, tasks, work.dropped)
    accepted: set[str] = set()
    results = replace(setting.results, epoch=work.before.epoch + 1)
    try:
        job = _Job(replace(setting, results=results), work, replace(setting.folders, tasks=path))
        outcome = job.run(rows, stages)
        accepted = outcome.segments
        return outcome
    except BaseException:
        results.remove_attempts()
        raise
    finally:
        attempts.end(setting.folders.attempts, setting.folders.segments, accepted)
        path.unlink(missing_ok=True)


class _Job:
    """The job of one epoch."""

    def __init__(self, setting: JobSetting, work: Work, folders: Folders) -> None:
        self.plan, self.results, self.query = setting.plan, setting.results, setting.results.query
        self.before, self.folders = work.before, folders
        self._epoch, self._is_build = work.epoch, isinstance(work.epoch, Build | Backfill | Complete)
        self._observation: Observation | None = None
        self._homes = setting.homes
        self._anchor: Anchor | None = None

    def run(self, rows: DataFrame | SparkSession, stages: range) -> Outcome:
        """Accept one report per stage and slot; the files of other attempts are removed."""
        session = rows.sparkSession if isinstance(rows, DataFrame) else rows
        self._configure(session)
        self._anchor = self._homes.anchor(session, self.before.slots)
        told = [report_from_json(row[0]) for row in self._reports(rows, stages).collect()]
        accepted = one_report_per_task(told, stages, self.before.slots)
        for report in told:
            if not any(report is one for one in accepted):
                remove_results(self.results.folder, report.files)
        return Outcome(accepted, self._intake(accepted))

    def _configure(self, session: SparkSession) -> None:
        # This is the stream's clone of the session: settings made here do not reach the user's session.
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_ROWS))
        grouped = () if self.plan.aggregate is None else sent_schema(self.plan).types[:-1]
        # With a limit in bytes, Spark measures a batch after every row. Rows of fixed width need only a limit in rows.
        is_narrow = all(is_fixed(kind) for kind in (*self.plan.frame.pool, *grouped))
        bytes_max = UNLIMITED if is_narrow else CHUNK_BYTES
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(bytes_max))

    def _intake(self, reports: list[SlotReport]) -> Intake:
        if self._observation is None:
            return intake_of(self.plan, reports)
        return observed_intake(self.query, self._observation)

    def _reports(self, rows: DataFrame | SparkSession, stages: range) -> DataFrame:
        plan, joins = self.plan, stages[0] < len(self.plan.stages)
        if self._is_build:
            return self._joined(rows).select(REPORT).filter(f"{REPORT} IS NOT NULL")
        last = self._joined(rows) if joins else self._nothing(rows)
        if plan.aggregate is None:
            return last if self.results.by_tasks else with_expressions(self.results, plan, last)
        if joins:
            last = self._split(to_groups(self.query, plan, last))
        target = self.results.target() if self.results.by_tasks else None
        schema = REPORTS_DDL if target is not None else struct_of(shown_schema(plan))
        groups = last.mapInArrow(group_work(plan, self.folders, target), schema)
        return groups if target is not None else with_expressions(self.results, plan, groups)

    def _nothing(self, session: DataFrame | SparkSession) -> DataFrame:
        """No rows, or placeholders, that make Spark start a task for every slot."""
        assert isinstance(session, SparkSession)
        if self._anchor is not None:
            return self._anchor.tasks(session)
        return session.range(0, self.before.slots, 1, self.before.slots)

    def _joined(self, rows: DataFrame | SparkSession) -> DataFrame:
        """Run all stages of the join in order. The result is reports, and rows where results flow on."""
        plan, last = self.plan, len(self.plan.stages) - 1
        exchanged = self._split(self._frames(rows))
        shows = plan.aggregate is None and not self._is_build
        target = self.results.target() if shows and self.results.by_tasks else None
        sent: dict[int, list[DataFrame]] = defaultdict(list)
        for number, stage in enumerate(plan.stages):
            inbox = of_stage(exchanged, number) if last else exchanged
            if sent[number]:
                # The batch's rows come last in the union. Spark keeps no-op aliases (`_time AS _time`) of the first
                # child only, and with them an exchange would equal no other, so it could not be reused.
                inbox = self._split(reduce(DataFrame.union, [*sent[number], inbox]))
            work = slot_work(plan, number, self.folders, target)
            if number < last:
                passed = hashed(plan, inbox.mapInArrow(work, frame_schema(plan)))
                followers = stage.sends_to | {plan.carrier(number)}
                if len(followers) > 1:
                    passed = self._split(passed)  # all stages share this exchange
                for follower in followers:
                    sent[follower].append(of_stage(passed, follower) if len(followers) > 1 else passed)
        return inbox.mapInArrow(work, REPORTS_DDL if target is not None else struct_of(sent_schema(plan)))

    def _split(self, rows: DataFrame) -> DataFrame:
        return split(self.plan, rows, self.before.placement, self._anchor)

    def _frames(self, rows: DataFrame | SparkSession) -> DataFrame:
        if isinstance(rows, SparkSession):
            feeds = feeds_in(self._epoch)
            if not feeds:
                return no_frames(rows, self.plan)
            work = feed_work(self.plan, feeding_stage(self.plan, self._epoch), feeds, self.folders)
            return hashed(self.plan, self._nothing(rows).mapInArrow(work, frame_schema(self.plan)))
        if self.query.filters:
            self._observation = Observation()
            rows = filtered(self.query, rows, self._observation)
        return frames(self.query, self.plan, rows)


def frame_schema(plan: JoinPlan) -> StructType:
    return StructType([StructField(field.name, spark_type(field.type)) for field in plan.frame.schema])


def no_frames(session: SparkSession, plan: JoinPlan) -> DataFrame:
    """No rows, in a form that Spark's optimiser does not recognise: a relation known to be empty has no partitions. So
    the stage column, which selects rows, is not a constant."""
    values = {field.name: "id" if field.name == STAGE else "NULL" for field in frame_schema(plan)}
    kinds = [field.dataType.simpleString() for field in frame_schema(plan)]
    columns = [f"CAST({value} AS {kind}) AS {name}" for (name, value), kind in zip(values.items(), kinds, strict=True)]
    return session.range(0, 1, 1, 1).filter("id < 0").selectExpr(*columns)
