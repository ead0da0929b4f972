"""The writer of a join, in the manner of `DataStreamWriter`: sink, options, trigger, start."""

from __future__ import annotations

import os
import socket
import tempfile
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.errors import OptionError, QueryError, SinkError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.fingerprint import marks_of_format_1, plan_text, query_marks
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.log_files import start_with_quick_log_files
from watersmeet.runtime.spark.memory import budget_within, claim, run_folder
from watersmeet.runtime.spark.options import KNOWN, JoinOptions
from watersmeet.runtime.spark.outside import Outside
from watersmeet.runtime.spark.query import JoinQueryHandle
from watersmeet.runtime.spark.results import ResultPath, result_schema
from watersmeet.runtime.spark.sinks import (
    FILE_FORMATS,
    BatchSink,
    ConsoleSink,
    FileSink,
    FunctionSink,
    MemorySink,
    Sink,
    absolute,
    file_options,
)
from watersmeet.runtime.spark.slot_work import Folders
from watersmeet.runtime.spark.source import unite
from watersmeet.runtime.spark.storable import require_storable, with_source_types
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.storage import local_path

if TYPE_CHECKING:
    from watersmeet.runtime.spark.stream_join import StreamJoin


def _spill_settings(options: JoinOptions, budget_bytes: int | None) -> SpillSettings | None:
    if options.spill is None or budget_bytes is None:
        return None
    return SpillSettings(
        policy=options.spill,
        budget_bytes=budget_bytes,
        fraction=options.spill_fraction,
        upkeep=options.spill_upkeep,
    )


TRIGGERS = ("availableNow", "processingTime", "once")
FINITE_TRIGGERS = ("availableNow", "once")
FLEETING_FORMATS = ("memory", "console", "foreachbatch", "noop")
"""What they are given cannot outlive the driver."""


