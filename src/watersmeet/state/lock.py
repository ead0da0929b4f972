"""The lock of a checkpoint: held by the live driver, released however the driver ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import BinaryIO

from watersmeet.errors import CheckpointError
from watersmeet.state.damage import damaged
from watersmeet.state.plain_files import NotPlainError, open_to_change

HOLDER_BYTES_MAX = 300


def taken(path: Path, location: Path, owner: str) -> BinaryIO:
    """Take the lock of the checkpoint at `location`, and write its owner; refused while a live driver holds it."""
    lock = _opened(path, location)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        said = lock.read(HOLDER_BYTES_MAX).decode(errors="replace")
        holder = "".join(each if each.isprintable() else "?" for each in said) or "another driver"
        lock.close()
        raise CheckpointError(
            f"checkpoint {location} is in use by {holder}",
            hint="stop that query first, or give this one a checkpointLocation of its own",
            error_class="CHECKPOINT_IN_USE",
        ) from None
    lock.truncate(0)
    lock.write(owner.encode())
    lock.flush()
    return lock


def cannot_write(location: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"cannot write to checkpointLocation {location}: {error.strerror}")


def _opened(path: Path, location: Path) -> BinaryIO:
    try:
        return open_to_change(path)
    except NotPlainError as error:
        raise damaged(path, error.strerror, "remove it: it holds nothing but who uses the checkpoint") from error
    except OSError as error:
        raise cannot_write(location, error) from error
