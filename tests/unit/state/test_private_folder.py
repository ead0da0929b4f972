"""A private folder: ours alone or refused, never a way to what belongs to others, and never a reason to fail."""

import os
import stat
from pathlib import Path

import pytest

from tests.golden_queries import checked
from tests.other_user import IS_ROOT, OTHER_UID, acting_as, contents, needs_root, shared_folder
from watersmeet.errors import WatersmeetError
from watersmeet.state.private_folder import PrivateFolder, make_private, opened_or_made

GOLDEN = Path(__file__).parents[2] / "golden" / "memory" / "refused.txt"
NAME = "3-0-0-x-0.seg"


@pytest.fixture
def victim(tmp_path):
    """A folder of ours that nobody has business with; its files have names that we would remove."""
    folder = tmp_path / "victim"
    (folder / "letters").mkdir(parents=True)
    for name in (NAME, ".swept-3", "letters/dear"):
        (folder / name).write_bytes(b"precious")
    return folder


@pytest.fixture
def shared():
    with shared_folder() as folder:
        yield folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077], ids=oct)
def test_nobody_else_may_look_whatever_the_umask(tmp_path, umask):
    source = tmp_path / "source"
    source.write_bytes(b"rows")
    source.chmod(0o644)
    before = os.umask(umask)
    try:
        folder = opened_or_made(tmp_path / "ours")
        assert folder.copy(source, NAME)
        assert folder.touch(".swept-3")
    finally:
        os.umask(before)
    assert mode(tmp_path / "ours") == 0o700
    assert {path.name: mode(path) for path in (tmp_path / "ours").iterdir()} == {NAME: 0o600, ".swept-3": 0o600}


# --- what is refused -------------------------------------------------------------------------------------------------


def a_link(path, victim):
    path.symlink_to(victim)


def a_link_to_nothing(path, victim):
    path.symlink_to(victim / "nothing")


def a_file(path, victim):
    path.touch()


def open_to_all(path, victim):
    path.mkdir()
    path.chmod(0o755)


def open_to_the_group(path, victim):
    path.mkdir()
    path.chmod(0o710)


def of_another_user(path, victim):
    with acting_as(OTHER_UID):
        path.mkdir(mode=0o700)
        (path / "link").symlink_to(victim)
        (path / NAME).symlink_to(victim / NAME)


def of_another_user_and_open(path, victim):
    of_another_user(path, victim)
    path.chmod(0o777)


@pytest.mark.parametrize(
    "made",
    [
        a_link,
        a_link_to_nothing,
        a_file,
        open_to_all,
        open_to_the_group,
        pytest.param(of_another_user, marks=needs_root),
        pytest.param(of_another_user_and_open, marks=needs_root),
    ],
)
def test_a_folder_that_is_not_ours_alone_is_refused_and_untouched(shared, victim, made):
    path = shared / "watersmeet-0123-4567"
    made(path, victim)
    before, around = contents(victim), contents(shared)
    with pytest.raises(WatersmeetError) as caught:
        opened_or_made(path)
    assert contents(victim) == before
    assert contents(shared) == around
    found = str(caught.value).replace(str(shared), "/dev/shm")
    assert found == checked(GOLDEN, made.__name__.replace("_", " "), "message", found)


def test_whoever_replaces_it_while_it_is_opened_is_refused(tmp_path, victim, monkeypatch):
    path, before = tmp_path / "ours", contents(victim)
    make_private(path)
    victim.chmod(0o700)
    look = os.lstat

    def replaced(of, **how):
        found = look(of, **how)
        if of == path:
            path.rename(tmp_path / "moved")
            victim.rename(path)
        return found

    monkeypatch.setattr(os, "lstat", replaced)
    with pytest.raises(WatersmeetError, match="it was replaced while it was opened"):
        PrivateFolder(path)
    assert contents(path) == before


# --- what is opened stays what it is ---------------------------------------------------------------------------------


