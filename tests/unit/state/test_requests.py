"""Requests from other processes: taken once, by known names only."""

import os
import stat

import pytest

from watersmeet.errors import OptionError
from watersmeet.state.requests import APPROVE, put_request, take_requests


def test_a_request_is_taken_once(tmp_path):
    folder = tmp_path / "watersmeet"
    folder.mkdir()
    put_request(tmp_path, APPROVE)
    put_request(tmp_path, APPROVE)
    assert take_requests(folder / "requests") == [APPROVE, APPROVE]
    assert take_requests(folder / "requests") == []


def test_the_folder_is_closed_to_others(tmp_path):
    (tmp_path / "watersmeet").mkdir()
    put_request(tmp_path, APPROVE)
    assert stat.S_IMODE((tmp_path / "watersmeet" / "requests").stat().st_mode) == 0o700


def test_unknown_names_links_and_folders_are_left_alone(tmp_path):
    folder = tmp_path / "requests"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / "drop-tables").touch()
    (folder / f"approve-{'0' * 32}.json").touch()
    os.symlink(victim, folder / f"approve-{'1' * 32}")
    (folder / f"approve-{'2' * 32}").mkdir()
    assert take_requests(folder) == []
    assert len(list(folder.iterdir())) == 4
    assert victim.read_text() == "precious"


def test_a_linked_folder_is_not_read(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / f"approve-{'0' * 32}").touch()
    os.symlink(tmp_path / "real", tmp_path / "requests")
    assert take_requests(tmp_path / "requests") == []


def test_without_a_checkpoint_there_is_nobody_to_ask(tmp_path):
    with pytest.raises(OptionError, match="there is no checkpoint"):
        put_request(tmp_path, APPROVE)
    assert take_requests(tmp_path / "requests") == []
