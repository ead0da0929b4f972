"""Storage: a name appears whole, once, or not at all."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from watersmeet.errors import CheckpointError
from watersmeet.state.storage import TEMPORARY, create, local_path, names, remove, write_durably


def test_who_comes_second_is_told_and_changes_nothing(tmp_path):
    assert create(tmp_path / "deep" / "x", b"first")
    assert not create(tmp_path / "deep" / "x", b"second")
    assert (tmp_path / "deep" / "x").read_bytes() == b"first"


def test_of_many_writers_at_once_exactly_one_wins(tmp_path):
    start = threading.Barrier(8)

    def race(number: int) -> bool:
        start.wait()
        return create(tmp_path / "x", bytes([number]) * 1000)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(race, range(8)))
    assert won.count(True) == 1
    assert (tmp_path / "x").read_bytes() == bytes([won.index(True)]) * 1000
    assert names(tmp_path) == ["x"]
    assert not list(tmp_path.glob(f"{TEMPORARY}*"))


def test_a_write_that_fails_leaves_nothing(tmp_path):
    def broken(file) -> None:
        file.write(b"half")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        write_durably(tmp_path / "x", broken)
    assert list(tmp_path.iterdir()) == []


def test_replacing_is_on_request(tmp_path):
    create(tmp_path / "x", b"old")
    assert write_durably(tmp_path / "x", lambda file: file.write(b"new"), replace=True) == 3
    assert (tmp_path / "x").read_bytes() == b"new"


def test_unfinished_files_have_no_name(tmp_path):
    create(tmp_path / "b", b"")
    create(tmp_path / "a", b"")
    (tmp_path / f"{TEMPORARY}x").write_bytes(b"")
    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "absent") == []


def test_removing_twice_is_removing(tmp_path):
    create(tmp_path / "x", b"")
    remove(tmp_path / "x")
    remove(tmp_path / "x")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [("/a/b", "/a/b"), ("file:/a/b", "/a/b"), ("file:///a/b%20c", "/a/b c"), ("/a/50%25", "/a/50%25")],
)
def test_paths_and_file_uris_are_local(text, path):
    assert local_path(text) == Path(path)


@pytest.mark.parametrize("text", ["s3://bucket/x", "hdfs://host/x", "dbfs:/x"])
def test_other_storage_is_refused_by_name(text):
    with pytest.raises(CheckpointError, match=text.partition(":")[0]):
        local_path(text)
