"""How damage to a file of the checkpoint is reported: one error class, with the file, what is wrong, and the cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watersmeet.errors import CheckpointError

RESTORE = "restore the checkpoint from a backup, or start with a new checkpointLocation"


class Damage(ValueError):
    """What is wrong with a file, in words that follow its name."""


def damaged(path: Path, what: object, hint: str = RESTORE) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {what}", hint=hint, error_class="CHECKPOINT_DAMAGED")


@contextmanager
def reading(path: Path, hint: str = RESTORE) -> Iterator[None]:
    """Whatever a damaged file does to its reader, as the one error; what it refuses by itself stays as it is."""
    try:
        yield
    except OSError as error:
        raise damaged(
            path, "it is missing" if isinstance(error, FileNotFoundError) else error.strerror or error, hint
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise damaged(path, error, hint) from error
