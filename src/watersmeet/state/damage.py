"""Reports of damage to a file of the checkpoint: one error class, with the file, the damage, and the cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watersmeet.errors import CheckpointError

RESTORE = "restore the checkpoint from a backup, or start with a new checkpointLocation"


class Damage(ValueError):
    """The damage of a file, in words that follow its name."""


def damaged(path: Path, what: object, hint: str = RESTORE) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {what}", hint=hint, error_class="CHECKPOINT_DAMAGED")


@contextmanager
def reading(path: Path, hint: str = RESTORE) -> Iterator[None]:
    """Turn any error while a damaged file is read into the one error class; errors of watersmeet pass unchanged."""
    try:
        yield
    except OSError as error:
        raise damaged(
            path, "it is missing" if isinstance(error, FileNotFoundError) else error.strerror or error, hint
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise damaged(path, error, hint) from error
