"""The id of a checkpoint: random, so that nobody can guess it. It identifies the checkpoint in the sink's folder and in
the memory tier."""

from __future__ import annotations

import os
from pathlib import Path

from watersmeet.errors import CheckpointError
from watersmeet.state.storage import create, remove, writing

ID_BYTES = 16


def read_id(path: Path) -> bytes | None:
    """The id of a checkpoint; None if there is no valid one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = file.read(ID_BYTES + 1)
    except OSError:
        return None
    return found if len(found) == ID_BYTES else None


def keep_id(path: Path, drawn: bytes, location: Path) -> None:
    """Write the id unless it exists; an invalid one is replaced. Refused if another driver was quicker."""
    if read_id(path) is None:
        with writing(path):
            remove(path)
        create(path, drawn)
    if read_id(path) != drawn:
        raise CheckpointError(
            f"checkpoint {location} was taken by another driver at the same moment",
            hint="two drivers share this checkpoint, and its lock does not work; this one stops",
            error_class="CHECKPOINT_IN_USE",
        )
