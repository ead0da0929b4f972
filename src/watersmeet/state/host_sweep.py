"""What leaves the memory tier of a host because no manifest names it any more.

A task does not know all segments that live, and need not: the driver tells the names that each commit has dropped. Once
an epoch the first task on a host removes them; a marker file in the memory folder, `.swept-<epoch>`, says up to which
commit that was done. A host that no task came to for longer than the driver remembers looks at the whole manifest once.

Tasks that have a removed file mapped go on reading it. A folder that is read-only is not swept until it is writable.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping

from watersmeet.state.private_folder import PrivateFolder

MARKER = ".swept-"
EPOCHS_REMEMBERED = 64
_MARKED = re.compile(rf"{re.escape(MARKER)}(-?[0-9]{{1,18}})")
_NUMBERED = re.compile(r"([0-9]{1,18})-")

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
    memory: PrivateFolder, committed: int, dropped: Callable[[], Dropped], live: Callable[[], Collection[str]]
) -> None:
    """Remove what commits up to `committed` have dropped, unless another task has done so. `live` tells all that the
    last manifest names; it is asked only where `dropped` does not reach back far enough."""
    held = memory.names()
    done = max((int(found[1]) for name in held if (found := _MARKED.fullmatch(name))), default=None)
    if done is None:
        memory.touch(f"{MARKER}{committed}")
        return  # the folder is new: nothing in it is older
    if done >= committed or not memory.rename(f"{MARKER}{done}", f"{MARKER}{committed}"):
        return  # it is done, another task has begun, or nothing can be removed here
    names = dropped()
    missed = range(done + 1, committed + 1)
    if all(epoch in names for epoch in missed):
        for name in (name for epoch in missed for name in names[epoch]):
            memory.remove(name)
        return
    kept = set(live())
    for name in held:
        found = _NUMBERED.match(name)
        if found is not None and int(found[1]) <= committed and name not in kept:
            memory.remove(name)
