"""What leaves the memory of a host: the names that commits have dropped, once per host and epoch."""

import pytest

from watersmeet.state.host_sweep import EPOCHS_REMEMBERED, Drops, sweep_host
from watersmeet.state.private_folder import opened_or_made


def never():
    pytest.fail("was not to be asked")


def swept(folder, *how):
    sweep_host(opened_or_made(folder), *how)


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def filled(folder, *held: str):
    for name in held:
        (folder / name).touch()
    return folder


def test_a_new_folder_has_nothing_to_sweep(tmp_path):
    swept(tmp_path / "run", 7, never, never)
    assert names(tmp_path / "run") == set()


def test_dropped_names_leave_and_all_others_stay(tmp_path):
    swept(tmp_path, 3, never, never)
    filled(tmp_path, "1-a", "2-b", "4-c")
    swept(tmp_path, 5, lambda: {3: ["2-b"], 4: ["1-a", "0-gone"], 5: []}, never)
    assert names(tmp_path) == {"2-b", "4-c"}, "what was dropped by epoch 3 had left before"


def test_the_first_epoch_follows_none(tmp_path):
    swept(tmp_path, -1, never, never)
    filled(tmp_path, "0-a", "0-b")
    swept(tmp_path, 0, lambda: {0: ["0-a"]}, never)
    assert names(tmp_path) == {"0-b"}


def test_what_has_no_name_of_ours_stays(tmp_path):
    swept(tmp_path, 3, never, never)
    filled(tmp_path, "1-a", "letter", ".swept-x", "²-x")
    swept(tmp_path, 99, dict, list)
    assert {path.name for path in tmp_path.iterdir()} == {"letter", ".swept-x", "²-x", ".swept-99"}


def test_one_task_of_a_host_does_it(tmp_path):
    swept(tmp_path, 3, never, never)
    filled(tmp_path, "1-a")
    swept(tmp_path, 4, lambda: {4: []}, never)
    swept(tmp_path, 4, never, never)
    swept(tmp_path, 3, never, never)
    assert names(tmp_path) == {"1-a"}


def test_a_host_that_was_away_for_long_looks_at_all_that_lives(tmp_path):
    swept(tmp_path, 3, never, never)
    filled(tmp_path, "1-a", "2-b", "100-new")
    swept(tmp_path, 99, lambda: {99: []}, lambda: ["2-b"])
    assert names(tmp_path) == {"2-b", "100-new"}, "files of the epoch under way are nobody's business"
    filled(tmp_path, "3-c")
    swept(tmp_path, 100, lambda: {100: ["3-c"]}, never)
    assert names(tmp_path) == {"2-b", "100-new"}


def test_the_driver_remembers_so_many_commits():
    drops = Drops()
    for epoch in range(EPOCHS_REMEMBERED + 5):
        drops.note(epoch, {f"{epoch}-x"})
    assert drops.recent.keys() == set(range(5, EPOCHS_REMEMBERED + 5))
    assert drops.recent[7] == ("7-x",)
