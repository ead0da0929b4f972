"""What leaves the memory tier of a host because no manifest names it any more.

A task does not know all segments that live, and need not: the driver tells the names that each commit has dropped. Once
an epoch the first task on a host removes them; a marker file in the memory folder, `.swept-<epoch>`, says up to which
commit that was done. A host that no task came to for longer than the driver remembers looks at the whole manifest once.

Tasks that have a removed file mapped go on reading it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

MARKER = ".swept-"
EPOCHS_REMEMBERED = 64

Dropped = Mapping[int, Collection[str]]
"""By epoch: the names that its commit has dropped."""


class Drops:
    """What the last commits have dropped, as the driver remembers it."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=EPOCHS_REMEMBERED)

    def note(self, epoch: int, names: Collection[str]) -> None:
        self._recent.append((epoch, tuple(names)))

    @property
    def recent(self) -> dict[int, tuple[str, ...]]:
        return dict(self._recent)


def sweep_host(
    memory: Path, committed: int, dropped: Callable[[], Dropped], live: Callable[[], Collection[str]]
) -> None:
    """Remove what commits up to `committed` have dropped, unless another task has done so. `live` tells all that the
    last manifest names; it is asked only where `dropped` does not reach back far enough."""
    if not memory.is_dir():
        memory.mkdir(parents=True, exist_ok=True)
    done = _swept_through(memory)
    if done is not None and done >= committed:
        return
    marker = memory / f"{MARKER}{committed}"
    if done is None:
        marker.touch()
        return  # the folder is new: nothing in it is older
    try:
        os.rename(memory / f"{MARKER}{done}", marker)
    except FileNotFoundError:
        return  # another task has begun
    names = dropped()
    missed = range(done + 1, committed + 1)
    if all(epoch in names for epoch in missed):
        for name in (name for epoch in missed for name in names[epoch]):
            (memory / name).unlink(missing_ok=True)
    else:
        kept = set(live())
        for entry in os.scandir(memory):
            is_older = not entry.name.startswith(MARKER) and int(entry.name.split("-", 1)[0]) <= committed
            if is_older and entry.name not in kept:
                Path(entry.path).unlink(missing_ok=True)


def _swept_through(memory: Path) -> int | None:
    found = [int(entry.name.removeprefix(MARKER)) for entry in os.scandir(memory) if entry.name.startswith(MARKER)]
    return max(found, default=None)
