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
from watersmeet.runtime.spark.storable import unsupported_type
from watersmeet.state.manifest import ResultFile
from watersmeet.state.storage import is_local

FILE_FORMATS = {
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat",
    "json": "org.apache.spark.sql.execution.datasources.json.JsonFileFormat",
    "csv": "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat",
    "text": "org.apache.spark.sql.execution.datasources.text.TextFileFormat",
}
SPARK_SINKS = "org.apache.spark.sql.execution.streaming.sinks"
LOG_FOLDER = "_spark_metadata"
LOG_VERSION = 1
BLOCK_BYTES = 32 << 20
KEYED_FORMATS = ("kafka", "noop")
"""Batch formats in which a later row can stand for an earlier one."""
COMPRESSIONS = ("snappy", "zstd", "gzip", "none")


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


def _jvm_class(spark: SparkSession, name: str) -> Any:
    target: Any = spark._jvm
    for part in name.split("."):
        target = getattr(target, part)
    return target


@dataclass(frozen=True, slots=True)
class FileSink:
    """Files of one format below a folder, through Spark's `FileStreamSink` and its log."""

    path: str
    format: str
    options: Mapping[str, str]
    partition_by: Sequence[str] = ()

    @property
    def description(self) -> str:
        return f"FileSink[{self.format}:{self.path}]"

    def require_mode(self, mode: OutputMode) -> None:
        if mode != "append":
            raise _only_appends(f"{self.format} files", mode)

    def require_types(self, spark: SparkSession, schema: StructType) -> None:
        """Refuse a column that the format cannot hold: when it is written, its epoch is committed."""
        writer = _jvm_class(spark, FILE_FORMATS[self.format])()
        for field in schema.fields:
            if not writer.supportDataType(spark._jsparkSession.parseDataType(field.dataType.json())):
                raise unsupported_type(field, f"{self.format} files cannot hold that")

    def require_epochs(self, spark: SparkSession, sent: int, committed: int) -> None:
        """The folder must end with an epoch from `sent` (the last one it surely has) to `committed`; -1 is none.

        Where it ends later, epochs would be taken for known ones and left out; where it ends earlier, its log would
        have a gap, and Spark could not read it.
        """
        found = self._last_epoch(spark)
        if found > committed:
            raise SinkError(
                f"{self.path} holds the output of another query ({LOG_FOLDER} exists)",
                hint="choose an empty path, or continue that query with its checkpointLocation",
            )
        if found < sent:
            raise SinkError(
                f"{self.path} lacks the output of earlier epochs: the checkpoint has sent epoch {sent}, "
                f"the folder ends with {'none' if found < 0 else found}",
                hint="a file sink cannot move: continue with the path that the query has written to before",
            )

    def _last_epoch(self, spark: SparkSession) -> int:
        """The last epoch in the sink's log, -1 if there is none."""
        log = _jvm_class(spark, "org.apache.hadoop.fs.Path")(self.path, LOG_FOLDER)
        files = log.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        entries = [status.getPath().getName() for status in files.listStatus(log)] if files.exists(log) else []
        epochs = [name.removesuffix(".compact") for name in entries]
        return max((int(name) for name in epochs if name.isdigit()), default=-1)

    def deliver(self, delivery: Delivery) -> None:
        if delivery.part_files is not None:
            self._add(delivery.session, delivery.part_files, delivery.epoch)
        elif not delivery.shows:
            self._add(delivery.session, (), delivery.epoch)
        else:
            self._write(delivery.read(), delivery.epoch)

    def _write(self, results: DataFrame, epoch: int) -> None:
        spark = results.sparkSession
        assert spark._jvm is not None
        convert = spark._jvm.PythonUtils
        sink = _jvm_class(spark, f"{SPARK_SINKS}.FileStreamSink")(
            spark._jsparkSession,
            self.path,
            _jvm_class(spark, FILE_FORMATS[self.format])(),
            convert.toSeq(list(self.partition_by)),
            convert.toScalaMap(dict(self.options)),
        )
        # Where no stream runs, in a recovery or a clean-up, the thread has no session that the writer would find.
        sessions = _jvm_class(spark, "org.apache.spark.sql.classic.SparkSession")
        sessions.setActiveSession(spark._jsparkSession)
        sink.addBatch(epoch, results._jdf)

    def takes_part_files(self, is_plain: bool) -> bool:
        """Whether tasks may write results into the folder themselves: plain columns, as Parquet, on a shared path."""
        options = {name.lower(): value.lower() for name, value in self.options.items()}
        simple = self.format == "parquet" and not self.partition_by and options.keys() <= {"path", "compression"}
        return is_plain and simple and self.compression in COMPRESSIONS and is_local(self.path)

    @property
    def compression(self) -> str:
        options = {name.lower(): value.lower() for name, value in self.options.items()}
        return options.get("compression", "snappy")

    def _add(self, spark: SparkSession, files: Sequence[tuple[Path, ResultFile]], epoch: int) -> None:
        """Name files that tasks have written as the results of an epoch; if the log knows the epoch, it has these."""
        status = _jvm_class(spark, f"{SPARK_SINKS}.SinkFileStatus")
        assert spark.sparkContext._gateway is not None
        named = spark.sparkContext._gateway.new_array(status, len(files))
        for i, (path, file) in enumerate(files):
            named[i] = status(path.as_uri(), file.bytes, False, file.modified_ms, 1, BLOCK_BYTES, "add")
        self.open_log(spark).add(epoch, named)

    def open_log(self, spark: SparkSession) -> Any:
        """Spark's log of the folder; made if it is missing. From then on readers see only what it names, so it must be
        there before the first task writes a file."""
        assert spark._jvm is not None
        location = f"{self.path}/{LOG_FOLDER}"
        log = _jvm_class(spark, f"{SPARK_SINKS}.FileStreamSinkLog")
        return log(LOG_VERSION, spark._jsparkSession, location, spark._jvm.scala.Option.empty())


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
            raise _only_appends(f"format '{self.format}'", mode)

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
        self._sink = _jvm_class(spark, "org.apache.spark.sql.execution.streaming.sources.MemorySink")()
        plan = _jvm_class(spark, "org.apache.spark.sql.execution.streaming.sources.MemoryPlan")
        jschema = spark._jsparkSession.parseDataType(schema.json())
        attributes = _jvm_class(spark, "org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(jschema)
        dataset = _jvm_class(spark, "org.apache.spark.sql.classic.Dataset")
        dataset.ofRows(spark._jsparkSession, plan(self._sink, attributes)).createOrReplaceTempView(name)

    def deliver(self, delivery: Delivery) -> None:
        if delivery.shows:
            self._sink.write(delivery.epoch, self._is_complete, delivery.read()._jdf.collect())

    def require_mode(self, mode: OutputMode) -> None:
        """As Spark's: complete replaces the rows, update adds the changed ones to them."""


def _only_appends(what: str, mode: str) -> SinkError:
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
