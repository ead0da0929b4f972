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
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import SinkError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.state.manifest import ResultFile

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


class Sink(Protocol):
    """Takes the results of an epoch; returns when they are there to stay."""

    @property
    def description(self) -> str: ...

    def require_mode(self, mode: OutputMode) -> None:
        """Refuse an output mode that the sink cannot keep."""

    def deliver(self, delivery: Delivery) -> None: ...


def jvm_class(spark: SparkSession, name: str) -> Any:
    target: Any = spark._jvm
    for part in name.split("."):
        target = getattr(target, part)
    return target


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """The user's function, called with (DataFrame, epoch)."""

    function: Callable[[DataFrame, int], None]
    description: str = "ForeachBatchSink"

    def require_mode(self, mode: OutputMode) -> None:
        """The function takes what it is given."""

    def deliver(self, delivery: Delivery) -> None:
        if delivery.shows:
            self.function(delivery.read(), delivery.epoch)


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """The first rows of every epoch, on the driver's standard output."""

    rows: int
    truncate: bool
    description: str = "ConsoleSink"

    def require_mode(self, mode: OutputMode) -> None:
        """All modes can be printed."""

    def deliver(self, delivery: Delivery) -> None:
        if delivery.shows:
            line = "-" * 43
            print(f"{line}\nEpoch: {delivery.epoch}\n{line}", flush=True)
            delivery.read().show(self.rows, self.truncate)


@dataclass(frozen=True, slots=True)
class BatchSink:
    """Any other batch format, appended to."""

    format: str
    options: Mapping[str, str]
    partition_by: Sequence[str] = ()
    is_complete: bool = False

    @property
    def description(self) -> str:
        return f"BatchSink[{self.format}]"

    def require_mode(self, mode: OutputMode) -> None:
        if mode == "update" and self.format not in KEYED_FORMATS:
            raise only_appends(f"format '{self.format}'", mode)

    def deliver(self, delivery: Delivery) -> None:
        if not delivery.shows:
            return
        mode = "overwrite" if self.is_complete else "append"
        writer = delivery.read().write.format(self.format).options(**self.options).mode(mode)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save()


class MemorySink:
    """Results in the driver's memory, as a temporary view under the query's name; for looking and for tests."""

    def __init__(self, spark: SparkSession, name: str, schema: StructType, *, is_complete: bool = False) -> None:
        self.description, self._is_complete = f"MemorySink[{name}]", is_complete
        self._sink = jvm_class(spark, "org.apache.spark.sql.execution.streaming.sources.MemorySink")()
        plan = jvm_class(spark, "org.apache.spark.sql.execution.streaming.sources.MemoryPlan")
        jschema = spark._jsparkSession.parseDataType(schema.json())
        attributes = jvm_class(spark, "org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(jschema)
        dataset = jvm_class(spark, "org.apache.spark.sql.classic.Dataset")
        dataset.ofRows(spark._jsparkSession, plan(self._sink, attributes)).createOrReplaceTempView(name)

    def deliver(self, delivery: Delivery) -> None:
        if delivery.shows:
            self._sink.write(delivery.epoch, self._is_complete, delivery.read()._jdf.collect())

    def require_mode(self, mode: OutputMode) -> None:
        """As Spark's: complete replaces the rows, update adds the changed ones to them."""


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
