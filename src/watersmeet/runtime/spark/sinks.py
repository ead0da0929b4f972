"""Sinks: where results go. Every delivery has its epoch; after a crash an epoch may be delivered twice.

| sink                            | an epoch delivered twice                                                           |
|---------------------------------|------------------------------------------------------------------------------------|
| parquet, orc, json, csv, text   | skips the second: Spark's own file sink log (`_spark_metadata`), which also keeps  |
|                                 | readers through Spark from ever seeing half an epoch                               |
| `toTable`                       | the same, on the table's folder                                                    |
| foreachBatch                    | calls the function again with the same epoch: the function must be idempotent      |
| memory                          | skips the second                                                                   |
| console                         | prints it again                                                                    |
| any other batch format of Spark | appends again (at least once)                                                      |

After a power cut, files on a local path and `toTable` still have every acknowledged epoch (`file_sink.py`). For all
other sinks this depends on their storage, or on the function.

An epoch without results is delivered too, because Spark's file log must have no gap. All other sinks skip it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import SinkError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.state.manifest import ResultFile
from watersmeet.state.part_files import Maker
from watersmeet.state.sink_owner import Owner

KEYED_FORMATS = ("kafka", "noop")
"""Batch formats in which a later row can replace an earlier one."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The results of a committed epoch, as files. A DataFrame over them is valid until the sink returns."""

    epoch: int
    shows: bool
    session: SparkSession
    part_files: Sequence[tuple[Path, ResultFile]] | None
    """The files, if they are in the sink's own folder."""
    read: Callable[[], DataFrame]


@dataclass(frozen=True, slots=True)
class SinkRun:
    """The run of a query that a sink serves."""

    session: SparkSession
    schema: StructType
    """The schema of the results."""
    owner: Owner
    maker: Maker
    sent: int
    """The last epoch that the sink has for certain; -1 if none."""
    committed: int
    """The last epoch that the sink may have."""


class PartFolder(NamedTuple):
    """A sink's own folder, into which tasks write results as Parquet."""

    folder: Path
    compression: str


class Sink(Protocol):
    """Takes the results of an epoch; `deliver` returns when they are stored in the sink."""

    @property
    def description(self) -> str: ...

    def require_mode(self, mode: OutputMode) -> None:
        """Refuse an output mode that the sink does not support."""

    def for_run(self, run: SinkRun) -> Sink:
        """The sink as this run uses it. Refuses a run whose results it cannot hold, or that does not own it; writes
        nothing."""

    def part_folder(self, *, is_plain: bool) -> PartFolder | None:
        """Where tasks may write results themselves; `is_plain`: results are plain columns of joined rows."""

    def claim(self, run: SinkRun) -> None:
        """Take the sink for the run's checkpoint. This is the first write to the sink; all checks of the query come
        before it."""

    def deliver(self, delivery: Delivery) -> None: ...

    def leftovers(self) -> frozenset[str]:
        """Names of files that earlier runs of the checkpoint may have left over."""

    def sweep(self, seen: frozenset[str]) -> None:
        """Remove the leftovers that no epoch names."""


def jvm_class(spark: SparkSession, name: str) -> Any:
    target: Any = spark._jvm
    for part in name.split("."):
        target = getattr(target, part)
    return target


def any_mode(_: OutputMode) -> None:
    """Accept every mode."""


@dataclass(frozen=True, slots=True)
class PlainSink:
    """A sink that is a function of deliveries: it has no owner, and runs leave no files in it to sweep."""

    description: str
    write: Callable[[Delivery], None]
    """Called for every epoch that may have results."""
    require_mode: Callable[[OutputMode], None] = any_mode

    def for_run(self, run: SinkRun) -> PlainSink:
        return self

    def part_folder(self, *, is_plain: bool) -> None:
        return None

    def claim(self, run: SinkRun) -> None:
        """Nothing to claim."""

    def deliver(self, delivery: Delivery) -> None:
        if delivery.shows:
            self.write(delivery)

    def leftovers(self) -> frozenset[str]:
        return frozenset()

    def sweep(self, seen: frozenset[str]) -> None:
        """Nothing to sweep."""


def function_sink(function: Callable[[DataFrame, int], None]) -> PlainSink:
    """The user's function, called with (DataFrame, epoch)."""
    return PlainSink("ForeachBatchSink", lambda delivery: function(delivery.read(), delivery.epoch))


def console_sink(rows: int, truncate: bool) -> PlainSink:
    """The first rows of every epoch, on the driver's standard output."""

    def write(delivery: Delivery) -> None:
        line = "-" * 43
        print(f"{line}\nEpoch: {delivery.epoch}\n{line}", flush=True)
        delivery.read().show(rows, truncate)

    return PlainSink("ConsoleSink", write)


def batch_sink(
    format: str, options: Mapping[str, str], partition_by: Sequence[str] = (), *, is_complete: bool = False
) -> PlainSink:
    """Any other batch format, appended to."""

    def require_mode(mode: OutputMode) -> None:
        if mode == "update" and format not in KEYED_FORMATS:
            raise only_appends(f"format '{format}'", mode)

    def write(delivery: Delivery) -> None:
        mode = "overwrite" if is_complete else "append"
        writer = delivery.read().write.format(format).options(**options).mode(mode)
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.save()

    return PlainSink(f"BatchSink[{format}]", write, require_mode)


def memory_sink(spark: SparkSession, name: str, schema: StructType, *, is_complete: bool = False) -> PlainSink:
    """Results in the driver's memory, as a temporary view under the query's name; for inspection and tests. Modes are
    Spark's: complete replaces the rows, update appends the changed ones."""
    sink = jvm_class(spark, "org.apache.spark.sql.execution.streaming.sources.MemorySink")()
    plan = jvm_class(spark, "org.apache.spark.sql.execution.streaming.sources.MemoryPlan")
    jschema = spark._jsparkSession.parseDataType(schema.json())
    attributes = jvm_class(spark, "org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(jschema)
    dataset = jvm_class(spark, "org.apache.spark.sql.classic.Dataset")
    dataset.ofRows(spark._jsparkSession, plan(sink, attributes)).createOrReplaceTempView(name)

    def write(delivery: Delivery) -> None:
        sink.write(delivery.epoch, is_complete, delivery.read()._jdf.collect())

    return PlainSink(f"MemorySink[{name}]", write)


def only_appends(what: str, mode: str) -> SinkError:
    return SinkError(
        f"{what} cannot be written in output mode '{mode}': earlier rows would have to change",
        hint="use foreachBatch with a MERGE into your table, or group by window(result_time, ...) and append",
        error_class="UNSUPPORTED_OUTPUT_MODE",
    )


def file_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a file sink passes on to Spark."""
    return {name: value for name, value in options.items() if name.lower() != "checkpointlocation"}


def absolute(path: str) -> str:
    return path if ":" in path.split("/", 1)[0] else os.path.abspath(path)