def test_names_are_looked_up_in_the_folder_that_was_opened(tmp_path, victim):
    path, source = tmp_path / "ours", tmp_path / "source"
    source.write_bytes(b"rows")
    folder = opened_or_made(path)
    folder.copy(source, NAME)
    path.rename(tmp_path / "moved")
    path.symlink_to(victim)
    before = contents(victim)
    assert folder.names() == [NAME]
    assert folder.mark(NAME)[0] == (tmp_path / "moved" / NAME).stat().st_ino
    assert folder.mapped(NAME)[1].to_pybytes() == b"rows"
    assert folder.copy(source, "4-0-0-x-0.seg")
    assert folder.rename(NAME, "5-0-0-x-0.seg")
    assert folder.touch(".swept-4")
    assert folder.remove("4-0-0-x-0.seg")
    assert folder.remove(".swept-3")
    assert contents(victim) == before
    assert contents(tmp_path / "moved") == {"5-0-0-x-0.seg": b"rows", ".swept-4": b""}


def test_no_link_in_it_is_followed(tmp_path, victim):
    folder, source = opened_or_made(tmp_path / "ours"), tmp_path / "source"
    source.write_bytes(b"rows")
    before = contents(victim)
    for name in (NAME, ".swept-3"):
        (tmp_path / "ours" / name).symlink_to(victim / name)
    assert folder.mapped(NAME) is None
    assert not folder.touch(".swept-3")
    assert folder.copy(source, NAME)
    assert folder.remove(".swept-3")
    assert contents(victim) == before
    assert contents(tmp_path / "ours") == {NAME: b"rows"}


def test_what_is_no_plain_file_is_not_mapped(tmp_path):
    folder = opened_or_made(tmp_path / "ours")
    os.mkfifo(tmp_path / "ours" / "fifo")
    (tmp_path / "ours" / "folder").mkdir()
    assert [folder.mapped(name) for name in ("fifo", "folder", "missing")] == [None, None, None]


def test_another_file_has_another_mark(tmp_path):
    folder, source = opened_or_made(tmp_path / "ours"), tmp_path / "source"
    source.write_bytes(b"rows")
    folder.copy(source, NAME)
    mark, content = folder.mapped(NAME)
    assert folder.mark(NAME) == mark
    folder.copy(source, NAME)
    assert folder.mark(NAME) not in (mark, None)
    assert content.to_pybytes() == b"rows", "what was mapped stays readable"


def test_it_is_closed_when_nobody_needs_it(tmp_path):
    def opened() -> int:
        return len(os.listdir("/dev/fd"))

    before = opened()
    folders = [opened_or_made(tmp_path / "ours") for _ in range(10)]
    assert opened() == before + 10
    del folders
    assert opened() == before


# --- what the system does not allow ----------------------------------------------------------------------------------


@needs_root
def test_a_read_only_folder_is_no_reason_to_fail(shared):
    source = shared / "source"
    source.write_bytes(b"rows")
    with acting_as(OTHER_UID):
        folder = opened_or_made(shared / "ours")
        assert folder.copy(source, NAME)
        (shared / "ours").chmod(0o500)
        assert not folder.copy(source, "other")
        assert not folder.rename(NAME, "other")
        assert not folder.touch("other")
        assert not folder.remove(NAME)
        assert folder.remove("missing") is True
        assert folder.mapped(NAME)[1].to_pybytes() == b"rows"
        assert folder.names() == [NAME]


def test_a_folder_that_is_gone_is_no_reason_to_fail(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"rows")
    folder = opened_or_made(tmp_path / "ours")
    (tmp_path / "ours").rmdir()
    assert not folder.copy(source, NAME)
    assert not folder.touch(NAME)
    assert folder.names() == []
    assert folder.mark(NAME) is None


def test_where_no_folder_can_be_made_there_is_none(tmp_path, shared):
    assert opened_or_made(tmp_path / "no such location" / "ours") is None
    (tmp_path / "file").touch()
    assert opened_or_made(tmp_path / "file" / "ours") is None
    if IS_ROOT:
        shared.chmod(0o755)
        with acting_as(OTHER_UID):
            assert opened_or_made(shared / "ours") is None
