"""State IO: the few operations a checkpoint needs, over a local or shared POSIX folder.

`create` is put-if-absent and atomic: a reader sees the whole value or none, and of two writers one gets False. Bytes
are synced before the name appears, so a name that exists after a power cut has its bytes. No link is followed
(`state/plain_files.py`). Other kinds of storage are refused by name; they would implement the same four operations.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import unquote, urlparse

from watersmeet.errors import CheckpointError
from watersmeet.failpoints import failpoint
from watersmeet.state.file_names import TEMPORARY
from watersmeet.state.plain_files import open_new

Written = TypeVar("Written")


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
    """Turn an error of the system while a file is written into one that says what to do."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}",
            hint="make room there, or make it writable, and start the query again: it goes on where it was",
            error_class="CANNOT_WRITE_STATE",
        ) from error


def write_durably(
    path: Path, write: Callable[[BinaryIO], Written], *, replace: bool = False, first_name: Path | None = None
) -> Written | None:
    """Write a file so that it appears whole and synced, or not at all. Returns None if it exists and `replace` is off;
    raises CheckpointError if the system refuses. With `first_name`, the file has this name too, while it is written and
    afterwards; `path` must be new then, and if the first name is removed meanwhile, that is an error."""
    temporary = first_name or path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    with writing(path):
        return _write_durably(path, write, temporary, replace=replace, keeps_both=first_name is not None)


def _write_durably(
    path: Path, write: Callable[[BinaryIO], Written], temporary: Path, *, replace: bool, keeps_both: bool
) -> Written | None:
    if not keeps_both:  # or the folder of the first name, which is not for us to make, must exist
        make_folder(path.parent)
    try:
        with open_new(temporary) as file:
            written = write(file)
            failpoint(f"write:{path.suffix[1:] or path.name}")
            file.flush()
            os.fsync(file.fileno())
        if keeps_both:
            make_folder(path.parent)
            os.link(temporary, path)
        elif replace:
            os.rename(temporary, path)
        else:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return None
            finally:
                os.unlink(temporary)
        sync_folder(path.parent)
        return written
    except BaseException:
        for name in (path, temporary) if keeps_both else (temporary,):
            remove(name)
        raise


def create(path: Path, data: bytes) -> bool:
    """Put if absent; False if the name is taken."""
    return write_durably(path, lambda file: file.write(data)) is not None


def replace_unsynced(path: Path, data: bytes) -> None:
    """Put a file that nothing depends on: it appears whole or not at all, and may be lost in a power cut."""
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    with writing(path):
        try:
            with open_new(temporary) as file:
                file.write(data)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def remove(path: Path) -> None:
    """Remove a file or a link; anything else stays."""
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(path)


def names(folder: Path) -> list[str]:
    """The finished files of a folder."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith(TEMPORARY))
    except FileNotFoundError:
        return []


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents; the names of all new folders are synced."""
    if os.path.isdir(folder):
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_way_to(folder: Path) -> None:
    """Sync a folder, its name, and the names of all its parents: their makers may not have synced them."""
    for each in (folder, *folder.parents):
        with suppress(PermissionError):  # then the folder is not ours, and older than our folders
            sync_folder(each)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable; not its name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
