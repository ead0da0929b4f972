"""Results written where they are made: tasks write Parquet files into the sink's folder, the driver only names them.

It is the protocol of Spark's own file sink (`ManifestFileCommitProtocol`): every attempt writes files under names of
its own into the folder, and readers see those that the log `_spark_metadata` names, epoch by epoch. Here the names
come with the reports of the slots, and the driver adds them to the log after the epoch is committed. Results cross
neither the boundary to the JVM nor a cache, and what a lost attempt wrote is never named.

It is taken for Parquet in a folder that all workers share, when the select list is made of plain columns; otherwise
Spark writes (see `runtime/spark/sinks.py`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import SinkError
from watersmeet.state.part_file import PartFile

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Parquet files tell Spark what its types were."""


@dataclass(frozen=True, slots=True)
class PartFolder:
    """Where tasks put results: the folder, and the columns under the names of the select list."""

    folder: Path
    columns: tuple[tuple[str, str], ...]
    spark_schema: str
    compression: str


class PartWriter:
    """The file of one attempt of one task; made when there is something to write."""

    def __init__(self, target: PartFolder, slot: int) -> None:
        self._target = target
        self._writer: pq.ParquetWriter | None = None
        self._is_begun = False
        self._path = target.folder / f"part-{slot:05d}-{uuid.uuid4()}-c000.{target.compression}.parquet"

    def write(self, results: pa.RecordBatch) -> None:
        with self._clear_errors():
            self._write(results)

    def _write(self, results: pa.RecordBatch) -> None:
        columns = [results.column(source) for source, _ in self._target.columns]
        schema = pa.schema([pa.field(name, c.type) for (_, name), c in zip(self._target.columns, columns, strict=True)])
        if self._writer is None:
            self._is_begun = True
            self._target.folder.mkdir(parents=True, exist_ok=True)
            schema_for_spark = schema.with_metadata({SPARK_SCHEMA: self._target.spark_schema.encode()})
            self._writer = pq.ParquetWriter(self._path, schema_for_spark, compression=self._target.compression)
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    def close(self, empty: pa.Schema | None) -> tuple[PartFile, ...]:
        """Make the file durable; with `empty`, leave one even without results, so that the folder has a schema."""
        if self._writer is None and empty is not None:
            self.write(pa.RecordBatch.from_pylist([], schema=empty))
        if self._writer is None:
            return ()
        with self._clear_errors():
            self._writer.close()
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._writer, self._is_begun = None, False
        status = self._path.stat()
        return (PartFile(str(self._path), status.st_size, status.st_mtime_ns // 1_000_000),)

    def abandon(self) -> None:
        """The attempt failed: leave nothing behind."""
        if self._writer is not None:
            with suppress(OSError):  # a full disk takes no footer either
                self._writer.close()
        if self._is_begun:
            self._path.unlink(missing_ok=True)

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkError(
                f"cannot write {self._path}: {error.strerror or error}",
                hint="make room there, or make it writable, and start the query again: it goes on where it was",
            ) from error


def remove_parts(files: Iterable[PartFile]) -> None:
    """Remove files that no epoch will name: of attempts that were not accepted, or of an epoch the log knew already."""
    for file in files:
        Path(file.path).unlink(missing_ok=True)
