"""Checks that a path is, or can become, a writable folder: made before anything is written, so that the error can name
the obstacle."""

from __future__ import annotations

import os
from pathlib import Path

from watersmeet.errors import CheckpointError


def obstacle_to_folder(path: Path) -> str | None:
    """The obstacle to a writable folder at this path; None if none is found."""
    above = next((folder for folder in (path, *path.parents) if os.path.exists(folder)), path)
    if not os.path.isdir(above):
        if above == path:
            return "it is a file"
        return f"{above} is a file"
    if not os.access(above, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return "it is read-only" if above == path else f"{above} is read-only"
    return None


def cannot_keep_state(path: Path, obstacle: str) -> CheckpointError:
    return CheckpointError(
        f"cannot keep a checkpoint in {path}: {obstacle}",
        hint="name a folder that you may write to, or the path of a new one",
    )
