"""The cap of a host: how many bytes all slots together may have in its memory folder, wherever slots run.

The driver divides memory between slots (`epoch/memory_shares.py`), but Spark chooses the host of a task. A slot that
changes hosts leaves files behind, and brings its own. So a task that copies files to memory asks here first:

    lock ─ sizes of all files ─ evict files of slots that have gone ─ reserve what fits ─ unlock ─ copy

A reserved file has its full size at once, so whoever looks next counts it. A lock ends with its process. So the bytes
in the folder are within the cap at any moment, whoever is killed. What does not fit is read from the durable tier.

A slot *has gone* if it has not run its stage here in this epoch or the two before it. Empty files say when each did:
`.ran-<stage>-<slot>-<epoch>`. A file belongs to the slot that has written it, as its name says. Where another slot
reads it, after a change of slots, it may be evicted too early, which costs only speed.

Known limitation: while a process is stopped (SIGSTOP) in the few microseconds that it holds the lock, others wait.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from watersmeet.state.manifest import SegmentRef
from watersmeet.state.private_folder import PARTIAL, PrivateFolder

LOCK = ".lock"
RAN = ".ran-"
EPOCHS_KEPT = 2
"""A slot that has run on a host in one of so many epochs before is still there."""
_RAN = re.compile(rf"{re.escape(RAN)}([0-9]{{1,9}}-[0-9]{{1,9}})-([0-9]{{1,18}})")
_WRITTEN = re.compile(r"([0-9]{1,18})-([0-9]{1,9}-[0-9]{1,9})-")


class Task(NamedTuple):
    """The task that asks."""

    epoch: int
    place: str
    """Stage and slot, as in names of files."""

    @staticmethod
    def named(name: str) -> Task:
        epoch, place = name.split("-", 1)
        return Task(int(epoch), place)


@dataclass(frozen=True, slots=True)
class Room:
    """The files that a task may have in memory: those that stay, and those to copy, into a reserved file each."""

    stay: frozenset[str]
    reserved: Mapping[str, str | None]
    """By name; None: anywhere."""


def note_ran(folder: PrivateFolder, task: Task, names: Iterable[str]) -> None:
    """Note that the slot runs its stage here, given the names in the folder. Reserved files that attempts in earlier
    epochs have left are removed."""
    marker = f"{RAN}{task.place}-{task.epoch}"
    is_noted = False
    for name in names:
        if name.startswith(f"{RAN}{task.place}-"):
            is_noted = folder.rename(name, marker) or is_noted
        elif name.endswith(PARTIAL) and _is_left_over(name, task):
            folder.remove(name)
    if not is_noted:
        folder.touch(marker)


def room_for(
    folder: PrivateFolder, cap_bytes: int, task: Task, first_to_last: Sequence[SegmentRef], resident: Collection[str]
) -> Room:
    """Room for the first of these segments, as many as fit under the cap; `resident` ones are there already.

    Files of slots that have gone are evicted if that makes room, and resident ones that no longer fit. The caller then
    copies the others, each into its reserved file.
    """
    with folder.locked(LOCK) as is_locked:
        if not is_locked:
            return Room(frozenset(resident), {})
        sizes = folder.sizes()
        ours = frozenset(ref.name for ref in first_to_last if ref.name in resident and ref.name in sizes)
        room = cap_bytes - sum(sizes[name] for name in sizes.keys() - ours)
        room += _evicted(folder, sizes, ours, task, sum(ref.bytes for ref in first_to_last) - room)
        fitting: list[SegmentRef] = []
        for ref in first_to_last:
            if ref.bytes <= room:
                fitting.append(ref)
                room -= ref.bytes
        stay = ours & {ref.name for ref in fitting}
        if not all(folder.remove(name) for name in ours - stay):
            return Room(stay, {})
        made = {ref.name: folder.reserve(ref.name, ref.bytes) for ref in fitting if ref.name not in stay}
        return Room(stay, {name: reserved for name, reserved in made.items() if reserved is not None})


def _evicted(folder: PrivateFolder, sizes: dict[str, int], ours: Collection[str], task: Task, needed: int) -> int:
    """Evict files of slots that have gone, the longest gone first, until so many bytes are free; the bytes that are."""
    if needed <= 0:
        return 0
    ran = {found[1]: int(found[2]) for name in sizes if (found := _RAN.fullmatch(name)) is not None}
    gone: list[tuple[int, int, str]] = []
    for name in sizes.keys() - ours:
        if (written := _WRITTEN.match(name)) is not None:
            last = -1 if _is_left_over(name, task) else ran.get(written[2], -1)
            if last < task.epoch - EPOCHS_KEPT:
                gone.append((last, int(written[1]), name))
    freed = 0
    for _, _, name in sorted(gone):
        if freed >= needed:
            break
        freed += sizes[name] if folder.remove(name) else 0
    return freed


def _is_left_over(name: str, task: Task) -> bool:
    """Whether the task's slot has written a file in an earlier epoch; it is one that the slot no longer keeps."""
    written = _WRITTEN.match(name)
    return written is not None and written[2] == task.place and int(written[1]) < task.epoch
