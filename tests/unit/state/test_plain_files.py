"""Files of ours are regular files: nothing else is opened, and nothing that a link leads to is touched."""

import os
import stat

import pytest

from watersmeet.state.plain_files import (
    NotPlainError,
    open_new,
    open_to_append,
    open_to_change,
    open_to_read,
    plain_status,
    read_plain,
    require_real_folder,
    set_aside,
)

WRITERS = [open_to_append, open_to_change]
OTHERS = {
    "link": lambda path, outside: path.symlink_to(outside),
    "dangling": lambda path, outside: path.symlink_to(outside.with_name("new")),
    "folder": lambda path, outside: path.mkdir(),
    "pipe": lambda path, outside: os.mkfifo(path),
}
SAYS = {"link": "symbolic link", "dangling": "symbolic link", "folder": "folder", "pipe": "special file"}


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "outside").write_bytes(b"untouched")
    yield tmp_path / "outside"
    assert (tmp_path / "outside").read_bytes() == b"untouched"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("opened", [open_to_read, *WRITERS], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_file_is_not_opened(tmp_path, outside, opened, kind):
    OTHERS[kind](tmp_path / "x", outside)
    with pytest.raises(NotPlainError, match=SAYS[kind]):
        opened(tmp_path / "x")
    with pytest.raises(NotPlainError, match=SAYS[kind]):
        plain_status(tmp_path / "x")


@pytest.mark.parametrize("opened", WRITERS, ids=lambda f: f.__name__)
def test_a_file_with_another_name_is_read_and_not_written_to(tmp_path, outside, opened):
    (tmp_path / "x").hardlink_to(outside)
    assert read_plain(tmp_path / "x") == b"untouched"
    with pytest.raises(NotPlainError, match="another name"):
        opened(tmp_path / "x")


@pytest.mark.parametrize("kind", OTHERS)
def test_a_new_file_takes_no_name_that_is_taken(tmp_path, outside, kind):
    OTHERS[kind](tmp_path / "x", outside)
    with pytest.raises(FileExistsError):
        open_new(tmp_path / "x")


def test_files_are_made_appended_to_and_changed(tmp_path):
    with open_new(tmp_path / "x") as file:
        file.write(b"one")
    with open_to_append(tmp_path / "x") as file:
        file.write(b"two")
    with open_to_change(tmp_path / "x") as file:
        file.write(b"ONE")
        file.truncate(5)
    assert read_plain(tmp_path / "x") == b"ONEtw"
    assert plain_status(tmp_path / "x").st_size == 5
    for path in (tmp_path / "y", tmp_path / "z"):
        (open_to_append if path.name == "y" else open_to_change)(path).close()
        assert stat.S_ISREG(path.lstat().st_mode)
    with pytest.raises(FileNotFoundError):
        open_to_read(tmp_path / "gone")


def test_a_folder_is_a_folder_or_missing(tmp_path, outside):
    require_real_folder(tmp_path)
    require_real_folder(tmp_path / "missing")
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path / "link", outside):
        with pytest.raises(NotPlainError, match="not a folder"):
            require_real_folder(path)


@pytest.mark.parametrize("kind", [*OTHERS, "hard link"])
def test_what_is_set_aside_is_kept_under_another_name(tmp_path, outside, kind):
    path = tmp_path / "x"
    path.hardlink_to(outside) if kind == "hard link" else OTHERS[kind](path, outside)
    set_aside(path)
    assert not os.path.lexists(path)
    assert len([name for name in os.listdir(tmp_path) if name.startswith("x.damaged-")]) == 1
    path.write_bytes(b"a file stays")
    set_aside(path)
    assert path.read_bytes() == b"a file stays"
    set_aside(tmp_path / "missing")
