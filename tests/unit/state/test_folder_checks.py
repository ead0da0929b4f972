"""What is in the way of a folder."""

import os

from tests.other_user import OTHER_UID, acting_as, needs_root, shared_folder
from watersmeet.state.folder_checks import obstacle_to_folder


def test_nothing_is_in_the_way_of_a_folder_or_a_new_one(tmp_path):
    assert obstacle_to_folder(tmp_path) is None
    assert obstacle_to_folder(tmp_path / "new" / "one") is None


def test_a_file_is_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    assert obstacle_to_folder(tmp_path / "file") == "it is a file"
    assert obstacle_to_folder(tmp_path / "file" / "below") == f"{tmp_path / 'file'} is a file"


def test_a_folder_without_leave_to_write_is_in_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode, **_: False)
    assert obstacle_to_folder(tmp_path) == "it is read-only"
    assert obstacle_to_folder(tmp_path / "new") == f"{tmp_path} is read-only"


@needs_root
def test_the_rights_of_the_user_count():
    with shared_folder() as shared:
        (shared / "mine").mkdir(mode=0o755)
        assert obstacle_to_folder(shared / "mine") is None
        with acting_as(OTHER_UID):
            assert obstacle_to_folder(shared / "mine" / "new") == f"{shared / 'mine'} is read-only"
