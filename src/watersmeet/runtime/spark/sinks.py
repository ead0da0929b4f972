"""Where results go. A sink is told the epoch, and being told twice is normal after a crash.

| sink                            | told an epoch twice                                                                |
|---------------------------------|------------------------------------------------------------------------------------|
| parquet, orc, json, csv, text   | skips the second: Spark's own file sink log (`_spark_metadata`), which also keeps  |
|                                 | readers through Spark from ever seeing half an epoch                               |
| `toTable`                       | the same, on the table's folder                                                    |
| foreachBatch                    | calls the function again with the same epoch: the function must be idempotent      |
| memory                          | skips the second                                                                   |
| console                         | prints it again                                                                    |
| any other batch format of Spark | appends again (at least once)                                                      |

At a power cut, files on a local path and `toTable` keep every epoch that was acknowledged (`file_sink.py`); for all
other sinks that is up to what they write to, and to the function.

Every epoch is delivered, also one that shows nothing: Spark's file log must have no gap. All other sinks leave it out.
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
"""Batch formats in which a later row can stand for an earlier one."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The results of a committed epoch, as files; what is read of them is valid until the sink returns."""

    epoch: int
    shows: bool
    session: SparkSession
    part_files: Sequence[tuple[Path, ResultFile]] | None
    """The files, if they lie in the sink's own folder."""
    read: Callable[[], DataFrame]


@dataclass(frozen=True, slots=True)
class SinkRun:
    """The run of a query that a sink is to serve."""

    session: SparkSession
    schema: StructType
    """Of the results."""
    owner: Owner
    maker: Maker
    sent: int
    """The last epoch that the sink surely has; -1 is none."""
    committed: int
    """The last epoch that it may have."""


class PartFolder(NamedTuple):
    """A sink's own folder, into which tasks write results as Parquet."""

    folder: Path
    compression: str


class Sink(Protocol):
    """Takes the results of an epoch; `deliver` returns when they are there to stay."""

    @property
    def description(self) -> str: ...

    def require_mode(self, mode: OutputMode) -> None:
        """Refuse an output mode that the sink cannot keep."""

    def for_run(self, run: SinkRun) -> Sink:
        """The sink as this run uses it. Refuses a run whose results it cannot hold, or that does not own it; writes
        nothing."""

    def part_folder(self, *, is_plain: bool) -> PartFolder | None:
        """Where tasks may write results themselves; `is_plain`: these are columns of joined rows."""

    def claim(self, run: SinkRun) -> None:
        """Take the sink for the run's checkpoint: the first write to it, when nothing is left that may refuse the
        query."""

    def deliver(self, delivery: Delivery) -> None: ...

    def leftovers(self) -> frozenset[str]:
        """Names of what may be left over of earlier runs of the checkpoint."""

    def sweep(self, seen: frozenset[str]) -> None:
        """Remove those leftovers that no epoch has named."""


def jvm_class(spark: SparkSession, name: str) -> Any:
    target: Any = spark._jvm
    for part in name.split("."):
        target = getattr(target, part)
    return target


def any_mode(_: OutputMode) -> None:
    """Nothing is refused."""


@dataclass(frozen=True, slots=True)
class PlainSink:
    """A sink that is a function of deliveries: it belongs to nobody, and runs leave nothing in it to be swept."""

    description: str
    write: Callable[[Delivery], None]
    """Called for every epoch that may show something."""
    require_mode: Callable[[OutputMode], None] = any_mode

    def for_run(self, run: SinkRun) -> PlainSink:
        return self

    def part_folder(self, *, is_plain: bool) -> None:
        return None

    def claim(self, run: SinkRun) -> None:
        """There is nothing to take."""

    def deliver(self, delivery: Delivery) -> None:
        if delivery.shows:
            self.write(delivery)

    def leftovers(self) -> frozenset[str]:
        return frozenset()

    def sweep(self, seen: frozenset[str]) -> None:
        """There is nothing to sweep."""


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
    """Results in the driver's memory, as a temporary view under the query's name; for looking and for tests. Modes are
    Spark's: complete replaces the rows, update adds the changed ones to them."""
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
    """The options a file sink passes on to Spark."""
    return {name: value for name, value in options.items() if name.lower() != "checkpointlocation"}


def absolute(path: str) -> str:
    return path if ":" in path.split("/", 1)[0] else os.path.abspath(path)
