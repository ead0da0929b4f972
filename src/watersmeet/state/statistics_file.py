"""`statistics.arrow`: partition group statistics. Nothing depends on them, so an unreadable file is ignored.

    an Arrow file | CRC-32 of that | "WSTA"

Files of earlier versions are the Arrow file alone.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa

from watersmeet.state.plain_files import read_plain, set_aside
from watersmeet.state.storage import replace_unsynced, writing

STATISTICS = "statistics.arrow"
MAGIC = b"WSTA"
_ARROW = b"ARROW1"


def write_statistics(folder: Path, table: pa.Table) -> None:
    """Write a table, without a sync."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    data: bytes = out.getvalue().to_pybytes()
    path = folder / STATISTICS
    with writing(path):
        set_aside(path)
    replace_unsynced(path, b"".join((data, zlib.crc32(data).to_bytes(4, "little"), MAGIC)))


def read_statistics(folder: Path) -> pa.Table | None:
    """The table of an earlier run; None if there is no readable one."""
    try:
        data = _verified(read_plain(folder / STATISTICS))
        if data is None:
            return None
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        return table
    except (OSError, ValueError, pa.ArrowException):
        return None


def _verified(data: bytes) -> bytes | None:
    if data.endswith(MAGIC):
        body, crc = data[:-8], int.from_bytes(data[-8:-4], "little")
        return body if zlib.crc32(body) == crc else None
    return data if data.endswith(_ARROW) else None
