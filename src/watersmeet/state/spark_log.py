"""A reader of Spark's own log of the query, in the folder `spark` of the checkpoint. Nothing is written.

    metadata          {"id": ...}: the id of the query
    offsets/<batch>   written before a batch runs: a version, a line of metadata, and a line per source
    commits/<batch>   written after it
    sources/<n>/      the files that file source n has listed, by number; its offsets are {"logOffset": number}

A source is known by its position, or by the name that it was given (`DataStreamReader.name`). In version v1 of offsets,
line n is of source n. In v2, a line is `name:offset`, so sources may be added and dropped.

Batches are numbered from 0, without gaps. A batch is identified by the id of the query and the whole offsets file, not
by the offsets alone: offsets of file sources are small numbers, which other batches have too. The metadata line
contains the time at which Spark made the batch.

Known limitation: only the length of the logs of file sources is checked, not their contents.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

TEXT_BYTES_MAX = 1 << 16
"""Longer offsets are kept as a hash only. Kafka's take some 15 bytes per partition."""
LINES_BEFORE_SOURCES = 2
OF_NAMED_SOURCES = b"v2"
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
NO_QUERY = ""


@dataclass(frozen=True, slots=True)
class Offsets:
    """The end offsets of a micro-batch, as Spark has written them before it ran."""

    query: str
    """Spark's id of the query that made the batch."""
    hash: str
    text: str = field(default="", compare=False)
    """The text of the file; empty if it is long."""

    @property
    def has_copy(self) -> bool:
        """Whether the text is an exact copy of the file."""
        return _hash(self.text.encode()) == self.hash

    @property
    def sources(self) -> dict[str, str]:
        """The offset of each source; empty if the text was not kept."""
        return sources_in(self.text.encode())


class Ended(Protocol):
    """The last batch of a state, and perhaps its offsets: a manifest has them."""

    @property
    def batch(self) -> int | None: ...
    @property
    def offsets(self) -> Offsets | None: ...


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of Spark's log, and its entry for the last batch of a state."""

    query: str = NO_QUERY
    planned: int | None = None
    """The last batch with offsets in the log: it has run, or it is the next to run."""
    committed: int | None = None
    offsets: Offsets | None = None
    """The offsets of the state's last batch."""
    short_sources: tuple[str, ...] = ()
    """File sources whose own logs do not reach the offsets of the last batch."""

    @property
    def ran(self) -> int:
        """The last batch that has completed for certain; -1 if none. The last planned batch may have completed too."""
        return max(-1 if self.committed is None else self.committed, -1 if self.planned is None else self.planned - 1)


class SparkLog:
    """The log in a folder, which may be missing or incomplete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def end(self, last: Ended | None) -> LogEnd:
        """The end of the log, and its entry for the last batch of `last`."""
        planned, batch = self._last("offsets"), None if last is None else last.batch
        return LogEnd(
            self.query(),
            planned,
            self._last("commits"),
            None if batch is None else self.offsets(batch),
            () if planned is None else tuple(self.short_sources(sources_in(self._read(f"offsets/{planned}") or b""))),
        )

    def query(self) -> str:
        """The id of the query; empty if the log has none."""
        data = self._read("metadata")
        try:
            return NO_QUERY if data is None else str(json.loads(data)["id"])
        except (ValueError, LookupError, TypeError):
            return NO_QUERY

    def offsets(self, batch: int) -> Offsets | None:
        """The end offsets of a batch; None if the log has none."""
        return self._offsets(batch, self.query())

    def around(self, batch: int) -> tuple[Offsets | None, Offsets | None]:
        """The start and end offsets of a batch."""
        query = self.query()
        return self._offsets(batch - 1, query), self._offsets(batch, query)

    def _offsets(self, batch: int, query: str) -> Offsets | None:
        data = self._read(f"offsets/{batch}")
        if data is None:
            return None
        return Offsets(query, _hash(data), data.decode(errors="ignore") if len(data) <= TEXT_BYTES_MAX else "")

    def names_sources(self) -> bool | None:
        """Whether sources are known by name, not by position; None while no batch has been planned."""
        planned = self._last("offsets")
        return None if planned is None else _names_sources(self._read(f"offsets/{planned}") or b"")

    def short_sources(self, offsets: Mapping[str, str]) -> Iterator[str]:
        """File sources whose own logs do not reach these offsets."""
        for source, offset in offsets.items():
            reached = file_number(offset)
            if reached is not None and reached > self._listed(source):
                yield source

    def numbers(self, folder: str) -> list[int]:
        """The numbers of the batches with a file in a folder of the log, in order."""
        return sorted(int(name) for name in _names(self.folder / folder) if name.isdecimal())

    def _last(self, folder: str) -> int | None:
        return max(self.numbers(folder), default=None)

    def _read(self, name: str) -> bytes | None:
        try:
            with open(f"{self.folder}/{name}", "rb", buffering=0) as file:
                return file.readall()
        except OSError:
            return None

    def _listed(self, source: str) -> int:
        found = (name.removesuffix(".compact") for name in _names(self.folder / "sources" / source))
        return max((int(name) for name in found if name.isdecimal()), default=-1)


def file_number(line: str) -> int | None:
    """The log offset in an offset, if it is that of a file source."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    found = value.get("logOffset") if isinstance(value, dict) else None
    return found if isinstance(found, int) else None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sources_in(data: bytes) -> dict[str, str]:
    """The offset of each source in a file of offsets, by position or name."""
    lines = data.decode(errors="replace").splitlines()[LINES_BEFORE_SOURCES:]
    if not _is_by_name(data):
        return {str(number): line for number, line in enumerate(lines)}
    found = (line.partition(":") for line in lines)
    return {name: offset for name, colon, offset in found if colon}


def _names_sources(data: bytes) -> bool:
    is_told = f'"{EVOLUTION}":"true"'.encode() in data
    return _is_by_name(data) and (is_told or not all(map(str.isdecimal, sources_in(data))))


def _is_by_name(data: bytes) -> bool:
    return data.split(b"\n", 1)[0].strip() == OF_NAMED_SOURCES


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
