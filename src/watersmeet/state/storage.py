"""State IO: the few operations a checkpoint needs, over a local or shared POSIX folder.

`create` is put-if-absent and atomic: a reader sees the whole value or none, and of two writers one is told. Bytes are
synced before the name appears, so a name that exists after a power cut has its bytes. Other kinds of storage are
refused by name; they would implement the same four operations.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import unquote, urlparse

from watersmeet.errors import CheckpointError
from watersmeet.failpoints import failpoint

Written = TypeVar("Written")
TEMPORARY = ".tmp-"


def is_local(location: str) -> bool:
    return urlparse(location).scheme in ("", "file")


def local_path(location: str) -> Path:
    """The folder behind a path or file: URI."""
    parsed = urlparse(location)
    if is_local(location):
        return Path(unquote(parsed.path) if parsed.scheme else location).absolute()
    raise CheckpointError(
        f"cannot keep state on '{parsed.scheme}:' ({location})",
        hint="use a local path, or a folder that is mounted at the same path on the driver and all executors",
    )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system has against writing a file, as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}",
            hint="make room there, or make it writable, and start the query again: it goes on where it was",
            error_class="CANNOT_WRITE_STATE",
        ) from error


def write_durably(path: Path, write: Callable[[BinaryIO], Written], *, replace: bool = False) -> Written | None:
    """Write a file so that it appears whole, synced, or not at all; None if it exists already and `replace` is off;
    a CheckpointError says what the system has against it."""
    with writing(path):
        return _write_durably(path, write, replace=replace)


def _write_durably(path: Path, write: Callable[[BinaryIO], Written], *, replace: bool) -> Written | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as file:
            written = write(file)
            failpoint(f"write:{path.suffix[1:] or path.name}")
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.rename(path)
        else:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return None
        sync_folder(path.parent)
        return written
    finally:
        temporary.unlink(missing_ok=True)


def create(path: Path, data: bytes) -> bool:
    """Put if absent; False if the name is taken."""
    return write_durably(path, lambda file: file.write(data)) is not None


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def names(folder: Path) -> list[str]:
    """The finished files of a folder."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith(TEMPORARY))
    except FileNotFoundError:
        return []


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
