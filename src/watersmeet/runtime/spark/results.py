"""How results are written to the outbox on Spark, and read from it.

| query                                               | files are written by                                           |
|-----------------------------------------------------|----------------------------------------------------------------|
| plain columns of joined rows                        | the tasks of the join, under the names of the select list      |
| select expressions, HAVING, predicates of Spark's   | a step of its own in the last stage, after the JVM's           |
|                                                     | expressions: so the outbox holds final rows, and an expression |
|                                                     | that fails does so before the commit                           |
| running aggregates with intervals                   | the tasks of the aggregation; the JVM's expressions are        |
|                                                     | applied when they are sent, because intervals need the counts  |
|                                                     | of the manifest                                                |

Files are in the folder of a plain, unpartitioned Parquet sink, and become its part files; for other sinks they are in
the checkpoint, and the JVM reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.engine.group_store import with_intervals
from watersmeet.epoch.after import arrived
from watersmeet.epoch.task_file import report_from_json, report_to_json
from watersmeet.errors import CheckpointError, QueryError
from watersmeet.plan.frame import REPORT
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.expressions import quote
from watersmeet.query.logical import JoinQuery, SelectItem, internal_name
from watersmeet.runtime.spark.group_exchange import of_rows, struct_of
from watersmeet.runtime.spark.sinks import Delivery, Sink
from watersmeet.runtime.spark.slot_work import report_rows
from watersmeet.state.manifest import Manifest
from watersmeet.state.outbox import ResultFolder, ResultWriter, require_whole
from watersmeet.state.part_files import ANYBODY, Maker, remove_attempts

REPORTS_DDL = "report string"
GLOB = re.compile(r"([{}\[\]*?\\])")
"""Characters with a special meaning in a path that Spark reads."""
READING = {  # overrides the session's settings
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "recursiveFileLookup": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}


@dataclass(frozen=True, slots=True)
class ResultPath:
    """The place and form in which the results of a query are written."""

    query: JoinQuery
    schema: StructType
    """The schema of the results."""
    folder: Path
    place: Literal["sink", "checkpoint"]
    compression: str = "snappy"
    maker: Maker = ANYBODY
    epoch: int = 0
    """The epoch of the files."""

    @property
    def is_plain(self) -> bool:
        """Whether the select list has only columns of joined rows, and Spark has nothing to filter."""
        query = self.query
        columns = all(item.column is not None for item in query.select)
        return query.aggregation is None and not query.spark_residuals and columns

    @property
    def is_finished_when_sent(self) -> bool:
        return self.query.confidence is not None

    @property
    def by_tasks(self) -> bool:
        """Whether the tasks of the last stage write the files themselves."""
        return self.is_plain or self.is_finished_when_sent

    def target(self) -> ResultFolder:
        """The target for the writers."""
        columns: tuple[tuple[str, str], ...] | None = None
        if self.is_plain:
            columns = tuple((internal_name(item.column), item.name) for item in self.query.select if item.column)
        elif not self.is_finished_when_sent:
            columns = tuple((_place(i), item.name) for i, item in enumerate(self.query.select))
        schema = None if columns is None else self.schema.json()
        return ResultFolder(self.folder, columns, schema, self.compression, self.maker, self.epoch)

    def remove_attempts(self) -> None:
        """Remove all files of this run's attempts at the epoch; no manifest will name them."""
        remove_attempts(self.folder, self.maker, self.epoch)

    def paths(self, manifest: Manifest, *, is_recovery: bool) -> list[Path]:
        """The files of an epoch's results; CheckpointError if one of them has changed. Files of an earlier run are read
        to check that."""
        if manifest.outbox.place != self.place and manifest.outbox.files:
            raise CheckpointError(
                f"the results of epoch {manifest.epoch} are waiting as files of the {manifest.outbox.place}",
                hint="start the query once with the sink it had before, which sends them",
            )
        require_whole(self.folder, manifest.outbox.files, reads=is_recovery)
        return [self.folder / file.name for file in manifest.outbox.files]


def result_path(sink: Sink, outbox: Path, maker: Maker, query: JoinQuery, schema: StructType) -> ResultPath:
    """Where the results of a query are written: by tasks into the sink's own folder if that is possible."""
    results = ResultPath(query, schema, outbox, "checkpoint", maker=maker)
    if (parts := sink.part_folder(is_plain=results.is_plain)) is None:
        return results
    return ResultPath(query, schema, parts.folder, "sink", parts.compression, maker)


