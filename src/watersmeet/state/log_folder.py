"""A log folder of Spark's on a local path: one file per number, each with Hadoop's checksum file.

    offsets/7   offsets/.7.crc   sources/0/9.compact   .../.9.compact.crc   .../.8.<uuid>.tmp

Spark renames entries into place and syncs nothing. So after a power cut an entry may be missing, cut short, or full of
zeros. Code that depends on an entry syncs it first (`sync`). An entry that nothing depends on yet is checked
(`is_whole`) and removed if it is torn.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from watersmeet.state.storage import remove, sync_file, sync_folder

COMPACT = ".compact"
_ENTRY = re.compile(rf"\d+(?:{re.escape(COMPACT)})?")
_UNFINISHED = re.compile(rf"\.{{1,2}}\d+(?:{re.escape(COMPACT)})?\.[0-9a-f-]{{36}}\.tmp(?:\.crc)?")
_MAGIC, _HEADER_BYTES, _SUM_BYTES = b"crc\0", 8, 4


@dataclass(frozen=True, slots=True)
class LogFolder:
    folder: Path

    def entries(self) -> list[str]:
        """The names of all entries, in the order of their numbers."""
        return sorted(filter(_ENTRY.fullmatch, self._names()), key=number_of)

    def entries_beside(self, known: Collection[str]) -> tuple[list[str], set[str]]:
        """The names of entries that are not among the known names, in the order of their numbers, and all names."""
        names = set(self._names())
        return sorted(filter(_ENTRY.fullmatch, names.difference(known)), key=number_of), names

    def entry(self, number: int) -> str | None:
        """The name of an entry; None if it does not exist."""
        return next((name for name in (f"{number}", f"{number}{COMPACT}") if (self.folder / name).exists()), None)

    def unfinished(self) -> list[str]:
        """Files that their writers did not rename before they died."""
        return [name for name in self._names() if _UNFINISHED.fullmatch(name)]

    def has_checksums(self) -> bool:
        """Whether entries are written with checksums, judged by the files."""
        return any(self._checksum(name).exists() for name in self.entries())

    def is_whole(self, name: str) -> bool:
        """Whether an entry has the bytes that were written, by its checksum. Without a checksum this is unknown."""
        try:
            told, data = self._checksum(name).read_bytes(), (self.folder / name).read_bytes()
        except FileNotFoundError:
            return False
        return bool(data) and _sums(told, data)

    def sync(self, names: Iterable[str]) -> None:
        """Make entries durable, with their checksums: Spark cannot read an entry with a torn checksum."""
        for name in names:
            for path in (self.folder / name, self._checksum(name)):
                with suppress(FileNotFoundError):  # Spark removes old entries, and checksums may be off
                    sync_file(path)
        sync_folder(self.folder)

    def remove(self, name: str) -> None:
        remove(self.folder / name)
        remove(self._checksum(name))

    def _checksum(self, name: str) -> Path:
        return self.folder / f".{name}.crc"

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []


def number_of(name: str) -> int:
    return int(name.removesuffix(COMPACT))


def _sums(told: bytes, data: bytes) -> bool:
    """Whether a checksum file matches the data: it has a CRC-32 for every chunk of fixed length."""
    width = int.from_bytes(told[len(_MAGIC) : _HEADER_BYTES], "big")
    if told[: len(_MAGIC)] != _MAGIC or not width:
        return False
    chunks = (data[start : start + width] for start in range(0, len(data), width))
    return told[_HEADER_BYTES:] == b"".join(zlib.crc32(chunk).to_bytes(_SUM_BYTES, "big") for chunk in chunks)
