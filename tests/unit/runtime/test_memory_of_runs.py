"""The memory tiers of runs come and go by themselves, and nothing of anybody else goes with them."""

import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from tests.other_user import OTHER_UID, acting_as, contents, needs_root, shared_folder
from watersmeet.errors import OptionError
from watersmeet.runtime.spark.memory import claim, empty_run, remove_other_runs, remove_run, run_folder
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.private_folder import make_private

OURS = ("3-0-0-x-0.seg", "3-0-0-x-1.seg.0a1b.part", ".swept-3")


@pytest.fixture
def shared():
    with shared_folder() as folder:
        yield folder


@pytest.fixture
def victim(tmp_path):
    """A folder of ours that nobody has business with; its files have names that we would remove."""
    return filled(tmp_path / "victim", "letter", *OURS)


def filled(folder: Path, *names: str) -> Path:
    if not folder.exists():
        make_private(folder)
    for name in names:
        (folder / name).write_bytes(b"precious")
    return folder


def until_gone(path: Path, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while os.path.lexists(path):
        assert time.monotonic() < deadline, f"{path} is still there"
        time.sleep(0.05)


# --- names -----------------------------------------------------------------------------------------------------------


def test_the_path_of_a_checkpoint_does_not_tell_its_identity(tmp_path):
    found = []
    for _ in range(2):
        found.append(identity_of(tmp_path / "ck"))
        assert identity_of(tmp_path / "ck") == found[-1], "it stays"
        shutil.rmtree(tmp_path / "ck")
    assert found[0] != found[1]
    assert all(len(bytes.fromhex(name)) == 16 for name in found)


def identity_of(location):
    """As a run that was accepted has it."""
    checkpoint = Checkpoint(location)
    checkpoint.prepare()
    return checkpoint.identity()


def test_a_copy_of_a_checkpoint_is_another_one(tmp_path):
    """Two queries may run on copies of a checkpoint: neither takes the other for a dead run of its own."""
    identity = identity_of(tmp_path / "ck")
    shutil.copytree(tmp_path / "ck", tmp_path / "copy")
    assert identity_of(tmp_path / "copy") != identity


def shortened(path, elsewhere):
    path.write_bytes(path.read_bytes()[:-1])


def lengthened(path, elsewhere):
    path.write_bytes(path.read_bytes() * 2)


def linked(path, elsewhere):
    path.unlink()
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("damage", [shortened, lengthened, linked])
def test_a_damaged_identity_is_drawn_anew(tmp_path, damage):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"0123456789abcdef")
    identity = identity_of(tmp_path / "ck")
    damage(tmp_path / "ck" / "watersmeet" / "id", elsewhere)
    again = identity_of(tmp_path / "ck")
    assert again != identity
    assert identity_of(tmp_path / "ck") == again
    assert not (tmp_path / "ck" / "watersmeet" / "id").is_symlink()
    assert elsewhere.read_bytes() == b"0123456789abcdef"


# --- dead runs -------------------------------------------------------------------------------------------------------


def test_dead_runs_of_the_same_checkpoint_are_removed_and_no_others(shared):
    mine, dead = shared / "watersmeet-aa-1", [shared / f"watersmeet-aa-{run}" for run in (2, 3)]
    others = [shared / name for name in ("watersmeet-aa1-2", "watersmeet-bb-2", "watersmeet-aa", "else")]
    for folder in (mine, *dead, *others):
        filled(folder, *OURS)
    remove_other_runs(mine)
    assert {path.name for path in shared.iterdir()} == {path.name for path in (mine, *others)}


def test_what_only_looks_like_a_dead_run_stays(shared, victim):
    """A link, a file, an open folder; and a folder of ours with files that no run has made."""
    (shared / "watersmeet-aa-2").symlink_to(victim)
    (shared / "watersmeet-aa-3").write_bytes(b"precious")
    filled(shared / "watersmeet-aa-4", *OURS).chmod(0o755)
    filled(shared / "watersmeet-aa-5", "letter")
    victim.rename(shared / "watersmeet-aa-6")
    filled(victim, *OURS)
    filled(shared / "watersmeet-aa-7")
    (shared / "watersmeet-aa-7" / "3-0-0-x-0.seg").mkdir()
    before, around = contents(victim), contents(shared)
    remove_other_runs(shared / "watersmeet-aa-1")
    assert contents(victim) == before
    gone = set(around) - set(contents(shared))
    assert gone == {f"watersmeet-aa-6/{name}" for name in OURS}, "it is ours, and has their names; all else stays"


@needs_root
def test_another_users_folder_leads_nowhere(shared, victim):
    """The attack: a folder made first, with links in it to what we may remove and its maker may not."""
    with acting_as(OTHER_UID):
        for run in (1, 2):
            folder = shared / f"watersmeet-aa-{run}"
            folder.mkdir(mode=0o777)
            (folder / "link").symlink_to(victim)
            (folder / OURS[0]).symlink_to(victim / OURS[0])
            (folder / OURS[2]).write_bytes(b"bait")
    before, around = contents(victim), contents(shared)
    mine = shared / "watersmeet-aa-1"
    remove_other_runs(mine)
    remove_run(mine)
    empty_run(mine)
    with pytest.raises(OptionError, match=r"cannot make a folder in memoryLocation .*: File exists"):
        claim(mine)
    assert contents(victim) == before
    assert contents(shared) == around


# --- the process that removes a folder -------------------------------------------------------------------------------


LOCATIONS = ("plain", "with space", "-rf", "$(touch gone)", 'it\'s "so"', "two\nlines", "*", "`x`;y", "é", "\\")


def test_a_run_is_removed_when_its_driver_is_gone_whatever_the_location_is_called(tmp_path):
    watchers = {}
    for location in LOCATIONS:
        (tmp_path / location).mkdir()
        filled(tmp_path / location / "neighbour", *OURS)
        folder = run_folder(str(tmp_path / location), "aa", "1")
        watchers[folder] = claim(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        filled(folder, *OURS)
    for watcher in watchers.values():
        watcher.close()
    for folder in watchers:
        until_gone(folder)
        neighbour = {f"neighbour/{name}": b"precious" for name in OURS}
        assert contents(folder.parent) == {"neighbour": None, **neighbour}


def test_what_takes_its_place_is_not_removed(shared, victim):
    folder = shared / "watersmeet-aa-1"
    watcher = claim(folder)
    filled(folder, *OURS)
    folder.rename(shared / "moved")
    folder.symlink_to(victim)
    before = contents(victim)
    watcher.close()
    deadline = time.monotonic() + 20
    while contents(shared / "moved") and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(4)  # it looks once more after three seconds
    assert contents(victim) == before
    assert contents(shared / "moved") == {}
    assert folder.is_symlink()


def test_what_a_task_writes_after_the_end_is_removed_too(shared):
    folder = shared / "watersmeet-aa-1"
    watcher = claim(folder)
    filled(folder, *OURS)
    empty_run(folder)
    assert contents(folder) == {}
    watcher.close()
    filled(folder, *OURS)
    until_gone(folder)


def test_a_location_without_room_for_a_folder_is_told(tmp_path):
    with pytest.raises(OptionError) as caught:
        claim(tmp_path / "gone" / "watersmeet-aa-1")
    assert str(caught.value) == (
        f"[INVALID_OPTION] cannot make a folder in memoryLocation {tmp_path / 'gone'}: No such file or directory. "
        "make room there, or name another tmpfs with memoryLocation"
    )
