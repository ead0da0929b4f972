"""The outbox: results as Parquet files, durable before the manifest that names them, read by whoever sends them.

Every attempt of a task writes a file under a name of its own, so what a lost attempt wrote is never named. In the
folder of a plain Parquet sink the files are the sink's own part files, and sending them means naming them in its log
(`runtime/spark/sinks.py`); for all other sinks they lie in the checkpoint, and the JVM reads them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import CheckpointError, SinkError
from watersmeet.query.types import nullable_inside
from watersmeet.state.manifest import ResultFile
from watersmeet.state.storage import sync_folder

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Parquet files tell Spark what its types were."""


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """Where tasks put results: the folder, and which columns under which names (None: all as they are)."""

    folder: Path
    columns: tuple[tuple[str, str], ...] | None = None
    spark_schema: str | None = None
    compression: str = "snappy"


class ResultWriter:
    """The file of one attempt of one task; made when there is something to write."""

    def __init__(self, target: ResultFolder, slot: int) -> None:
        self._target = target
        self._writer: pq.ParquetWriter | None = None
        self._is_begun = False
        self._path = target.folder / f"part-{slot:05d}-{uuid.uuid4()}-c000.{target.compression}.parquet"

    def write(self, results: pa.RecordBatch) -> None:
        with self._clear_errors():
            self._write(results)

    def _write(self, results: pa.RecordBatch) -> None:
        names = self._target.columns or tuple((name, name) for name in results.schema.names)
        columns = [_with_nulls(results.column(source)) for source, _ in names]
        schema = pa.schema([pa.field(name, c.type) for (_, name), c in zip(names, columns, strict=True)])
        if self._writer is None:
            self._is_begun = True
            self._target.folder.mkdir(parents=True, exist_ok=True)
            told = self._target.spark_schema
            metadata = None if told is None else {SPARK_SCHEMA: told.encode()}
            self._writer = pq.ParquetWriter(
                self._path,
                schema.with_metadata(metadata),
                compression=self._target.compression,
                write_page_checksum=True,
            )
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    def close(self, empty: pa.Schema | None = None) -> tuple[ResultFile, ...]:
        """Make the file durable, and its name; with `empty`, leave one even without results, so that the folder has a
        schema."""
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
            sync_folder(self._path.parent)
        self._writer, self._is_begun = None, False
        status = self._path.stat()
        return (ResultFile(self._path.name, status.st_size, status.st_mtime_ns // 1_000_000),)

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


def _with_nulls(values: pa.Array) -> pa.Array:
    """Values of a type that allows NULL everywhere: Spark does not, within a struct that is NULL itself."""
    kind = nullable_inside(values.type) if pa.types.is_nested(values.type) else values.type
    return values if kind == values.type else values.cast(kind)


def remove_results(folder: Path, files: Iterable[ResultFile]) -> None:
    """Remove files that no manifest will name: of attempts that were not accepted."""
    for file in files:
        (folder / file.name).unlink(missing_ok=True)


def require_whole(folder: Path, files: Iterable[ResultFile]) -> None:
    """CheckpointError unless all files are there, of the length that they were written with."""
    for file in files:
        path = folder / file.name
        found = path.stat().st_size if path.exists() else None
        if found != file.bytes:
            state = "is missing" if found is None else f"has {found} bytes instead of {file.bytes}"
            raise CheckpointError(
                f"{path}, which holds results that were not sent yet, {state}",
                hint="restore it, or start the query with the path that its sink had: the state holds no results",
            )


def read_results(folder: Path, files: Sequence[ResultFile], schema: pa.Schema) -> pa.Table:
    """The rows of some files, whose columns are those of the schema."""
    tables = [pq.read_table(folder / file.name).cast(schema) for file in files]
    return pa.concat_tables([schema.empty_table(), *tables])