class JoinStreamWriter:
    """Says where the results go and starts the query."""

    def __init__(self, join: StreamJoin) -> None:
        self._join = join
        self._format = "parquet"
        self._options: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._query_name: str | None = None
        self._trigger: dict[str, Any] = {}
        self._partition_by: tuple[str, ...] = ()
        self._function: Callable[[DataFrame, int], None] | None = None
        self._mode: OutputMode = "append"

    def format(self, source: str) -> JoinStreamWriter:
        self._format = source.lower()
        return self

    def option(self, key: str, value: Any) -> JoinStreamWriter:
        """An option of the sink, or `checkpointLocation`; names are case-insensitive."""
        spelled = self._names.setdefault(key.lower(), key)
        self._options[spelled] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: Any) -> JoinStreamWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def queryName(self, queryName: str) -> JoinStreamWriter:
        if not queryName.strip():
            raise OptionError("queryName must not be empty")
        self._query_name = queryName
        return self

    def outputMode(self, outputMode: str) -> JoinStreamWriter:
        """Which rows an epoch sends: `append` (results that stay; the default), and for aggregates `update` (groups
        that have changed) or `complete` (all groups)."""
        modes = {mode.lower(): mode for mode in get_args(OutputMode)}
        if outputMode.lower() not in modes:
            raise QueryError(
                f"unknown output mode '{outputMode}'",
                hint=f"use one of {', '.join(modes)}",
                error_class="UNSUPPORTED_OUTPUT_MODE",
            )
        self._mode = modes[outputMode.lower()]
        return self

    def partitionBy(self, *cols: str) -> JoinStreamWriter:
        self._partition_by = cols
        return self

    def trigger(
        self, *, availableNow: bool | None = None, processingTime: str | None = None, once: bool | None = None
    ) -> JoinStreamWriter:
        """Exactly one of the three kinds, as in Spark."""
        given = {k: v for k, v in zip(TRIGGERS, (availableNow, processingTime, once), strict=True) if v is not None}
        if len(given) != 1:
            raise OptionError(f"trigger takes exactly one of {', '.join(TRIGGERS)}, not {sorted(given) or 'none'}")
        self._trigger = given
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> JoinStreamWriter:
        """Call `func(results, epoch)` for every epoch that may show something. Numbers of epochs rise (by more than one
        after a restart), and one that is sent again after a crash keeps its number and its results, so remembering the
        last number is enough to be exactly-once."""
        if not callable(func):
            raise SinkError("foreachBatch takes a function of (DataFrame, epoch)")
        self._function = func
        self._format = "foreachbatch"
        return self

    def toTable(self, tableName: str) -> JoinQueryHandle:
        """Start the query with a table as its sink; the table is made if it does not exist."""
        return self._start(lambda schema: self._table_sink(tableName, schema))

    def start(
        self, path: str | None = None, format: str | None = None, queryName: str | None = None, **options: Any
    ) -> JoinQueryHandle:
        """Check everything and start the query."""
        if format is not None:
            self.format(format)
        if path is not None:
            self.option("path", path)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)
        return self._start(self._sink)

    def _start(self, make_sink: Callable[[StructType], Sink]) -> JoinQueryHandle:
        spark = self._join.spark
        self._require_no_join_options()
        planner, options = self._join.planner(self._mode)
        query = planner.query
        if query.aggregation is None and self._mode != "append":
            raise QueryError(
                f"output mode '{self._mode}' does not fit a join without aggregates: it only ever adds results",
                hint="use outputMode('append'), which is the default",
                error_class="UNSUPPORTED_OUTPUT_MODE",
            )
        location = self._checkpoint_location()
        checkpoint = Checkpoint(local_path(location))
        run = uuid.uuid4().hex
        name = self._query_name or "(unnamed)"
        checkpoint.acquire(f"query '{name}', process {os.getpid()} on {socket.gethostname()}, run {run[:8]}")
        try:
            known = checkpoint.plan()
            plan = planner.first_plan() if known is None else planner.remembered_plan(known)
            marks = query_marks(query, plan)
            checkpoint.require_same_query(marks, marks_of_format_1(query, plan))
            if known is not None and plan_text(plan) != known.trees:
                raise checkpoint.different([f"plan: checkpoint has '{known.trees}', query has '{plan_text(plan)}'"])
            schema = with_source_types(result_schema(query, plan, spark), query, self._join.frames)
            require_storable(schema)
            sink = make_sink(schema)
            sink.require_mode(self._mode)
            results = ResultPath(query, schema, checkpoint.outbox, "checkpoint")
            if isinstance(sink, FileSink):
                sink.require_types(spark, schema)
                sink.require_epochs(spark, *checkpoint.sent_and_committed())
                if sink.takes_part_files(results.is_plain):
                    results = ResultPath(query, schema, local_path(sink.path), "sink", sink.compression)
            folder = run_folder(options.memory_location, checkpoint.identity(), run)
            budget = budget_within(folder, options.slots, options.memory_budget_bytes)
            is_finite = not self._trigger.keys().isdisjoint(FINITE_TRIGGERS)
            handle = JoinQueryHandle(planner, options.slots, sink.description, folder, is_finite=is_finite)
            driver = EpochDriver(
                plan,
                Outside(
                    checkpoint,
                    Folders(checkpoint.segments, folder, checkpoint.manifests, checkpoint.tasks),
                    results,
                    sink,
                    spark,
                    handle.note,
                    options.idle_timeout_ms,
                ),
                Coordinator(plan, options.slots, budget, _spill_settings(options, budget)),
                planner.plan_for if known is None and planner.waits_for_rows else None,
            )
            checkpoint.remember_query(marks)
            if isinstance(sink, FileSink):
                sink.open_log(spark)  # the first write to the sink, when all is checked
        except BaseException:
            checkpoint.release()
            raise
        watcher = claim(folder) if folder is not None else None
        try:
            writer = unite(query, self._join.frames).writeStream.foreachBatch(driver.run_batch)
            writer = writer.option("checkpointLocation", str(checkpoint.spark_location))
            if self._trigger:
                writer = writer.trigger(**self._trigger)
            if self._query_name:
                writer = writer.queryName(self._query_name)
            inner = start_with_quick_log_files(spark, writer.start)
        except BaseException:
            driver.close()
            if watcher is not None:
                watcher.close()
            raise
        return handle.attach(inner, driver, watcher)

    def _require_no_join_options(self) -> None:
        """An option of the join has no effect here; only a sink we do not know may have one of that name."""
        misplaced = [name for name in KNOWN if name.lower() in self._names]
        if misplaced and self._format in (*FILE_FORMATS, *FLEETING_FORMATS):
            raise OptionError(
                f"{misplaced[0]} is an option of the join, not of its output",
                hint=f"StreamJoin(spark).option('{misplaced[0]}', ...), before writeStream",
                error_class="MISPLACED_OPTION",
            )

    def _get(self, key: str) -> str | None:
        spelled = self._names.get(key.lower())
        return None if spelled is None else self._options[spelled]

    def _checkpoint_location(self) -> str:
        """Given, or below the session's default, or, for sinks that cannot outlive the driver, a temporary folder."""
        if (given := self._get("checkpointLocation")) is not None:
            return given
        default = self._join.spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        if default:
            return f"{default}/{self._query_name or uuid.uuid4().hex}"
        if self._format in FLEETING_FORMATS:
            return tempfile.mkdtemp(prefix="watersmeet-checkpoint-")
        raise OptionError(
            "checkpointLocation is missing",
            hint=".option('checkpointLocation', path), or set spark.sql.streaming.checkpointLocation",
            error_class="MISSING_CHECKPOINT_LOCATION",
        )

    def _sink(self, schema: StructType) -> Sink:
        spark = self._join.spark
        if self._function is not None and self._format == "foreachbatch":
            return FunctionSink(self._function)
        if self._format == "console":
            rows = self._get("numRows") or "20"
            if not rows.isdigit():
                raise OptionError(f"option numRows must be a whole number, not '{rows}'", hint="such as 20")
            return ConsoleSink(int(rows), (self._get("truncate") or "true").lower() == "true")
        if self._format == "memory":
            if not self._query_name:
                raise SinkError("the memory sink needs a queryName: it becomes the name of the view")
            return MemorySink(spark, self._query_name, schema, is_complete=self._mode == "complete")
        unknown = [column for column in self._partition_by if column not in schema.names]
        if unknown:
            raise SinkError(f"partitionBy names {unknown}, the result has {schema.names}")
        if self._format in FILE_FORMATS:
            path = self._get("path")
            if not path:
                raise SinkError(
                    f"the {self._format} sink needs a path", hint=".option('path', folder) or start(folder)"
                )
            return FileSink(absolute(path), self._format, file_options(self._options), self._partition_by)
        return BatchSink(self._format, file_options(self._options), self._partition_by, self._mode == "complete")

    def _table_sink(self, table: str, schema: StructType) -> Sink:
        spark = self._join.spark
        if not spark.catalog.tableExists(table):
            empty = spark.createDataFrame([], schema).write.format(self._format)
            if self._partition_by:
                empty = empty.partitionBy(*self._partition_by)
            if path := self._get("path"):
                empty = empty.option("path", path)
            empty.saveAsTable(table)
        details = {
            row[0]: row[1]
            for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").select("col_name", "data_type").collect()
        }
        provider = details.get("Provider", "").lower()
        if provider not in FILE_FORMATS:
            raise SinkError(
                f"table {table} is kept as {provider or 'a view'}",
                hint="use foreachBatch to write to tables of other kinds",
            )
        return FileSink(details["Location"], provider, file_options(self._options), self._partition_by)
