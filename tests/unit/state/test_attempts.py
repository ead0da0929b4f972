"""What attempts have written and no accepted report names is gone when the epoch's job is, whoever is second."""

import errno

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import CheckpointError, FencedError
from watersmeet.state import attempts
from watersmeet.state.run import build_runs
from watersmeet.state.tiers import Tiers


def rows():
    keys = pa.record_batch({"k": np.arange(5)})
    return build_runs(np.arange(5, dtype=np.uint64), keys, None, pa.record_batch({"v": np.arange(5)}))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "tasks" / "driver.attempts"
    attempts.begin(made)
    return made


@pytest.fixture
def tiers(tmp_path, folder):
    return Tiers(tmp_path / "segments", None, attempts=folder)


def left(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "segments").glob("*")}


def test_only_what_was_accepted_stays(tmp_path, folder, tiers):
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / "6-0-0-of-before-0.seg").touch()
    for name in ("7-0-0-a-0.seg", "7-0-0-a-1.seg", "7-0-0-b-0.seg"):
        tiers.write(name, [(0, run) for run in rows()])
    tiers.unwrite(["7-0-0-a-1.seg"])
    assert attempts.end(folder, tmp_path / "segments", {"7-0-0-b-0.seg"}) == 2
    assert left(tmp_path) == {"6-0-0-of-before-0.seg", "7-0-0-b-0.seg"}
    assert not list(folder.iterdir())


@pytest.mark.parametrize("where", ["watersmeet.state.tiers.write_segment", "watersmeet.state.storage.sync_folder"])
def test_an_attempt_that_was_killed_while_it_wrote_leaves_nothing(tmp_path, folder, tiers, monkeypatch, where):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("watersmeet.state.storage.remove", lambda _: None)
    monkeypatch.setattr(where, killed)
    with pytest.raises(KeyboardInterrupt):
        tiers.write("7-0-0-a-0.seg", [])
    monkeypatch.undo()
    assert [path.name for path in folder.iterdir()] == ["7-0-0-a-0.seg"]
    (tiers.folder_of_scratch() / ".scratch-1").mkdir()
    attempts.end(folder, tmp_path / "segments", ())
    assert left(tmp_path) == set()
    assert not list(folder.iterdir())


def test_what_is_announced_when_the_job_is_over_goes_with_the_next_one(tmp_path, folder, tiers):
    attempts.end(folder, tmp_path / "segments", ())
    tiers.write("7-0-0-a-0.seg", [(0, run) for run in rows()])
    assert attempts.end(folder, tmp_path / "segments", {"8-0-0-b-0.seg"}) == 1
    assert left(tmp_path) == set()


def test_an_attempt_of_a_driver_that_was_overtaken_writes_nothing(tmp_path, folder, tiers):
    folder.rmdir()
    with pytest.raises(FencedError, match=r"7-0-0-a-0\.seg comes too late"):
        tiers.write("7-0-0-a-0.seg", [(0, run) for run in rows()])
    assert not (tmp_path / "segments").exists()


def test_an_attempt_that_ends_its_write_when_the_job_is_over_removes_it(tmp_path, folder, tiers, monkeypatch):
    slow = tiers.durable

    def meanwhile(*_):
        attempts.end(folder, slow, ())

    monkeypatch.setattr("watersmeet.state.storage.sync_folder", meanwhile)
    with pytest.raises(FencedError):
        tiers.write("7-0-0-a-0.seg", [(0, run) for run in rows()])
    assert left(tmp_path) == set()


def test_an_attempt_whose_job_ends_while_it_writes_makes_no_segment(tmp_path, folder, tiers):
    def slow():
        attempts.end(folder, tiers.durable, ())
        yield from ((0, run) for run in rows())

    with pytest.raises(FencedError):
        tiers.write("7-0-0-a-0.seg", slow())
    assert left(tmp_path) == set()


def test_an_attempt_that_fails_takes_no_room(tmp_path, folder, tiers):
    def full():
        yield from ((0, run) for run in rows())
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left"):
        tiers.write("7-0-0-a-0.seg", full())
    assert left(tmp_path) == set()
    assert not list(folder.iterdir())


def test_a_job_that_another_driver_has_swept_ends_without_a_word(tmp_path, folder):
    folder.rmdir()
    assert attempts.end(folder, tmp_path / "segments", ()) == 0


def test_what_cannot_be_removed_is_left_to_the_next_start(tmp_path, folder, tiers, monkeypatch):
    tiers.write("7-0-0-a-0.seg", [(0, run) for run in rows()])

    def read_only(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(attempts, "remove", read_only)
    attempts.end(folder, tmp_path / "segments", ())
    assert left(tmp_path) == {"7-0-0-a-0.seg"}
