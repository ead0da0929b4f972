"""A segment: one immutable file with the runs that one slot wrote in one epoch for one time bucket.

    "WSEG0002" | Arrow record batches, each at a multiple of 64 bytes | footer (JSON) | footer length | "WSEG0002"

A run is three batches: `keys` (hash and key values, per distinct key), `counts` (rows per key, in as few bytes as
they need), and `rows` (codes and payload; absent when a store keeps neither). The footer says where they are, and holds
each schema once: segments of few rows must not be mostly schemas. Opening a segment maps the file; no row is read
before it is needed. The checksum covers the whole file. The manifest has it, not the file: a file cannot vouch for
itself. Segments of format 1 (IPC streams, `starts` instead of `counts`) are still read.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import CorruptSegmentError
from watersmeet.state.plain_files import open_to_read, plain_status
from watersmeet.state.run import Run

MAGIC = b"WSEG0002"
MAGIC_1 = b"WSEG0001"
ALIGNMENT = 64
_UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException,
)  # fmt: skip
"""The errors that invalid bytes may raise in the reader of a segment."""
HASH_FIELD, COUNT_FIELD, CODE_FIELD = "_hash", "_count", "_code"


@dataclass(frozen=True, slots=True)
class Checksum:
    """Length and CRC-32 of a file's bytes."""

    bytes: int
    crc: int


