"""The two tiers of a slot's segments: durable files are the truth, memory is a bounded copy of some of them.

    durable   <checkpoint>/watersmeet/segments/<name>      written and synced before an epoch commits
    memory    <memory folder of the run>/<name>            a tmpfs: bytes that are RAM, shared by the workers of a host

| event                             | what happens                                                              |
|-----------------------------------|---------------------------------------------------------------------------|
| an epoch starts                   | evicted: files that no manifest names any more (`host_sweep.py`), and     |
|                                   | files that a slot has closed or dropped (`leave`)                         |
| a slot opens a segment, in memory | mapped; the checksum of the mapped bytes is verified, once per process,   |
|                                   | unless this task has just written and copied them                         |
| ... in memory with other bytes    | evicted (`spoiled_copies`), and opened as one not in memory               |
| ... not in memory                 | the durable file is mapped, after one verification per process that has   |
|                                   | not written it                                                            |
| a slot writes a segment           | written to the durable tier only                                          |
| an epoch ends (`retain`)          | files that must not stay are evicted; then new ones are copied to memory  |
|                                   | and, if this process has written them, mapped                             |
| memory is full, read-only or gone | files that cannot be copied are read from the durable tier; files that    |
|                                   | cannot be evicted stay                                                    |

Segments of earlier epochs are *fetched* into memory: one per epoch, or all at once if a slot finds nothing in memory.
They are counted in `fetched_bytes`.
So memory never holds more than at the end of the epoch before or of this one. The budget counts the bytes of resident
files of one slot; all files on a host are within the host's cap (`host_cap.py`). A file that several slots use counts
for one of them (`state/shares.py`); the others read it where it is. Files mapped by a running task stay readable after
they are removed, so eviction needs no coordination.

Known limitation: an idle process keeps its mapped files until it runs its next task or ends.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO

from watersmeet.errors import CorruptSegmentError
from watersmeet.failpoints import failpoint
from watersmeet.state import attempts, mapped
from watersmeet.state.host_cap import Room, Task, note_ran, room_for
from watersmeet.state.manifest import SegmentRef
from watersmeet.state.mapped import Runs
from watersmeet.state.plain_files import plain_status
from watersmeet.state.private_folder import Mark, PrivateFolder, opened_or_made
from watersmeet.state.run import Run
from watersmeet.state.segment import Checksum, checksum_of, read_segment, runs_in, write_segment
from watersmeet.state.storage import write_durably

SUFFIX = ".seg"
UNMAPPED_EVERY = 16
"""After this many tasks, a process looks for mapped files that others have removed."""

_tasks = count()
_verified: dict[str, tuple[object, int]] = {}
"""Durable files whose checksum this process has verified, each with a mark that shows a later change of the file."""


def task_name(epoch: int, stage: int, slot: int) -> str:
    return f"{epoch}-{stage}-{slot}"


def segment_name(task: str, attempt: str, number: int) -> str:
    """A unique name per attempt: two attempts of one task never write the same file."""
    return f"{task}-{attempt}-{number}{SUFFIX}"


def epoch_of(name: str) -> int:
    """The epoch in which a segment was written; version 0.1 wrote it with leading zeros."""
    return int(name.split("-", 1)[0])


@dataclass(slots=True)
class Tiers:
    """The segments that one slot can read, and the bytes that it moved between the tiers."""

    durable: Path
    memory: Path | None
    budget_bytes: int | None = None
    attempts: Path | None = None
    """Where segments are announced before they are written (`state/attempts.py`); None: nowhere."""
    host_bytes: int | None = None
    """The bytes that all slots may have in memory on this host; None: any number."""
    resident_bytes: int = 0
    fetched_bytes: int = 0
    spoiled_copies: int = 0
    _resident: set[str] = field(default_factory=set)
    _written: set[str] = field(default_factory=set)
    _copies: dict[str, Mark] = field(default_factory=dict)
    """The copies of segments that this task has written: their bytes are those of which it computed the checksum."""
    _folder: PrivateFolder | None = field(init=False, default=None)
    _task: str = ""

    def __post_init__(self) -> None:
        """Open or make the memory folder; raises WatersmeetError if it exists and is not private."""
        if self.memory is not None:
            self._folder = opened_or_made(self.memory)

    def leave(self, dead: Iterable[str], task: str) -> None:
        """Evict segments that this slot no longer needs in memory, and leftovers of failed attempts at this task. Files
        that others have evicted are unmapped. (Segments that no manifest names: `state/host_sweep.py`.)"""
        if next(_tasks) % UNMAPPED_EVERY == 0:
            for folder in (self.durable, self.memory):
                mapped.forget_missing(str(folder))
            for place in [place for place in _verified if not os.path.lexists(place)]:
                del _verified[place]
        if self._folder is None:
            return
        for name in dead:
            self._evict(self._folder, name)
        names, self._task = self._folder.names(), task
        for name in names:
            if name.startswith(f"{task}-"):
                self._folder.remove(name)
        if self.host_bytes is not None:
            note_ran(self._folder, Task.named(task), names)

    def open(self, ref: SegmentRef) -> Runs:
        """The (store, run) pairs of a segment with active rows, without the generation column. Raises
        CorruptSegmentError with its name if its bytes are wrong."""
        runs = self._in_memory(ref)
        if runs is None:
            return self._in_durable(ref)
        self._resident.add(ref.name)
        return runs

    def peek(self, ref: SegmentRef) -> Runs:
        """A segment of another stage, from either tier; it is not counted here, and not evicted."""
        runs = self._in_memory(ref)
        return self._in_durable(ref) if runs is None else runs

    def read(self, ref: SegmentRef) -> Runs:
        """A segment that is seldom read, mapped for this caller only. Untouched parts are not read, except for its
        checksum, once per process."""
        self._verify(ref)
        return read_segment(self.durable / ref.name)

    def is_resident(self, name: str) -> bool:
        """Whether an opened segment is in memory."""
        return name in self._resident

    def _in_memory(self, ref: SegmentRef) -> Runs | None:
        """The runs of the resident copy; None if there is no copy with the right bytes."""
        if self._folder is None or (mark := self._folder.mark(ref.name)) is None:
            return None
        place = str(self.memory)
        if (runs := mapped.known(place, ref.name, mark)) is not None:
            return runs
        if (copy := self._folder.mapped(ref.name)) is None:
            return None
        mark, content = copy
        is_own = mark == self._copies.get(ref.name) and content.size == ref.bytes
        if is_own or (content.size, zlib.crc32(content)) == (ref.bytes, ref.crc):
            return mapped.keep(place, ref.name, mark, runs_in(content, ref.name))
        self.spoiled_copies += 1
        self._evict(self._folder, ref.name)
        return None

    def _in_durable(self, ref: SegmentRef) -> Runs:
        self._verify(ref)
        place, found = str(self.durable), os.stat(self.durable / ref.name)
        mark = (found.st_ino, found.st_ctime_ns)
        runs = mapped.known(place, ref.name, mark)
        return mapped.keep(place, ref.name, mark, read_segment(self.durable / ref.name)) if runs is None else runs

    def _verify(self, ref: SegmentRef) -> None:
        place = f"{self.durable}/{ref.name}"
        found = _mark(place)
        if found is None or _verified.get(place) != (found, ref.crc):
            _require(self.durable / ref.name, ref)
            _verified[place] = found, ref.crc

    def write(self, name: str, runs: Iterable[tuple[int, Run]]) -> SegmentRef:
        """Write a segment durably; its name must be unique to this attempt (`segment_name`)."""
        path = self.durable / name

        def write(file: BinaryIO) -> Checksum:
            return write_segment(file, runs)

        if self.attempts is not None:
            checksum = attempts.write_announced(self.attempts, path, write)
        else:
            made = write_durably(path, write, replace=True)
            assert made is not None
            checksum = made
        failpoint("segment-durable")
        self._written.add(name)
        place = f"{self.durable}/{name}"
        _verified[place] = _mark(place), checksum.crc  # reading it again would read the same memory
        return SegmentRef(name, checksum.bytes, checksum.crc)

    def folder_of_scratch(self) -> Path:
        """Where rows are set aside while an epoch runs."""
        if self.attempts is not None:
            return self.attempts
        self.durable.mkdir(parents=True, exist_ok=True)
        return self.durable

    def unwrite(self, names: Iterable[str]) -> None:
        """Remove segments that this task has written and will not name, because it merged them again."""
        for name in names:
            assert name in self._written, f"segment {name} is not this task's own"
            (self.durable / name).unlink(missing_ok=True)

    def retain(self, first_to_last: Iterable[SegmentRef], limit_bytes: int | None = None) -> None:
        """Keep the first segments of the slot's new state in memory, up to budget, limit and the host's cap, and evict
        all others.

        Besides resident and new segments, one more is fetched per call; all at once if none is resident.
        """
        if self._folder is None:
            return
        limits = [limit for limit in (self.budget_bytes, limit_bytes) if limit is not None]
        room = min(limits, default=None)
        kept: list[SegmentRef] = []
        may_fetch = True
        for ref in first_to_last:
            is_here = ref.name in self._resident or ref.name in self._written
            if (is_here or may_fetch) and (room is None or ref.bytes <= room):
                kept.append(ref)
                room = None if room is None else room - ref.bytes
                may_fetch = may_fetch and (is_here or not self._resident)
        for name in self._resident - {ref.name for ref in kept}:
            self._evict(self._folder, name)
        self._settle(self._folder, kept)
        self.resident_bytes = sum(ref.bytes for ref in kept if ref.name in self._resident)
        for ref in kept:
            if ref.name in self._written and ref.name in self._resident:
                self._in_memory(ref)  # map now: the epoch that merges pays for it, not the next one

    def _settle(self, folder: PrivateFolder, kept: Sequence[SegmentRef]) -> None:
        """Have the kept segments in memory, those for which the host has room."""
        here = frozenset(ref.name for ref in kept if ref.name in self._resident)
        room = Room(here, dict.fromkeys(ref.name for ref in kept if ref.name not in here))
        if self.host_bytes is not None and room.reserved:
            room = room_for(folder, self.host_bytes, Task.named(self._task), kept, here)
            for name in here - room.stay:
                mapped.forget(str(self.memory), name)
        come = [ref for ref in kept if ref.name in room.reserved]
        copied = {ref.name for ref in come if self._copied(folder, ref, room.reserved[ref.name])}
        self._resident = {*room.stay, *copied}

    def _copied(self, folder: PrivateFolder, ref: SegmentRef, reserved: str | None) -> bool:
        mark = folder.copy(self.durable / ref.name, ref.name, reserved)
        if mark is None:
            return False
        if ref.name in self._written:
            self._copies[ref.name] = mark
        else:
            self.fetched_bytes += ref.bytes
        return True

    def _evict(self, folder: PrivateFolder, name: str) -> None:
        folder.remove(name)
        mapped.forget(str(self.memory), name)


def _mark(place: str) -> tuple[int, int, int] | None:
    """A mark that changes when the file is written to or replaced; None if there is no file."""
    try:
        status = plain_status(place)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _require(path: Path, ref: SegmentRef) -> None:
    try:
        is_whole = checksum_of(path) == Checksum(ref.bytes, ref.crc)
        what = "" if is_whole else "corrupted: its checksum does not match the manifest"
    except FileNotFoundError:
        what = "missing"
    except OSError as error:
        what = f"corrupted: {error.strerror}"
    if what:
        raise CorruptSegmentError(
            f"segment {ref.name} of the checkpoint is {what}",
            hint=f"restore {path} from a backup, or start with a new checkpointLocation",
        )
