"""The two tiers of a slot's segments: durable files are the truth, memory is a bounded copy of some of them.

    durable   <checkpoint>/watersmeet/segments/<name>      written and synced before an epoch commits
    memory    <memory folder>/<query>/<run>/<name>         a tmpfs: bytes that are RAM, shared by the workers of a host

| event                             | what happens                                                              |
|-----------------------------------|---------------------------------------------------------------------------|
| an epoch starts                   | files that no manifest names any more leave memory (`host_sweep.py`), and |
|                                   | what a slot has closed or let go (`leave`)                                |
| a slot opens a segment, in memory | mapped                                                                    |
| ... not in memory                 | mapped where it lies, after its checksum is verified once per process     |
| a slot writes a segment           | durable, and no more                                                      |
| an epoch ends (`retain`)          | what is not to stay leaves memory; then what is new to it is copied there |
|                                   | and, where this process has written it, mapped                            |

Copies of what earlier epochs wrote are *fetched*: one in an epoch, or all at once where a slot finds nothing in memory.
They are counted in `fetched_bytes`.
So memory never holds more than at the end of the epoch before or of this one. The budget counts the bytes of resident
files of one slot; of files that other slots have rows in, too, its share, once they are in memory. A slot that fetches
such a file counts all of it, and does so only where it finds nothing in memory. Files mapped by a running task stay
readable after they are removed, so eviction needs no coordination between slots.

Known limitation: a process that is idle keeps what it has mapped, until it runs its next task or ends.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from watersmeet.errors import CorruptSegmentError
from watersmeet.failpoints import failpoint
from watersmeet.state.manifest import SegmentRef
from watersmeet.state.run import Run
from watersmeet.state.segment import Checksum, checksum_of, read_segment, write_segment
from watersmeet.state.shares import NO_SHARES, Shares, own_bytes
from watersmeet.state.sieve import sieve_of
from watersmeet.state.storage import write_durably

SUFFIX = ".seg"
FOLDERS_MAX = 8
"""Of so many folders a process keeps mapped files: those of a few queries, not of all it ever ran."""

UNMAPPED_EVERY = 16
"""A process looks every so many tasks for files that it has mapped and that others have removed."""

_tasks = count()
_verified: set[str] = set()
"""Durable files whose checksum this process has verified: they are immutable, so once is enough."""

_mapped: dict[str, dict[str, tuple[int, list[tuple[int, Run]]]]] = {}
"""Files this process has mapped, with their inode. Mapped anew in every epoch, they would cost page faults anew."""


def task_name(epoch: int, stage: int, slot: int) -> str:
    return f"{epoch}-{stage}-{slot}"


def segment_name(task: str, attempt: str, number: int) -> str:
    """A name of its own for every attempt: two attempts of one task never write one file."""
    return f"{task}-{attempt}-{number}{SUFFIX}"


def epoch_of(name: str) -> int:
    """The epoch that a segment was written in; version 0.1 wrote it with leading zeros."""
    return int(name.split("-", 1)[0])


@dataclass(slots=True)
class Tiers:
    """The segments one slot can see, and the bytes it moved while it looked."""

    durable: Path
    memory: Path | None
    budget_bytes: int | None = None
    resident_bytes: int = 0
    fetched_bytes: int = 0
    _resident: set[str] = field(default_factory=set)
    _written: set[str] = field(default_factory=set)

    def leave(self, dead: Iterable[str], task: str) -> None:
        """Take out of memory what this slot needs there no longer, and what failed attempts at this very task have
        left; what others have taken out is unmapped. (What no manifest names any more: `state/host_sweep.py`.)"""
        if next(_tasks) % UNMAPPED_EVERY == 0:
            self._unmap_missing()
        if self.memory is None or not self.memory.is_dir():
            return
        for name in dead:
            (self.memory / name).unlink(missing_ok=True)
            _mapped.get(str(self.memory), {}).pop(name, None)
        for entry in os.scandir(self.memory):
            if entry.name.startswith(f"{task}-"):
                Path(entry.path).unlink(missing_ok=True)

    def _unmap_missing(self) -> None:
        for folder in (self.durable, self.memory):
            mapped = _mapped.get(str(folder), {})
            for name in [name for name in mapped if not os.path.exists(f"{folder}/{name}")]:
                del mapped[name]

    def open(self, ref: SegmentRef) -> list[tuple[int, Run]]:
        """The (store, run) pairs of a segment; raises CorruptSegmentError with its name if its bytes are wrong."""
        runs = self._in_memory(ref)
        if runs is None:
            return self._in_durable(ref)
        self._resident.add(ref.name)
        return runs

    def peek(self, ref: SegmentRef) -> list[tuple[int, Run]]:
        """A segment that another stage keeps, wherever it lies; it is not counted here, nor will it be evicted."""
        runs = self._in_memory(ref)
        return self._in_durable(ref) if runs is None else runs

    def read(self, ref: SegmentRef) -> list[tuple[int, Run]]:
        """A segment that is seldom read, mapped for the caller alone: what of it is not touched is not read, but for
        its checksum, once per process."""
        self._verify(ref)
        return read_segment(self.durable / ref.name)

    def is_resident(self, name: str) -> bool:
        """Whether a segment that was opened is in memory."""
        return name in self._resident

    def _in_memory(self, ref: SegmentRef) -> list[tuple[int, Run]] | None:
        if self.memory is None:
            return None
        try:
            return _map(self.memory, ref.name)
        except FileNotFoundError:
            return None
        except CorruptSegmentError:
            if (self.memory / ref.name).exists():
                raise
            return None  # another slot or stage has evicted it meanwhile

    def _in_durable(self, ref: SegmentRef) -> list[tuple[int, Run]]:
        self._verify(ref)
        return _map(self.durable, ref.name)

    def _verify(self, ref: SegmentRef) -> None:
        place = f"{self.durable}/{ref.name}"
        if place not in _verified or not os.path.exists(place):
            _require(self.durable / ref.name, ref)
            _verified.add(place)

    def write(self, name: str, runs: Sequence[tuple[int, Run]]) -> SegmentRef:
        """Write a segment durably."""
        checksum = write_durably(self.durable / name, lambda file: write_segment(file, runs))
        assert checksum is not None, f"segment name {name} used twice"
        failpoint("segment-durable")
        self._written.add(name)
        return SegmentRef(name, checksum.bytes, checksum.crc)

    def unwrite(self, names: Iterable[str]) -> None:
        """Remove segments that this task has written and will not name: they were merged again at once."""
        for name in names:
            assert name in self._written, f"segment {name} is not this task's own"
            (self.durable / name).unlink(missing_ok=True)

    def retain(
        self, first_to_last: Iterable[SegmentRef], limit_bytes: int | None = None, shares: Shares = NO_SHARES
    ) -> None:
        """Have the first segments of the slot's new state in memory, up to budget and limit, and none of the others.

        Beside what is there and what is new, one segment is fetched at a time; all at once where nothing is there.
        `shares` are of segments that other slots have rows in, too: these may evict them, and are not asked.
        """
        if self.memory is None:
            return
        limits = [limit for limit in (self.budget_bytes, limit_bytes) if limit is not None]
        room = min(limits, default=None)
        kept: list[SegmentRef] = []
        costs: dict[str, int] = {}
        may_fetch = True
        for ref in first_to_last:
            is_here = ref.name in self._resident or ref.name in self._written
            may_come = may_fetch and not (ref.name in shares and self._resident)
            cost = own_bytes(ref, shares) if is_here else ref.bytes
            if (is_here or may_come) and (room is None or cost <= room):
                kept.append(ref)
                costs[ref.name] = cost
                room = None if room is None else room - cost
                may_fetch = may_fetch and (is_here or not self._resident)
        for name in self._resident - costs.keys():
            (self.memory / name).unlink(missing_ok=True)
            _mapped.get(str(self.memory), {}).pop(name, None)
        self._resident = {ref.name for ref in kept if ref.name in self._resident or self._copied(ref)}
        self.resident_bytes = sum(costs[name] for name in self._resident)
        for ref in kept:
            if ref.name in self._written and ref.name in self._resident:
                self._in_memory(ref)  # mapped at once: an epoch that merges pays for it, and not the next

    def _copied(self, ref: SegmentRef) -> bool:
        assert self.memory is not None
        if not _copy(self.durable / ref.name, self.memory / ref.name):
            return False
        if ref.name not in self._written:
            self.fetched_bytes += ref.bytes
        return True


def _map(place: Path, name: str) -> list[tuple[int, Run]]:
    """The runs of a segment file, mapped once as long as it is the same file; raises FileNotFoundError."""
    folder = str(place)
    inode = os.stat(f"{folder}/{name}").st_ino
    mapped = _mapped.pop(folder, {})
    _mapped[folder] = mapped  # the last used folder stands last
    if len(_mapped) > FOLDERS_MAX:
        del _mapped[next(iter(_mapped))]
    known = mapped.get(name)
    if known is None or known[0] != inode:
        runs = [(store, replace(run, sieve=sieve_of(run.hashes))) for store, run in read_segment(place / name)]
        known = mapped[name] = (inode, runs)
    return known[1]


def _copy(source: Path, target: Path) -> bool:
    """Copy into memory; False when it is full or its folder is gone, which costs speed and nothing else."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, partial)
        partial.rename(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.ENOENT):
            raise
        return False
    return True


def _require(path: Path, ref: SegmentRef) -> None:
    if not path.exists():
        raise CorruptSegmentError(
            f"segment {ref.name} of the checkpoint is missing",
            hint=f"restore {path} from a backup, or start with a new checkpointLocation",
        )
    if checksum_of(path) != Checksum(ref.bytes, ref.crc):
        raise CorruptSegmentError(
            f"segment {ref.name} of the checkpoint is corrupted: its checksum does not match the manifest",
            hint=f"restore {path} from a backup, or start with a new checkpointLocation",
        )