class _ChecksumWriter:
    """A file that computes the checksum of all bytes written."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.length, self.crc, self.closed = file, 0, 0, False

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        size = memoryview(data).nbytes
        self.length += size
        self.file.write(data)
        return size

    def align(self) -> int:
        self.write(b"\0" * (-self.length % ALIGNMENT))
        return self.length

    def flush(self) -> None:
        self.file.flush()


def write_segment(file: BinaryIO, runs: Iterable[tuple[int, Run]]) -> Checksum:
    """Write (store, run) pairs, one after the other; the caller makes the file durable."""
    out = _ChecksumWriter(file)
    out.write(MAGIC)
    schemas: list[pa.Schema] = []
    footer = [{"store": store, **_write_run(out, run, schemas)} for store, run in runs]
    told = [base64.b64encode(schema.serialize()).decode() for schema in schemas]
    text = json.dumps({"schemas": told, "runs": footer}, separators=(",", ":")).encode()
    out.align()
    out.write(text)
    out.write(len(text).to_bytes(8, "little"))
    out.write(MAGIC)
    return Checksum(out.length, out.crc)


def read_segment(path: Path) -> list[tuple[int, Run]]:
    """Map a segment file; its (store, run) pairs, in the order they were written."""
    try:
        plain_status(path)
        with pa.memory_map(str(path)) as source:
            return runs_in(source.read_buffer(), path.name)
    except OSError as error:
        raise _unreadable(path.name, error) from error


def runs_in(buffer: pa.Buffer, name: str) -> list[tuple[int, Run]]:
    """The (store, run) pairs in the bytes of a segment; no row is copied."""
    try:
        tail = _slice(buffer, buffer.size - 16, 16).to_pybytes()
        length = int.from_bytes(tail[:8], "little")
        if tail[8:] not in (MAGIC, MAGIC_1) or _slice(buffer, 0, 8).to_pybytes() != tail[8:]:
            raise ValueError("not a segment file")
        footer = json.loads(_slice(buffer, buffer.size - 16 - length, length).to_pybytes())
        told = [base64.b64decode(schema) for schema in footer.get("schemas", ())]
        schemas = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in told]
        return [(entry["store"], _read_run(buffer, entry, schemas)) for entry in footer["runs"]]
    except _UNREADABLE as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> CorruptSegmentError:
    return CorruptSegmentError(
        f"segment {name} cannot be read: {error}",
        hint="restore the file from a backup of the checkpoint, or start with a new checkpointLocation",
    )


def checksum_of(path: Path) -> Checksum:
    """The present checksum of a file."""
    length = crc = 0
    with open_to_read(path) as file:
        while block := file.read(1 << 22):
            length += len(block)
            crc = zlib.crc32(block, crc)
    return Checksum(length, crc)


def _write_run(out: _ChecksumWriter, run: Run, schemas: list[pa.Schema]) -> dict[str, Any]:
    run = compact(run)
    hashes = pa.array(run.hashes)
    counts = np.diff(run.starts)
    counts = counts.astype(np.min_scalar_type(counts.max(initial=0)))
    sections = {
        "keys": _write_batch(out, _batch({HASH_FIELD: hashes, **_columns(run.keys)}), schemas),
        "counts": _write_batch(out, _batch({COUNT_FIELD: pa.array(counts)}), schemas),
    }
    codes = {CODE_FIELD: pa.array(run.codes)} if run.codes is not None else {}
    if rows := {**codes, **_columns(run.payload)}:
        sections["rows"] = _write_batch(out, _batch(rows), schemas)
    times = {name: int(getattr(run, name)) for name in ("time_origin", "time_bits", "time_min", "time_max")}
    return {"sections": sections, "coded": run.codes is not None, **times}


def compact(run: Run) -> Run:
    """A copy, with its own arrays, of a run that shares arrays with a longer one (a cut by hash)."""
    lengths = [len(run.codes)] if run.codes is not None else []
    lengths += [run.payload.num_rows] if run.payload.num_columns else []
    if run.rank_base == 0 and run.starts[0] == 0 and all(length == run.rows for length in lengths):
        return run
    rows = run.rows_slice()
    codes = None if run.codes is None else run.codes[rows] - np.int64(run.rank_base << run.time_bits)
    payload = run.payload.slice(rows.start, run.rows) if run.payload.num_columns else run.payload
    return Run(
        run.hashes, run.keys, run.starts - run.starts[0], codes, payload,
        run.time_origin, run.time_bits, run.time_min, run.time_max,
    )  # fmt: skip


def _read_run(buffer: pa.Buffer, entry: dict[str, Any], schemas: Sequence[pa.Schema]) -> Run:
    sections = {name: _read_batch(buffer, schemas, *place) for name, place in entry["sections"].items()}
    keys = sections["keys"]
    if "counts" in sections:
        starts = _starts(sections["counts"].column(0).to_numpy())
    else:
        starts = sections["starts"].column(0).to_numpy()
    rows = sections.get("rows")
    codes = rows.column(0).to_numpy() if rows is not None and entry["coded"] else None
    payload = pa.RecordBatch.from_arrays([], schema=pa.schema([])) if rows is None else rows
    if codes is not None:
        payload = _without_first(payload)
    return Run(
        keys.column(0).to_numpy(),
        _without_first(keys),
        starts,
        codes,
        payload,
        entry["time_origin"],
        entry["time_bits"],
        entry["time_min"],
        entry["time_max"],
    )


def _starts(counts: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.int32]:
    starts = np.arange(len(counts) + 1, dtype=np.int32)
    if len(counts) and counts.max() > 1:
        np.cumsum(counts, out=starts[1:])
    return starts


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _without_first(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns[1:], schema=pa.schema(list(batch.schema)[1:]))


def _write_batch(out: _ChecksumWriter, batch: pa.RecordBatch, schemas: list[pa.Schema]) -> tuple[int, int, int]:
    """Write a batch; returns its start, its length and the number of its schema."""
    if batch.schema not in schemas:
        schemas.append(batch.schema)
    start = out.align()
    out.write(batch.serialize())
    return start, out.length - start, schemas.index(batch.schema)


def _slice(buffer: pa.Buffer, start: int, length: int) -> pa.Buffer:
    """A part of a buffer, with the bounds check that Arrow does not make."""
    if not 0 <= start <= start + length <= buffer.size:
        raise ValueError(f"it has no bytes {start} to {start + length}")
    return buffer.slice(start, length)


def _read_batch(
    buffer: pa.Buffer, schemas: Sequence[pa.Schema], start: int, length: int, schema: int | None = None
) -> pa.RecordBatch:
    part = _slice(buffer, start, length)
    if schema is not None:
        return pa.ipc.read_record_batch(part, schemas[schema])
    with pa.ipc.open_stream(part) as reader:
        return reader.read_next_batch()