def with_expressions(path: ResultPath, plan: JoinPlan, rows: DataFrame) -> DataFrame:
    """Apply the JVM's expressions to the rows of the last stage, and write them to files. The result is the reports
    from among the rows; those of the last stage name the files."""
    query = path.query
    for condition in _conditions(query):
        rows = rows.filter(f"{REPORT} IS NOT NULL OR ({condition})")
    texts = [f"{of_rows(_source(item))} AS {_place(i)}" for i, item in enumerate(query.select)]
    target, last = path.target(), plan.stage_count - 1

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        writer = ResultWriter(target, context.partitionId())
        reports: list[str] = []
        try:
            for batch in batches:
                is_row = pc.is_null(batch.column(REPORT))
                if pc.sum(is_row).as_py() < batch.num_rows:
                    reports += batch.column(REPORT).drop_null().to_pylist()
                    batch = batch.filter(is_row)
                if batch.num_rows:
                    writer.write(batch)
            yield report_rows(_with_files(reports, last, writer))
        finally:
            writer.abandon()

    return rows.selectExpr(*texts, REPORT).mapInArrow(write, REPORTS_DDL)


def _with_files(reports: Sequence[str], last: int, writer: ResultWriter) -> list[str]:
    """The reports, with this task's files added to its own report: the one of the last stage."""
    files = writer.close()
    if not files:
        return list(reports)
    found = []
    for text in reports:
        report = report_from_json(text)
        if report.stage == last and files:
            report, files = replace(report, files=files), ()
        found.append(report_to_json(report))
    return found


def delivery(
    path: ResultPath, plan: JoinPlan, manifest: Manifest, session: SparkSession, *, is_recovery: bool
) -> Delivery:
    """The delivery of a committed epoch to the sink; in a recovery, of an earlier run's epoch."""
    box, part_files = manifest.outbox, None
    if box.place == path.place == "sink":
        part_files = list(zip(path.paths(manifest, is_recovery=is_recovery), box.files, strict=True))

    def results() -> DataFrame:
        return _read(path, plan, manifest, session, path.paths(manifest, is_recovery=is_recovery))

    return Delivery(manifest.epoch, box.shows, session, part_files, results)


def _read(
    path: ResultPath, plan: JoinPlan, manifest: Manifest, session: SparkSession, paths: Sequence[Path]
) -> DataFrame:
    """The results of a committed epoch, read from its files."""
    if not path.is_finished_when_sent:
        return _files(session, paths, path.schema)
    aggregate = plan.aggregate
    assert aggregate is not None
    seen = arrived(plan, manifest)

    def finish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (with_intervals(aggregate, rows.cast(aggregate.shown_schema), seen) for rows in batches)

    shown = _files(session, paths, struct_of(aggregate.shown_schema))
    return selected(path.query, shown.mapInArrow(finish, struct_of(aggregate.output_schema)))


def _files(session: SparkSession, paths: Sequence[Path], schema: StructType) -> DataFrame:
    if not paths:
        return session.createDataFrame([], schema)
    reader = session.read.format("parquet").schema(schema).options(**READING)
    return reader.load([GLOB.sub(r"\\\1", str(path)) for path in paths])


def selected(query: JoinQuery, rows: DataFrame) -> DataFrame:
    """The select list over joined rows or groups, with the conditions that Spark evaluates."""
    for condition in _conditions(query):
        rows = rows.filter(condition)
    return rows.selectExpr(*(f"{_source(item)} AS {quote(item.name)}" for item in query.select))


def result_schema(query: JoinQuery, plan: JoinPlan, spark: SparkSession) -> StructType:
    """The schema of the results; raises Spark's error for an expression of the select list."""
    rows = struct_of(plan.output_schema if plan.aggregate is None else plan.aggregate.output_schema)
    try:
        return selected(query, spark.createDataFrame([], rows)).schema
    except AnalysisException as error:
        raise QueryError(f"the select list is refused by Spark: {error}", error_class="INVALID_SELECT") from error


def _conditions(query: JoinQuery) -> list[str]:
    if query.aggregation is None:
        return [predicate.sql for predicate in query.spark_residuals]
    return [] if query.aggregation.having is None else [query.aggregation.having]


def _source(item: SelectItem) -> str:
    if item.column is not None:
        return quote(internal_name(item.column))
    assert item.sql is not None
    return item.sql


def _place(number: int) -> str:
    """An internal name of a result column on its way to a file: the user's names may be anything."""
    return f"_r{number}"
