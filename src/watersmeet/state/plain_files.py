"""Files of a checkpoint, opened without following links.

A checkpoint may come from anywhere, and one of our names may belong to a link, a folder or a pipe. All code opens the
files of a checkpoint with this module: it opens only regular files, and a file that is changed in place must have no
other name. So nothing outside the folder is read, emptied or written to.

Known limitation: folders are checked when the checkpoint is opened. An attacker who can exchange them later, while a
query runs, can do what the query may.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""The last flag keeps a pipe from blocking us."""
_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder"}


class NotPlainError(OSError):
    """A path that is not a plain file; `strerror` says what it is."""


def open_to_read(path: Path) -> BinaryIO:
    return _opened(path, os.O_RDONLY, "rb")


def open_to_append(path: Path) -> BinaryIO:
    """The file, made if it is missing."""
    return _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "ab")


def open_to_change(path: Path) -> BinaryIO:
    """The file, made if it is missing, not emptied; writes start at its beginning."""
    return _opened(path, os.O_RDWR | os.O_CREAT, "r+b")


def open_new(path: Path) -> BinaryIO:
    """A new file, which must not exist yet."""
    return _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "wb")


def read_plain(path: Path) -> bytes:
    with open_to_read(path) as file:
        return file.read()


def plain_status(path: Path | str) -> os.stat_result:
    """The status of a regular file; raises FileNotFoundError or NotPlainError."""
    status = os.lstat(path)
    _require(status, path, stat.S_IFREG)
    return status


def require_real_folder(path: Path) -> None:
    """NotPlainError if the path exists and is not a folder."""
    with suppress(FileNotFoundError):
        _require(os.lstat(path), path, stat.S_IFDIR)


def set_aside(path: Path) -> None:
    """Rename whatever has this name, unless it is a plain file that can be replaced or changed in place."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        path.rename(path.with_name(f"{path.name}.damaged-{uuid.uuid4().hex}"))


def _opened(path: Path, flags: int, mode: str) -> BinaryIO:
    try:
        descriptor = os.open(path, flags | _SAFE, 0o666)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError:
        plain_status(path)  # raises an error that says what it is, if it is not a file
        raise
    try:
        status = os.fstat(descriptor)
        _require(status, path, stat.S_IFREG)
        if mode != "rb" and status.st_nlink > 1:
            raise NotPlainError(errno.EMLINK, "it has another name (a hard link)", str(path))
    except OSError:
        os.close(descriptor)
        raise
    return cast(BinaryIO, os.fdopen(descriptor, mode))


def _require(status: os.stat_result, path: Path | str, kind: int) -> None:
    found = stat.S_IFMT(status.st_mode)
    if found != kind:
        what = _KINDS.get(found, "a file" if found == stat.S_IFREG else "a special file")
        wanted = "file" if kind == stat.S_IFREG else "folder"
        raise NotPlainError(errno.EINVAL, f"it is {what}, not a {wanted} of its own", str(path))
