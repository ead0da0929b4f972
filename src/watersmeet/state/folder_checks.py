"""Whether a path is, or can become, a folder to write to: looked at before anything is written, so that the answer can
say what is in the way."""

from __future__ import annotations

import os
from pathlib import Path

from watersmeet.errors import CheckpointError


def obstacle_to_folder(path: Path) -> str | None:
    """What is in the way of a folder here that can be written to; None if nothing is seen."""
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
