"""The file sink: files of one format in a folder, named epoch by epoch in Spark's own log (`_spark_metadata`).

| results                    | who writes the files                           | on a local path                    |
|----------------------------|------------------------------------------------|------------------------------------|
| plain columns, as Parquet, | tasks, into the folder (`state/outbox.py`)     | named when they are durable        |
| not partitioned            |                                                |                                    |
| all others                 | Spark's writers, in a folder of their own,     | synced, moved into the folder, and |
|                            | until they are moved (`state/sink_folder.py`)  | only then named                    |

So on a local path the log names durable files only, and `deliver` returns when its entry is durable too. On other
kinds of storage Spark's `FileStreamSink` writes files and log as for any query, and durability depends on that storage.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import SinkError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.runtime.spark.sink_places import writing_results
from watersmeet.runtime.spark.sinks import Delivery, PartFolder, SinkRun, jvm_class, only_appends
from watersmeet.runtime.spark.storable import unsupported_type
from watersmeet.state.part_files import ANYBODY, Maker
from watersmeet.state.sink_folder import LOG_FOLDER, Parts, SinkFolder
from watersmeet.state.sink_owner import MARK, Owner
from watersmeet.state.storage import create, local_path

FILE_FORMATS = {
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat",
    "json": "org.apache.spark.sql.execution.datasources.json.JsonFileFormat",
    "csv": "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat",
    "text": "org.apache.spark.sql.execution.datasources.text.TextFileFormat",
}
SPARK_SINKS = "org.apache.spark.sql.execution.streaming.sinks"
LOG_VERSION = 1
BLOCK_BYTES = 32 << 20
COMPRESSIONS = ("snappy", "zstd", "gzip", "none")


@dataclass(frozen=True, slots=True)
class FileSink:
    path: str
    format: str
    options: Mapping[str, str]
    partition_by: Sequence[str] = ()
    local: SinkFolder | None = None
    """The folder, if it is on a local path."""
    maker: Maker = ANYBODY
    make_table: Callable[[], None] | None = None
    """Makes the table whose files these are, if it does not exist yet."""

    @property
    def description(self) -> str:
        return f"FileSink[{self.format}:{self.path}]"

    def for_run(self, run: SinkRun) -> FileSink:
        self._require_types(run.session, run.schema)
        located = self.located(run.session, run.maker)
        located._require_owner(run.session, run.owner)
        located._require_epochs(run.session, run.sent, run.committed)
        return located

    def located(self, spark: SparkSession, maker: Maker) -> FileSink:
        """The sink for a checkpoint, with its kind of storage determined."""
        is_local = self._files(spark).getUri().getScheme() == "file"
        return replace(self, local=SinkFolder(local_path(self.path)) if is_local else None, maker=maker)

    def require_mode(self, mode: OutputMode) -> None:
        if mode != "append":
            raise only_appends(f"{self.format} files", mode)

    def _require_types(self, spark: SparkSession, schema: StructType) -> None:
        """Refuse a column that the format cannot hold: a write would fail only after the commit of its epoch."""
        writer = jvm_class(spark, FILE_FORMATS[self.format])()
        for field in schema.fields:
            if field.name not in self.partition_by and not writer.supportDataType(
                spark._jsparkSession.parseDataType(field.dataType.json())
            ):
                raise unsupported_type(field, f"{self.format} files cannot hold that")

    def _require_epochs(self, spark: SparkSession, sent: int, committed: int) -> None:
        """The last epoch in the folder must be from `sent` (it has this one for certain) to `committed`; -1 is none.

        If it is later, new epochs would be taken for known ones and skipped. If it is earlier, the log would have a
        gap, and Spark could not read it.
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

    def _require_owner(self, spark: SparkSession, owner: Owner) -> None:
        """Refuse a folder that another checkpoint has taken."""
        mark, files = self._log_path(spark, MARK), self._files(spark)
        if files.exists(mark):
            stream = files.open(mark)
            try:
                owner.require(self.path, mark.toString(), bytes(stream.readAllBytes()))
            finally:
                stream.close()

    def claim(self, run: SinkRun) -> None:
        """Take the folder for a checkpoint, unless another has taken it: of two that start at once, one is refused."""
        spark, owner = run.session, run.owner
        if self.make_table is not None:
            self.make_table()
        if self.local is not None:
            with writing_results(self.local.folder):
                self.local.prepare()
            create(self.local.log.folder / MARK, owner.to_json())
        else:
            self._create(spark, owner.to_json())
        self._require_owner(spark, owner)
        self.open_log(spark)

    def _create(self, spark: SparkSession, data: bytes) -> None:
        mark, files = self._log_path(spark, MARK), self._files(spark)
        if files.exists(mark):
            return
        try:
            stream = files.create(mark, False)
        except Exception:
            if files.exists(mark):  # another query was faster
                return
            raise
        stream.write(bytearray(data))
        stream.close()

    def _last_epoch(self, spark: SparkSession) -> int:
        """The last epoch in the sink's log; -1 if there is none."""
        log, files = self._log_path(spark), self._files(spark)
        entries = [status.getPath().getName() for status in files.listStatus(log)] if files.exists(log) else []
        epochs = [name.removesuffix(".compact") for name in entries]
        return max((int(name) for name in epochs if name.isdigit()), default=-1)

    def _log_path(self, spark: SparkSession, *below: str) -> Any:
        return jvm_class(spark, "org.apache.hadoop.fs.Path")("/".join((self.path, LOG_FOLDER, *below)))

    def _files(self, spark: SparkSession) -> Any:
        return self._log_path(spark).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def deliver(self, delivery: Delivery) -> None:
        epoch, name = delivery.epoch, partial(self._add, delivery.session, delivery.epoch)
        if self.local is not None:
            self.local.deliver(epoch, lambda: self._written(delivery), name)
        elif delivery.shows:
            self._write(delivery.read(), self.path, epoch)
        else:
            name(())

    def _written(self, delivery: Delivery) -> Parts:
        """The part files of an epoch, written by tasks or by Spark's writers; the writers' other files are removed."""
        local = self.local
        assert local is not None
        if delivery.part_files is not None or not delivery.shows:
            return delivery.part_files or ()
        name = f"{self.maker.staging}{uuid.uuid4().hex}"
        try:
            self._write(delivery.read(), f"{self.path}/{name}", 0)
            return local.take_in(local.folder / name, self.maker, delivery.epoch)
        finally:
            shutil.rmtree(local.folder / name, ignore_errors=True)

    def _write(self, results: DataFrame, path: str, epoch: int) -> None:
        spark = results.sparkSession
        assert spark._jvm is not None
        convert = spark._jvm.PythonUtils
        sink = jvm_class(spark, f"{SPARK_SINKS}.FileStreamSink")(
            spark._jsparkSession,
            path,
            jvm_class(spark, FILE_FORMATS[self.format])(),
            convert.toSeq(list(self.partition_by)),
            convert.toScalaMap(dict(self.options)),
        )
        # In a recovery or a clean-up no stream runs, so the writer would find no session in this thread.
        sessions = jvm_class(spark, "org.apache.spark.sql.classic.SparkSession")
        sessions.setActiveSession(spark._jsparkSession)
        sink.addBatch(epoch, results._jdf)

    def part_folder(self, *, is_plain: bool) -> PartFolder | None:
        """The folder, for plain columns as Parquet on a shared path."""
        options = {name.lower(): value.lower() for name, value in self.options.items()}
        compression = options.get("compression", "snappy")
        simple = self.format == "parquet" and not self.partition_by and options.keys() <= {"path", "compression"}
        if self.local is None or not (is_plain and simple and compression in COMPRESSIONS):
            return None
        return PartFolder(self.local.folder, compression)

    def _add(self, spark: SparkSession, epoch: int, parts: Parts) -> None:
        """Name files as the results of an epoch; if the log has the epoch, it names these files already."""
        status = jvm_class(spark, f"{SPARK_SINKS}.SinkFileStatus")
        assert spark.sparkContext._gateway is not None
        named = spark.sparkContext._gateway.new_array(status, len(parts))
        for i, (path, file) in enumerate(parts):
            named[i] = status(path.as_uri(), file.bytes, False, file.modified_ms, 1, BLOCK_BYTES, "add")
        self.open_log(spark).add(epoch, named)

    def open_log(self, spark: SparkSession) -> Any:
        """Spark's log of the folder; created if it is missing. From then on readers see only files that it names, so it
        must exist before the first task writes a file."""
        assert spark._jvm is not None
        log = jvm_class(spark, f"{SPARK_SINKS}.FileStreamSinkLog")
        kept = spark._jvm.scala.Option.empty()
        if self._retention is not None:
            kept_ms = jvm_class(spark, "org.apache.spark.util.Utils").timeStringAsMs(self._retention)
            kept = spark._jvm.scala.Option.apply(kept_ms)
        return log(LOG_VERSION, spark._jsparkSession, f"{self.path}/{LOG_FOLDER}", kept)

    def leftovers(self) -> frozenset[str]:
        """Files that earlier runs of the checkpoint may have left over. With a retention the log forgets names: then no
        part file is among them."""
        found = frozenset() if self.local is None else self.local.leftovers(self.maker)
        is_kept = self._retention is not None
        return frozenset(name for name in found if not (is_kept and name.rpartition("/")[2].startswith("part-")))

    def sweep(self, seen: frozenset[str]) -> None:
        if self.local is not None:
            self.local.sweep(seen)

    @property
    def _retention(self) -> str | None:
        return next((value for name, value in self.options.items() if name.lower() == "retention"), None)
