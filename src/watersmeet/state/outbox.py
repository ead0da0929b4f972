"""The outbox: results as Parquet files, durable before the manifest that names them, and read when they are sent.

Every attempt of a task writes a file with a unique name, so the file of a lost attempt is never named. In the folder of
a plain Parquet sink the files are the sink's own part files, and sending them means naming them in its log
(`runtime/spark/sinks.py`). For all other sinks they are in the checkpoint, and the JVM reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import SinkError
from watersmeet.query.types import nullable_inside
from watersmeet.state.damage import Damage, reading
from watersmeet.state.manifest import ResultFile
from watersmeet.state.part_files import ANYBODY, Maker
from watersmeet.state.plain_files import plain_status
from watersmeet.state.segment import checksum_of
from watersmeet.state.storage import make_folder, sync_file, sync_folder

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""The metadata key under which Parquet files keep Spark's types."""
RESTORE_RESULTS = (
    "it holds results that were not sent yet: restore it, or start the query with the path that its sink had"
)


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """The target of results: the folder, and the columns with their names (None: all, unchanged)."""

    folder: Path
    columns: tuple[tuple[str, str], ...] | None = None
    spark_schema: str | None = None
    compression: str = "snappy"
    maker: Maker = ANYBODY
    epoch: int = 0


class ResultWriter:
    """The file of one attempt of one task; made with the first row."""

    def __init__(self, target: ResultFolder, slot: int) -> None:
        self._target = target
        self._writer: pq.ParquetWriter | None = None
        self._is_begun = False
        self._path = target.folder / target.maker.part_name(target.epoch, slot, f"{target.compression}.parquet")

    def write(self, results: pa.RecordBatch) -> None:
        with self._clear_errors():
            self._write(results)

    def _write(self, results: pa.RecordBatch) -> None:
        names = self._target.columns or tuple((name, name) for name in results.schema.names)
        columns = [_with_nulls(results.column(source)) for source, _ in names]
        schema = pa.schema([pa.field(name, c.type) for (_, name), c in zip(names, columns, strict=True)])
        if self._writer is None:
            self._is_begun = True
            make_folder(self._target.folder)
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
        """Make the file and its name durable. With `empty`, write a file even without results, so that the folder has a
        schema."""
        if self._writer is None and empty is not None:
            self.write(pa.RecordBatch.from_pylist([], schema=empty))
        if self._writer is None:
            return ()
        with self._clear_errors():
            self._writer.close()
            sync_file(self._path)
            sync_folder(self._path.parent)
        self._writer, self._is_begun = None, False
        status, crc = self._path.stat(), checksum_of(self._path).crc
        return (ResultFile(self._path.name, status.st_size, status.st_mtime_ns // 1_000_000, crc),)

    def abandon(self) -> None:
        """Remove the file of a failed attempt."""
        if self._writer is not None:
            with suppress(OSError):  # a full disk cannot take the footer either
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
    """The values with a type that allows NULL at every level: Spark does not, inside a struct that is itself NULL."""
    kind = nullable_inside(values.type) if pa.types.is_nested(values.type) else values.type
    return values if kind == values.type else values.cast(kind)


def remove_results(folder: Path, files: Iterable[ResultFile]) -> None:
    """Remove files that no manifest will name: those of attempts that were not accepted."""
    for file in files:
        (folder / file.name).unlink(missing_ok=True)


def require_whole(folder: Path, files: Iterable[ResultFile], *, reads: bool = True) -> None:
    """CheckpointError unless all files exist unchanged: compared by length or, with `reads`, by their bytes. A run that
    has just written the files need not read them."""
    for file in files:
        path = folder / file.name
        with reading(path, RESTORE_RESULTS):
            found = plain_status(path).st_size
            if found != file.bytes:
                raise Damage(f"it has {found} bytes instead of {file.bytes}")
            if reads and file.crc is not None and checksum_of(path).crc != file.crc:
                raise Damage("its checksum does not match the manifest")


def read_results(folder: Path, files: Sequence[ResultFile], schema: pa.Schema) -> pa.Table:
    """The rows of some files, whose columns are those of the schema."""
    tables = [pq.read_table(folder / file.name).cast(schema) for file in files]
    return pa.concat_tables([schema.empty_table(), *tables])


def rows_in(folder: Path, files: Iterable[ResultFile]) -> int:
    """The number of rows in some files, from their footers."""
    return sum(pq.read_metadata(folder / file.name).num_rows for file in files)
