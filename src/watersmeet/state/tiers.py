"""The two tiers of a slot's segments: durable files are the truth, memory is a bounded copy of some of them.

    durable   <checkpoint>/watersmeet/segments/<name>      written and synced before an epoch commits
    memory    <memory folder>/<query>/<run>/<name>         a tmpfs: bytes that are RAM, shared by the workers of a host

| event                                | what happens                                                                 |
|--------------------------------------|------------------------------------------------------------------------------|
| a slot writes a segment              | durable first, then a copy in memory                                         |
| a slot opens a segment, in memory    | mapped                                                                       |
| ... not in memory, budget has room   | fetched: checksum verified, copied, mapped; counted in `fetched_bytes`       |
| ... not in memory, no room           | mapped where it lies, after its checksum is verified once per process        |
| an epoch ends                        | newest segments stay up to the budget, the others leave memory (`retain`)     |
| an epoch starts                      | files that no manifest names any more leave memory (`sweep`)                 |

The budget counts the bytes of resident files of one slot. Files mapped by a running task stay readable after they
are removed, so eviction needs no coordination between slots.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from watersmeet.errors import CorruptSegmentError
from watersmeet.failpoints import failpoint
from watersmeet.state.manifest import SegmentRef
from watersmeet.state.run import Run
from watersmeet.state.segment import Checksum, checksum_of, read_segment, write_segment
from watersmeet.state.sieve import sieve_of
from watersmeet.state.storage import write_durably

SUFFIX = ".seg"

_verified: set[Path] = set()
"""Durable files whose checksum this process has verified: they are immutable, so once is enough."""

_mapped: dict[Path, tuple[int, list[tuple[int, Run]]]] = {}
"""Files this process has mapped, with their inode. Mapped anew in every epoch, they would cost page faults anew."""


def task_name(epoch: int, stage: int, slot: int) -> str:
    return f"{epoch:012d}-{stage:02d}-{slot:04d}"


def segment_name(task: str, attempt: str, number: int) -> str:
    """A name of its own for every attempt: two attempts of one task never write one file."""
    return f"{task}-{attempt}-{number}{SUFFIX}"


def epoch_of(name: str) -> int:
    return int(name.split("-", 1)[0])


@dataclass(slots=True)
class Tiers:
    """The segments one slot can see, and the bytes it moved while it looked."""

    durable: Path
    memory: Path | None
    budget_bytes: int | None = None
    resident_bytes: int = 0
    fetched_bytes: int = 0
    _resident: dict[str, int] = field(default_factory=dict)

    def sweep(self, live: Iterable[str], task: str) -> None:
        """Remove from memory what is not live: of earlier epochs, and of failed attempts at this very task."""
        keep, epoch = set(live), epoch_of(task)
        for path in [path for path in _mapped if path.name not in keep and path.parent in (self.durable, self.memory)]:
            del _mapped[path]
        if self.memory is None or not self.memory.is_dir():
            return
        for entry in os.scandir(self.memory):
            failed = entry.name.startswith(f"{task}-") and entry.name.endswith(SUFFIX)
            segment = entry.name.partition(SUFFIX)[0] + SUFFIX  # a copy in the making counts as what it will be
            if segment not in keep and (failed or epoch_of(entry.name) < epoch):
                Path(entry.path).unlink(missing_ok=True)

    def open(self, ref: SegmentRef) -> list[tuple[int, Run]]:
        """The (store, run) pairs of a segment; raises CorruptSegmentError with its name if its bytes are wrong."""
        if self.memory is None:
            return _map(self._verified_durable(ref))
        path = self.memory / ref.name
        if path.exists() or (self._has_room(ref.bytes) and self._fetch(ref, path)):
            try:
                runs = _map(path)
            except CorruptSegmentError:
                if path.exists():
                    raise  # otherwise another slot, which shared the segment, has evicted it meanwhile
            else:
                self._note(ref)
                return runs
        return _map(self._verified_durable(ref))

    def write(self, name: str, runs: Sequence[tuple[int, Run]]) -> SegmentRef:
        """Write a segment durably and, budget permitting, into memory."""
        path = self.durable / name
        checksum = write_durably(path, lambda file: write_segment(file, runs))
        assert checksum is not None, f"segment name {name} used twice"
        ref = SegmentRef(name, checksum.bytes, checksum.crc)
        failpoint("segment-durable")
        fits = self.budget_bytes is None or ref.bytes <= self.budget_bytes
        if self.memory is not None and fits and _copy(path, self.memory / name):
            self._note(ref)
        return ref

    def retain(self, newest_first: Iterable[SegmentRef]) -> None:
        """Keep the newest segments of the slot's new state in memory up to the budget, and evict the others."""
        kept: dict[str, int] = {}
        used = 0
        for ref in newest_first:
            fits = self.budget_bytes is None or used + ref.bytes <= self.budget_bytes
            if ref.name in self._resident and fits:
                kept[ref.name] = ref.bytes
                used += ref.bytes
        for name in self._resident.keys() - kept.keys():
            if self.memory is not None:
                (self.memory / name).unlink(missing_ok=True)
                _mapped.pop(self.memory / name, None)
        self._resident = kept
        self.resident_bytes = used

    def _has_room(self, size: int) -> bool:
        return self.budget_bytes is None or sum(self._resident.values()) + size <= self.budget_bytes

    def _note(self, ref: SegmentRef) -> None:
        self._resident[ref.name] = ref.bytes

    def _fetch(self, ref: SegmentRef, path: Path) -> bool:
        source = self.durable / ref.name
        _require(source, ref)
        if copied := _copy(source, path):
            self.fetched_bytes += ref.bytes
        return copied

    def _verified_durable(self, ref: SegmentRef) -> Path:
        path = self.durable / ref.name
        if path not in _verified:
            _require(path, ref)
            _verified.add(path)
        return path


def _map(path: Path) -> list[tuple[int, Run]]:
    """The runs of a segment file, mapped once as long as it is the same file."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return read_segment(path)  # which says what is wrong
    known = _mapped.get(path)
    if known is None or known[0] != inode:
        runs = [(store, replace(run, sieve=sieve_of(run.hashes))) for store, run in read_segment(path)]
        known = _mapped[path] = (inode, runs)
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
