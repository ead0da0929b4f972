"""Temporary checkpoints: folders that last as long as their query, and no longer than its driver.

Each lies in the system's folder for temporary files, is closed to other users, and is locked (`flock` on the folder
itself) by the process that made it. It is removed when its query ends, or when the interpreter exits. The lock of a
killed process is gone, so the next start finds its folder unlocked and removes it.

Only folders are removed that have a name of ours, belong to this user, are closed to others and are locked by nobody.
No link is followed. Where a file system has no such locks, nothing is swept.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "watersmeet-temporary-"
FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
ATTEMPTS = 10
"""Tasks that are being cancelled may write for a moment longer, so a folder may need to be removed again."""


class TemporaryFolder:
    """A folder that this process has made and locked."""

    def __init__(self) -> None:
        self.path, self._lock = _made()
        self._process = os.getpid()
        atexit.register(self.remove)

    def remove(self) -> None:
        """Remove the folder with all that is in it. Calling it again does nothing; nor does a forked process."""
        if os.getpid() != self._process:
            return
        atexit.unregister(self.remove)
        _remove(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep_temporary() -> None:
    """Remove the temporary folders of this user whose process has ended."""
    root = Path(tempfile.gettempdir())
    with suppress(OSError):
        for name in os.listdir(root):
            if name.startswith(PREFIX):
                _sweep(root / name)


def _made() -> tuple[Path, int]:
    """A new folder and its lock. A sweep of another process may take the folder before it is locked: then another one
    is made."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.lstat(path)):
                    return path, lock
            except BlockingIOError:
                pass
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.EBADF, errno.ENOTSUP, errno.EINVAL):
                    raise
                return path, lock  # no locks here: nobody sweeps
            os.close(lock)


def _sweep(path: Path) -> None:
    with suppress(OSError):
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & FOR_OTHERS:
            return
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(found, os.fstat(lock)):
                _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    for _ in range(ATTEMPTS):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
