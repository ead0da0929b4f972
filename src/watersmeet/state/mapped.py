"""Segments that this process keeps mapped between tasks: mapping them again would cost page faults again.

A segment is identified by its folder and name, as long as it is the same file (`Mark`). Mapped segments are read-only,
so the tasks of a process share them. A removed file stays readable for processes that have mapped it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from watersmeet.state.generation_column import without_generations
from watersmeet.state.private_folder import Mark
from watersmeet.state.run import Run
from watersmeet.state.sieve import sieve_of
from watersmeet.state.widths import row_bytes_max

FOLDERS_MAX = 8
"""The number of folders with mapped files per process: those of a few queries, not of all it ever ran."""

Runs = list[tuple[int, Run]]
"""The runs of a segment, each with the number of its store."""

_mapped: dict[str, dict[str, tuple[Mark, Runs]]] = {}


def known(folder: str, name: str, mark: Mark) -> Runs | None:
    """The runs of a segment, if this process has mapped the same file."""
    mapped = _mapped.pop(folder, {})
    _mapped[folder] = mapped  # the last used folder stands last
    if len(_mapped) > FOLDERS_MAX:
        del _mapped[next(iter(_mapped))]
    found = mapped.get(name)
    return found[1] if found is not None and found[0] == mark else None


def keep(folder: str, name: str, mark: Mark, runs: Sequence[tuple[int, Run]]) -> Runs:
    """Keep the runs of a mapped file, each with the values that every probe needs."""
    ready = [(store, _ready(without_generations(run))) for store, run in runs]
    _mapped.setdefault(folder, {})[name] = mark, ready
    return ready


def _ready(run: Run) -> Run:
    return replace(run, sieve=sieve_of(run.hashes), widest=row_bytes_max(run.payload))


def forget(folder: str, name: str) -> None:
    _mapped.get(folder, {}).pop(name, None)


def forget_missing(folder: str) -> None:
    """Unmap files that others have removed."""
    mapped = _mapped.get(folder, {})
    for name in [name for name in mapped if not os.path.lexists(f"{folder}/{name}")]:
        del mapped[name]
