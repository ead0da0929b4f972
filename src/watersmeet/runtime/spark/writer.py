"""The writer of a join, in the manner of `DataStreamWriter`: sink, options, trigger, start."""

from __future__ import annotations

import copy
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import IO, Any, get_args

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from watersmeet.epoch.after import initial_manifest
from watersmeet.errors import OptionError, QueryError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.planning.planner import Planner
from watersmeet.runtime.repair import require_tied
from watersmeet.runtime.spark import arguments, refusals
from watersmeet.runtime.spark.changing import ChangingDriver, asked
from watersmeet.runtime.spark.coordination import coordinator_of, coordinator_of_change
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.endless_state import warn_of_endless_state
from watersmeet.runtime.spark.file_sink import FILE_FORMATS
from watersmeet.runtime.spark.join_pieces import JoinPieces
from watersmeet.runtime.spark.learning import plan_for_batch
from watersmeet.runtime.spark.log_files import start_with_quick_log_files
from watersmeet.runtime.spark.memory import claim, require_room, run_folder
from watersmeet.runtime.spark.option_places import require_options_of_writer
from watersmeet.runtime.spark.options import KNOWN, JoinOptions
from watersmeet.runtime.spark.output_marks import target_of
from watersmeet.runtime.spark.outside import Outside
from watersmeet.runtime.spark.progress import resting
from watersmeet.runtime.spark.query import JoinQueryHandle
from watersmeet.runtime.spark.query_changes import Start, found_in
from watersmeet.runtime.spark.results import result_path
from watersmeet.runtime.spark.sink_choice import AskedSink, sink_of, table_sink
from watersmeet.runtime.spark.sinks import Sink, SinkRun
from watersmeet.runtime.spark.slot_work import Folders
from watersmeet.runtime.spark.source import unite
from watersmeet.runtime.spark.source_names import all_names, start_by_name
from watersmeet.runtime.spark.stopping import interruptible
from watersmeet.runtime.spark.storable import require_storable
from watersmeet.runtime.spark.triggers import FINITE_TRIGGERS, checked_trigger
from watersmeet.runtime.spark.workers import require_able_workers
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.folder_checks import cannot_keep_state, obstacle_to_folder
from watersmeet.state.part_files import Maker
from watersmeet.state.sink_owner import Owner
from watersmeet.state.storage import local_path
from watersmeet.state.temporary import TemporaryFolder, sweep_temporary


def _remove(temporary: TemporaryFolder | None) -> None:
    if temporary is not None:
        temporary.remove()


FLEETING_FORMATS = ("memory", "console", "foreachbatch", "noop")
"""Results in these formats do not outlive the driver."""


