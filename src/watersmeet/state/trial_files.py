"""Files that a manifest names beside its segments: what a change of a young query's plan needs (`adaptation/trial.py`).

Their names are their own, so that what an attempt left behind is never taken for another's; the manifest that names
files of rows has their checksums.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from watersmeet.errors import CheckpointError
from watersmeet.state.manifest import SegmentRef
from watersmeet.state.segment import Checksum, checksum_of
from watersmeet.state.storage import remove, write_durably


class TrialFiles:
    """A folder of such files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes, suffix: str) -> SegmentRef:
        """Write a file, durably."""
        return self._put(suffix, lambda file: file.write(data))

    def put_rows(self, batches: Iterable[pa.RecordBatch]) -> tuple[SegmentRef, int]:
        """Write a file of rows, and how many they are."""
        rows = 0

        def write(file: BinaryIO) -> int:
            nonlocal rows
            writer = None
            for batch in batches:
                writer = writer or pa.ipc.new_stream(file, batch.schema)
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is not None:
                writer.close()
            return rows

        ref = self._put(".arrow", write)
        return ref, rows

    def _put(self, suffix: str, write: Callable[[BinaryIO], int]) -> SegmentRef:
        path = self.folder / f"{uuid.uuid4().hex}{suffix}"
        write_durably(path, write)
        found = checksum_of(path)
        return SegmentRef(path.name, found.bytes, found.crc)

    def rows(self, ref: SegmentRef) -> Iterator[pa.RecordBatch]:
        """The rows of a file, which must have the bytes that were written."""
        path = self.folder / ref.name
        try:
            found = checksum_of(path)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}", hint=_HINT) from error
        if found != Checksum(ref.bytes, ref.crc):
            raise CheckpointError(f"{path} has other bytes than were written", hint=_HINT)
        if ref.bytes:
            with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
                yield from reader

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            remove(self.folder / name)


_HINT = "restore the file from a backup of the checkpoint, or start with a new checkpointLocation"
