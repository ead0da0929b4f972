"""The sweep of a host's memory tier: removes segments that no manifest names any more.

A task need not know all live segments: the driver passes on the names that each commit has dropped. Once per epoch the
first task on a host removes them; a marker file in the memory folder, `.swept-<epoch>`, says up to which commit this
was done. If a host had no task for longer than the driver remembers, its next task reads the whole manifest once.

Tasks that have mapped a removed file can still read it. A read-only folder is not swept until it is writable.
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
"""By epoch, the names that its commit dropped."""


class Drops:
    """The names that the last commits dropped; the driver keeps them."""

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
    """Remove segments that commits up to `committed` dropped, unless another task has done so. `live` returns all names
    in the last manifest; it is called only if `dropped` does not reach back far enough."""
    held = memory.names()
    done = max((int(found[1]) for name in held if (found := _MARKED.fullmatch(name))), default=None)
    if done is None:
        memory.touch(f"{MARKER}{committed}")
        return  # the folder is new: it has no older files
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