class JoinStreamWriter:
    """Configures the sink and starts the query."""

    def __init__(self, join: JoinPieces) -> None:
        self._join = join
        self._format = "parquet"
        self._is_format_given = False
        self._options: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._query_name: str | None = None
        self._trigger: dict[str, Any] = {}
        self._partition_by: tuple[str, ...] = ()
        self._function: Callable[[DataFrame, int], None] | None = None
        self._mode: OutputMode = "append"

    def format(self, source: str) -> JoinStreamWriter:
        """The format of the sink, as in Spark.

        >>> writer = join.writeStream.format("parquet")
        """
        self._format = arguments.text("format", source, "name a format, such as format('parquet')").strip().lower()
        self._is_format_given = True
        return self

    def option(self, key: str, value: Any) -> JoinStreamWriter:
        """An option of the sink, or `checkpointLocation`; names are case-insensitive.

        >>> writer = join.writeStream.option("checkpointLocation", "checkpoint")
        """
        key = arguments.text("the name of an option", key, "write option('name', value)")
        spelled = self._names.setdefault(key.lower(), key)
        self._options[spelled] = arguments.option_value(key, value)
        return self

    def options(self, **options: Any) -> JoinStreamWriter:
        """Several options at once.

        >>> writer = join.writeStream.options(path="out", checkpointLocation="checkpoint")
        """
        for key, value in options.items():
            self.option(key, value)
        return self

    def queryName(self, queryName: str) -> JoinStreamWriter:
        """The name of the query, and of the view of a memory sink.

        >>> writer = join.writeStream.format("memory").queryName("paid")
        """
        self._query_name = arguments.text("queryName", queryName, "name the query, such as queryName('paid')")
        return self

    def outputMode(self, outputMode: str) -> JoinStreamWriter:
        """Which rows an epoch sends: `append` (final results; the default), and for aggregates `update` (changed
        groups) or `complete` (all groups).

        >>> writer = join.writeStream.outputMode("update")
        """
        modes = {mode.lower(): mode for mode in get_args(OutputMode)}
        arguments.text("outputMode", outputMode, f"use one of {', '.join(modes)}")
        if outputMode.lower() not in modes:
            raise QueryError(
                f"unknown output mode '{outputMode}'",
                hint=f"use one of {', '.join(modes)}",
                error_class="UNSUPPORTED_OUTPUT_MODE",
            )
        self._mode = modes[outputMode.lower()]
        return self

    def partitionBy(self, *cols: str | Sequence[str]) -> JoinStreamWriter:
        """Columns whose values become folders of a file sink.

        >>> writer = join.writeStream.format("parquet").partitionBy("day")
        """
        self._partition_by = arguments.names("partitionBy", cols)
        return self

    def trigger(
        self,
        *,
        processingTime: str | timedelta | None = None,
        once: bool | None = None,
        continuous: str | None = None,
        availableNow: bool | None = None,
        realTime: str | None = None,
    ) -> JoinStreamWriter:
        """When micro-batches run: exactly one of `processingTime`, `once` and `availableNow`, as in Spark.

        >>> writer = join.writeStream.trigger(processingTime="10 seconds")
        """
        given = {"processingTime": processingTime, "once": once, "availableNow": availableNow}
        self._trigger = checked_trigger(given, {"continuous": continuous, "realTime": realTime})
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> JoinStreamWriter:
        """Call `func(results, epoch)` for every epoch that may have results. Epoch numbers increase (by more than one
        after a restart). An epoch that is sent again after a crash has the same number and results, so a function that
        remembers the last number is exactly-once.

        >>> writer = join.writeStream.foreachBatch(lambda results, epoch: print(epoch, results.count()))
        """
        self._function = arguments.batch_function(func)
        self._format = "foreachbatch"
        return self

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> JoinQueryHandle:
        """Start the query with a table as its sink; the table is made if it does not exist.

        >>> query = join.writeStream.option("checkpointLocation", checkpoint).toTable("offers")
        """
        arguments.text("the table of toTable", tableName, "write toTable('results')")
        self._take(format, outputMode, partitionBy, queryName, options)
        return self._start(lambda schema: table_sink(self._asked(), tableName, schema), f"table {tableName}")

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> JoinQueryHandle:
        """Check everything and start the query.

        >>> query = join.writeStream.start("out", format="parquet", checkpointLocation="checkpoint")
        """
        self._take(format, outputMode, partitionBy, queryName, options)
        if path is not None:
            self.option("path", path)
        target = target_of(self._format, self._options, self._query_name)
        return self._start(lambda schema: sink_of(self._asked(), schema), target)

    def _take(
        self,
        format: str | None,
        outputMode: str | None,
        partitionBy: str | Sequence[str] | None,
        queryName: str | None,
        options: dict[str, Any],
    ) -> None:
        """Take the arguments that `start` and `toTable` share."""
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)

    def _start(self, make_sink: Callable[[StructType], Sink], target: str) -> JoinQueryHandle:
        spark = self._join.spark
        are_all_known = self._format in (*FILE_FORMATS, *FLEETING_FORMATS)
        require_options_of_writer(self._options, KNOWN, are_all_known=are_all_known)
        planner, options = self._join.planner(self._mode)
        query = planner.query
        if query.aggregation is None and self._mode != "append":
            raise QueryError(
                f"output mode '{self._mode}' does not fit a join without aggregates: it only ever adds results",
                hint="use outputMode('append'), which is the default",
                error_class="UNSUPPORTED_OUTPUT_MODE",
            )
        if not self._is_finite:
            warn_of_endless_state(query)
        sweep_temporary()
        temporary, location = self._checkpoint_location()
        checkpoint = Checkpoint(local_path(location))
        if (obstacle := obstacle_to_folder(checkpoint.location)) is not None:
            raise cannot_keep_state(checkpoint.location, obstacle)
        run = uuid.uuid4().hex
        name = self._query_name or "(unnamed)"
        watcher: IO[bytes] | None = None
        checkpoint.acquire(f"query '{name}', process {os.getpid()} on {socket.gethostname()}, run {run[:8]}")
        try:
            found = found_in(checkpoint, self._asked_start(planner, options, target))
            plan, schema, change = found.plan, found.schema, found.change
            last = checkpoint.latest(plan)
            coordinator = coordinator_of(plan, planner, options, last)
            checkpoint.mend_spark_log(all_names(found.names))
            require_tied(checkpoint)
            require_storable(schema)
            sink = make_sink(schema)
            sink.require_mode(self._mode)
            owner, maker = Owner(checkpoint.uid(), location, name), Maker(checkpoint.uid(), run)
            served = SinkRun(spark, schema, owner, maker, *checkpoint.sent_and_committed())
            sink = sink.for_run(served)
            path_of = partial(result_path, sink, checkpoint.outbox, maker)
            folder = run_folder(options.memory_location, checkpoint.identity(), run)
            budget = options.memory_budget_bytes
            require_room(folder, options.slots, budget)
            start = initial_manifest(plan, options.slots) if last is None or change else last
            handle = JoinQueryHandle(
                spark,
                planner,
                resting(query, plan, start, coordinator),
                sink.description,
                folder,
                is_finite=self._is_finite,
                temporary=temporary,
            )
            hosts = require_able_workers(
                spark, options.slots, None if folder is None else options.memory_location, budget
            )
            coordinator.expect_hosts(hosts)
            outside = Outside(
                checkpoint,
                Folders(checkpoint.segments, folder, checkpoint.manifests, checkpoint.attempts, checkpoint.tasks),
                path_of(query, schema),
                sink,
                spark,
                handle._kept.note,
                handle._kept.note_resent,
                options.idle_timeout_ms,
            )
            choose = partial(plan_for_batch, planner) if found.is_new and planner.waits_for_rows else None
            driver = EpochDriver(plan, outside, coordinator, choose) if change is None else None
            if driver is not None:  # the coordinator now has the statistics of earlier runs
                handle._kept.note(resting(query, plan, start, coordinator))
            checkpoint.prepare()
            sink.claim(served)
            watcher = claim(folder) if folder is not None else None
            question = None
            if change is None:
                checkpoint.remember_query(found.written.marks, found.written.texts)
            else:
                question = asked(change.goal.reason, checkpoint.requests) if options.on_change == "ask" else None
                old = coordinator_of_change(change.plan, options)
                old.expect_hosts(hosts)
                carry_out = partial(change.carry_out, outside, found.written, old, path_of)
                driver = changing = ChangingDriver(plan, outside, coordinator, carry_out, question)
                if question is None:
                    changing.prepare()
            assert driver is not None
        except BaseException:
            checkpoint.release()
            if watcher is not None:
                watcher.close()
            _remove(temporary)
            raise
        try:
            batches = interruptible(driver, handle._stop_inner)
            writer = unite(query, self._join.frames_by_name).writeStream.foreachBatch(batches)
            writer = writer.option("checkpointLocation", str(checkpoint.spark_location))
            if self._trigger:
                writer = writer.trigger(**self._trigger)
            if self._query_name:
                writer = writer.queryName(self._query_name)
            begin = writer.start if found.names is None else partial(start_by_name, spark, writer.start)
            inner = start_with_quick_log_files(spark, begin)
        except BaseException:
            driver.close()
            if watcher is not None:
                watcher.close()
            _remove(temporary)
            raise
        succeed = partial(self._succeed, make_sink, target, None if temporary else location)
        return handle._attach(inner, driver, watcher, question, succeed)

    def _asked_start(self, planner: Planner, options: JoinOptions, target: str) -> Start:
        return Start(self._join, planner, options, self._format, self._mode, target, self._partition_by)

    def _succeed(
        self,
        make_sink: Callable[[StructType], Sink],
        target: str,
        location: str | None,
        driver: EpochDriver,
        stop: Callable[[], None],
        join: JoinPieces,
    ) -> JoinQueryHandle:
        """Stop a query that was started by this writer, and start another join in its place, on the same checkpoint
        and sink. What cannot be had is refused before the stop."""
        if location is None:
            raise refusals.no_lasting_checkpoint()
        writer = copy.copy(self)
        writer._options, writer._names = dict(self._options), dict(self._names)
        writer._join = join.to_change()
        writer.option("checkpointLocation", location)
        with driver.gate:
            planner, options = writer._join.planner(self._mode)
            found = found_in(Checkpoint(local_path(location)), writer._asked_start(planner, options, target))
        if found.change is None:
            raise refusals.nothing_to_change()
        stop()
        return writer._start(make_sink, target)

    @property
    def _is_finite(self) -> bool:
        """Whether the query ends by itself."""
        return not self._trigger.keys().isdisjoint(FINITE_TRIGGERS)

    def _get(self, key: str) -> str | None:
        spelled = self._names.get(key.lower())
        return None if spelled is None else self._options[spelled]

    def _asked(self) -> AskedSink:
        return AskedSink(
            self._join.spark,
            self._format,
            self._options,
            self._partition_by,
            self._function if self._format == "foreachbatch" else None,
            self._query_name,
            self._mode == "complete",
            self._is_format_given,
        )

    def _checkpoint_location(self) -> tuple[TemporaryFolder | None, str]:
        """The given location; else one below the session's default; else, for sinks that do not outlive the driver, a
        temporary folder."""
        if (given := self._get("checkpointLocation")) is not None:
            return None, given
        default = self._join.spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        if default:
            return None, f"{default}/{self._query_name or uuid.uuid4().hex}"
        if self._format in FLEETING_FORMATS:
            temporary = TemporaryFolder()
            return temporary, str(temporary.path)
        raise OptionError(
            "checkpointLocation is missing",
            hint="write .option('checkpointLocation', path), or set spark.sql.streaming.checkpointLocation",
            error_class="MISSING_CHECKPOINT_LOCATION",
        )
