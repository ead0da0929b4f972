"""Results that pass through a stage on their way to the last one: packed as Arrow IPC bytes, and set aside while the
stage reads its own rows. Results beyond the size of a batch are in a file without a name, which ends with the task.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from watersmeet.engine.inbox import CHUNK_BYTES
from watersmeet.errors import WatersmeetError
from watersmeet.state.storage import writing
from watersmeet.units import format_bytes

ROW_BYTES_MAX = (1 << 31) - (1 << 20)
"""A row in Spark has at most 2 GiB."""
LENGTH_BYTES = 8


class Aside:
    """Packed results, in order of arrival."""

    def __init__(self, folder: Path, bytes_max: int = CHUNK_BYTES) -> None:
        """At most about `bytes_max` bytes are in memory, or one result."""
        self._folder, self._bytes_max = folder, bytes_max
        self._file = self._new()
        self._count = 0

    def put(self, results: Iterable[bytes]) -> None:
        with writing(self._folder):
            for result in results:
                self._file.write(len(result).to_bytes(LENGTH_BYTES, "little"))
                self._file.write(result)
                self._count += 1

    def take(self) -> Iterator[list[bytes]]:
        """Take out all results, some at a time."""
        if not self._count:
            return
        file, count, self._file, self._count = self._file, self._count, self._new(), 0
        with file:
            file.seek(0)
            some: list[bytes] = []
            size = 0
            for _ in range(count):
                length = int.from_bytes(file.read(LENGTH_BYTES), "little")
                if some and size + length > self._bytes_max:
                    yield some
                    some, size = [], 0
                some.append(file.read(length))
                size += length
            yield some

    def _new(self) -> tempfile.SpooledTemporaryFile[bytes]:
        return tempfile.SpooledTemporaryFile(max_size=self._bytes_max, dir=str(self._folder))


def packed(results: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, results.schema) as writer:
        writer.write_batch(results)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(result: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(result) as reader:
        yield from reader


def for_spark(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows in a form for the JVM; WatersmeetError if one row is too large for it. (Large batches are cut before.)"""
    if rows.num_rows == 1 and rows.nbytes > ROW_BYTES_MAX:
        raise WatersmeetError(
            f"a row of {format_bytes(rows.nbytes)} is too wide for Spark, whose rows end at 2 GiB",
            hint="select less of it, or cut its values in the DataFrame",
            error_class="ROW_TOO_WIDE",
        )
    return rows
