"""A second user of the host, and a folder that all users share, as /dev/shm is."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER_UID = 65534
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can act as another user")


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Within, the system takes this process for one of another user, without root's rights."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A sticky folder that everybody may write to."""
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-test-shared-"))
    try:
        folder.chmod(0o1777)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def a_tmpfs(folder: Path) -> Iterator[Path]:
    """A folder that `turn_read_only` works on. Modes do not bind root, so that is a tmpfs of its own then."""
    folder.mkdir()
    if not IS_ROOT:
        yield folder
        folder.chmod(0o700)
        return
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("root may not mount here, and modes do not bind it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def turn_read_only(folder: Path) -> None:
    """Let nothing in a folder, or directly below it, be written, made or removed any more."""
    if IS_ROOT:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        return
    for each in (*folder.iterdir(), folder):
        each.chmod(0o500)


def contents(folder: Path) -> dict[str, bytes | None]:
    """All that lies below a folder, with the bytes of files; links are not followed."""
    return {
        str(path.relative_to(folder)): None if path.is_symlink() or path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }
