"""A private folder on a host with other users: closed to them, or refused.

It is made with mode 0700 and its files with 0600, whatever the umask. It is used only if the system says that it is a
folder (no link), owned by this user, closed to all others. Names are looked up in the folder that was opened and
checked, never by path, and no link is followed: if somebody replaces the folder, nothing is written to or removed from
the replacement.

An operation that the system refuses (the folder is full, read-only, gone) costs only speed: no method raises OSError.

Known limitation: users who may write to the parent folder can move the folder away, unless the parent is sticky.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import WatersmeetError

PARTIAL = ".part"
COPIED_AT_ONCE = 1 << 30
FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Mark = tuple[int, int]
"""Inode and time of the last change, in ns: while the mark is the same, the bytes are the same."""


class PrivateFolder:
    """An opened folder; it is closed when the object is garbage."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises WatersmeetError if it is not private, and OSError if it cannot be opened."""
        self.path = path
        self._descriptor = -1
        found = os.lstat(path)
        if (reason := _foreign(found)) is not None:
            raise _refused(path, reason)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        if not os.path.samestat(found, os.fstat(self._descriptor)):
            raise _refused(path, "it was replaced while it was opened")

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def names(self) -> list[str]:
        """All names in the folder."""
        try:
            return os.listdir(self._descriptor)
        except OSError:
            return []

    def sizes(self) -> dict[str, int]:
        """All names in the folder, with the bytes of each. A file that is renamed meanwhile, when its copy is whole, is
        not missed."""
        found: dict[str, int] = {}
        for name in self.names():
            for known in (name, _whole(name)):
                with suppress(OSError):
                    found[known] = os.stat(known, dir_fd=self._descriptor, follow_symlinks=False).st_size
                    break
        return found

    @contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        """Hold the lock of that name, which other processes wait for; False if there can be none. A process that ends
        gives its locks up."""
        try:
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self._descriptor)
        except OSError:
            yield False
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield True
        finally:
            os.close(file)

    def mark(self, name: str) -> Mark | None:
        """The mark of a file; None if there is no readable one."""
        try:
            return _mark(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False))
        except OSError:
            return None

    def mapped(self, name: str) -> tuple[Mark, pa.Buffer] | None:
        """The mapped bytes of a plain file, with its mark; None if it cannot be mapped."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._descriptor)
        except OSError:
            return None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return None
            if not found.st_size:  # an empty file cannot be mapped
                return _mark(found), pa.py_buffer(b"")
            with pa.memory_map(f"/dev/fd/{file}") as source:  # the opened file itself, whatever its name is now
                return _mark(found), source.read_buffer()
        except OSError:
            return None
        finally:
            os.close(file)

    def reserve(self, name: str, size: int) -> str | None:
        """Begin a file with so many bytes, which others can see, under a name of its own; None if that is not
        possible."""
        partial = f"{name}.{secrets.token_hex(8)}{PARTIAL}"
        try:
            made = self._new(partial)
        except OSError:
            return None
        try:
            os.ftruncate(made, size)
        except OSError:
            self.remove(partial)
            return None
        finally:
            os.close(made)
        return partial

    def copy(self, source: Path, name: str, reserved: str | None = None) -> Mark | None:
        """Copy a file into the folder, into a `reserved` one if given: it appears whole, or not at all. Returns the
        mark of the copy; None if there is none."""
        partial = self.reserve(name, 0) if reserved is None else reserved
        if partial is None:
            return None
        try:
            made = os.open(partial, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=self._descriptor)
        except OSError:
            return None
        try:
            with source.open("rb", buffering=0) as taken:
                done = 0
                while some := os.sendfile(made, taken.fileno(), done, COPIED_AT_ONCE):
                    done += some
            os.rename(partial, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            return _mark(os.fstat(made))
        except OSError:
            self.remove(partial)
            return None
        finally:
            os.close(made)

    def touch(self, name: str) -> bool:
        """Make an empty file. Returns whether that was possible; it is not if the name is taken."""
        try:
            os.close(self._new(name))
        except OSError:
            return False
        return True

    def rename(self, old: str, new: str) -> bool:
        """Rename a file; returns whether it has its new name."""
        try:
            os.rename(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError:
            return False
        return True

    def remove(self, name: str) -> bool:
        """Remove a file; returns whether the name is free."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _new(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.open(name, flags, 0o600, dir_fd=self._descriptor)


def make_private(path: Path) -> None:
    """Make the folder; raises FileExistsError if anything has its name, and other errors of the system."""
    os.mkdir(path, 0o700)


def opened_or_made(path: Path) -> PrivateFolder | None:
    """The folder, made if it does not exist; None if the system does not allow that, which costs only speed. Raises
    WatersmeetError if it exists and is not private."""
    try:
        with suppress(FileNotFoundError):
            return PrivateFolder(path)
        with suppress(FileExistsError):  # another task was quicker
            make_private(path)
        return PrivateFolder(path)
    except OSError:
        return None


def _whole(partial: str) -> str:
    """The name that a file gets when its copy is whole."""
    return partial.removesuffix(PARTIAL).rpartition(".")[0] if partial.endswith(PARTIAL) else partial


def _mark(found: os.stat_result) -> Mark:
    return found.st_ino, found.st_ctime_ns


def _foreign(found: os.stat_result) -> str | None:
    """Why a folder is not private; None if it is."""
    if stat.S_ISLNK(found.st_mode):
        return "it is a link"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}, not to user {os.geteuid()}"
    if found.st_mode & FOR_OTHERS:
        return f"it is open to other users (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def _refused(path: Path, reason: str) -> WatersmeetError:
    return WatersmeetError(
        f"memory folder {path} is refused: {reason}",
        hint="another user may have made it: look who did, and start the query again, which then uses another name",
        error_class="MEMORY_FOLDER_REFUSED",
    )
