"""An outside observer of the memory tier: the sizes of the files in a folder, sampled by a thread of its own."""

import os
import threading
import time
from pathlib import Path

PAUSE_SECONDS = 0.001


def bytes_below(folder: Path) -> int:
    """The sizes of all files below a folder, as they are found; files may come and go meanwhile."""
    total = 0
    try:
        for entry in os.scandir(folder):
            try:
                total += bytes_below(Path(entry.path)) if entry.is_dir() else entry.stat().st_size
            except FileNotFoundError:
                continue
    except FileNotFoundError:
        return total
    return total


def files_below(folder: Path) -> dict[str, int]:
    """The sizes of all files below a folder, by path; -1 for one that has just gone."""
    found: dict[str, int] = {}
    try:
        for entry in os.scandir(folder):
            try:
                found |= files_below(Path(entry.path)) if entry.is_dir() else {entry.path: entry.stat().st_size}
            except FileNotFoundError:
                found[entry.path] = -1
    except FileNotFoundError:
        return found
    return found


class Observer:
    """`with Observer(folder) as seen: ...`; then `seen.samples` holds (moment, bytes).

    A file that goes and one that comes during a look may both be counted, though they were never there together. A
    `steady` observer keeps what two looks agree on.
    """

    def __init__(self, folder: Path, *, steady: bool = False) -> None:
        self.folder, self.steady = folder, steady
        self.samples: list[tuple[float, int]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def most(self, since: float = 0) -> int:
        return max((size for moment, size in self.samples if moment >= since), default=0)

    def _watch(self) -> None:
        while not self._end.wait(PAUSE_SECONDS):
            if not self.steady:
                self.samples.append((time.monotonic(), bytes_below(self.folder)))
            elif -1 not in (files := files_below(self.folder)).values() and files == files_below(self.folder):
                self.samples.append((time.monotonic(), sum(files.values())))
