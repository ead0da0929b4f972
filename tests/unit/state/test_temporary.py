"""Temporary folders: gone when removed, at exit and after `kill -9`; those of others and of the living stay."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from tests.other_user import OTHER_UID, needs_root
from watersmeet.state.temporary import PREFIX, TemporaryFolder, sweep_temporary

HOLDING = """
import sys
from watersmeet.state.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "deep").mkdir()
(folder.path / "deep" / "file").write_text("state")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The folder for temporary files of this process and of those it starts."""
    found = tmp_path / "tmp"
    found.mkdir()
    monkeypatch.setenv("TMPDIR", str(found))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return found


@pytest.fixture
def holder(root):
    """Another process that has a temporary folder."""
    command = [sys.executable, "-c", HOLDING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(str(root / PREFIX))
        yield process
        process.kill()


def test_a_removed_folder_is_gone_and_may_be_removed_again(root):
    folder = TemporaryFolder()
    assert list(root.iterdir()) == [folder.path]
    (folder.path / "deep").mkdir()
    folder.remove()
    folder.remove()
    assert list(root.iterdir()) == []


def test_nothing_is_left_when_the_interpreter_exits(root, holder):
    holder.stdin.close()
    assert holder.wait() == 0
    assert list(root.iterdir()) == []


def test_a_forked_process_that_exits_leaves_the_folder_to_its_parent(root):
    forking = HOLDING.replace("print(", "import os\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\nprint(", 1)
    command = [sys.executable, "-c", forking]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(str(root / PREFIX))
        assert len(list(root.glob("*/deep/file"))) == 1
        process.kill()


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_live_one_is_not(root, holder):
    sweep_temporary()
    assert len(list(root.glob("*/deep/file"))) == 1
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    own = TemporaryFolder()
    assert len(list(root.iterdir())) == 2
    sweep_temporary()
    assert list(root.iterdir()) == [own.path]
    own.remove()


def test_only_closed_folders_with_names_of_ours_are_swept_and_no_link_is_followed(root, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").write_text("keep")
    (root / f"{PREFIX}link").symlink_to(precious)
    (root / f"{PREFIX}file").write_text("keep")
    (root / f"{PREFIX}open").mkdir()
    (root / f"{PREFIX}open").chmod(0o755)
    (root / "watersmeet-other").mkdir(mode=0o700)
    dead = root / f"{PREFIX}dead"
    dead.mkdir(mode=0o700)
    (dead / "link").symlink_to(precious)
    sweep_temporary()
    left = {path.name for path in root.iterdir()}
    assert left == {f"{PREFIX}link", f"{PREFIX}file", f"{PREFIX}open", "watersmeet-other"}
    assert (precious / "file").read_text() == "keep"


@needs_root
def test_folders_of_other_users_are_not_swept(root):
    theirs = root / f"{PREFIX}theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, OTHER_UID, OTHER_UID)
    sweep_temporary()
    assert theirs.is_dir()
