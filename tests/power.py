"""Power cuts, simulated: what a disk may hold after one, by the syncs that were made before it.

A recorder wraps `os.fsync`, and nothing else. When a file is synced, the bytes that it has then are durable; when a
folder is synced, the names that it has then are, with the files they stand for. After a cut there is whatever is
durable, and of everything else any part, drawn by a seed:

| not synced       | after the cut                                                                    |
|------------------|----------------------------------------------------------------------------------|
| a new name       | it is there, or not                                                              |
| a removed name   | it is gone, or there again                                                       |
| a replaced name  | it stands for the new file, or for the old one                                   |
| bytes of a file  | all of them, or the durable ones, or some of the first, or as many zeros, or none |

It needs a file system that uses no inode number twice, as a tmpfs does.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None


class PowerCut(BaseException):
    """Not an Exception: nobody may handle it."""


class Node(NamedTuple):
    """What a name stands for."""

    number: int
    is_folder: bool


class Disk:
    """A folder, and what of it is durable. `cut_at` is the number of the event at which the power is cut, among those
    of a kind or among all; events are what is told to `event`, and the begin and the end of every sync."""

    def __init__(self, root: Path, chance: Random, cut_at: int | None = None, kind: str | None = None) -> None:
        self.root, self.cut_at, self._kind = root, cut_at, kind
        self._events = 0
        self._chance = chance
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, Node]] = {}
        self._is_cut = False

    def settle(self) -> None:
        """All that is there is durable: it has been for long."""
        for folder, _, files in os.walk(self.root):
            self._note(Path(folder))
            for name in files:
                self._note(Path(folder) / name)

    def event(self, kind: str | None = None) -> None:
        """Something that may be the last before the cut."""
        self._events += self._kind in (None, kind)
        if self._events == self.cut_at and not self._is_cut:
            self._is_cut = True
            self.after.mkdir()
            keeps = self._chance.choice((0.0, 0.5, 0.5, 0.5, 1.0))
            self._survive(self.root, self.root.stat().st_ino, self.after, keeps)
            raise PowerCut

    @property
    def after(self) -> Path:
        """What there is after the cut."""
        return self.root.with_name(f"{self.root.name}-after-cut")

    @contextmanager
    def recorded(self) -> Iterator[None]:
        fsync = os.fsync

        def sync(descriptor: int) -> None:
            self.event()
            fsync(descriptor)
            self._note(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            self.event()

        with mock.patch("os.fsync", sync):
            yield

    def _note(self, path: Path) -> None:
        if path != self.root and self.root not in path.parents:
            return
        number = path.stat().st_ino
        if path.is_dir():
            self._names[number] = _names(path)
        else:
            self._bytes[number] = path.read_bytes()

    def _survive(self, now: Path | None, number: int, target: Path, keeps: float) -> None:
        """What is left of a folder; `now` is where it is, unless it was removed."""
        current = {} if now is None else _names(now)
        durable = self._names.get(number, {})
        for name in sorted(current.keys() | durable.keys()):
            new, old = current.get(name), durable.get(name)
            chosen = new if new == old or self._chance.random() < keeps else old
            if chosen is None:
                continue
            place = None if now is None or chosen != new else now / name
            if chosen.is_folder:
                (target / name).mkdir()
                self._survive(place, chosen.number, target / name, keeps)
            else:
                (target / name).write_bytes(self._content(place, chosen.number, keeps))

    def _content(self, now: Path | None, number: int, keeps: float) -> bytes:
        durable = self._bytes.get(number, b"")
        current = durable if now is None else now.read_bytes()
        if current == durable or self._chance.random() < keeps:
            return current
        lines = current.splitlines(keepends=True)
        some = b"".join(lines[: self._chance.randrange(len(lines) + 1)])
        return self._chance.choice((durable, b"", some, current[: len(current) // 2], bytes(len(current))))


def _names(folder: Path) -> dict[str, Node]:
    return {entry.name: Node(entry.inode(), entry.is_dir()) for entry in os.scandir(folder)}
