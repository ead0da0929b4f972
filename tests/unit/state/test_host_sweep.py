"""What leaves the memory of a host: the names that commits have dropped, once per host and epoch."""

import pytest

from watersmeet.state.host_sweep import EPOCHS_REMEMBERED, Drops, sweep_host


def never():
    pytest.fail("was not to be asked")


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def filled(folder, *held: str):
    for name in held:
        (folder / name).touch()
    return folder


def test_a_new_folder_has_nothing_to_sweep(tmp_path):
    sweep_host(tmp_path / "run", 7, never, never)
    assert names(tmp_path / "run") == set()


def test_dropped_names_leave_and_all_others_stay(tmp_path):
    sweep_host(tmp_path, 3, never, never)
    filled(tmp_path, "1-a", "2-b", "4-c")
    sweep_host(tmp_path, 5, lambda: {3: ["2-b"], 4: ["1-a", "0-gone"], 5: []}, never)
    assert names(tmp_path) == {"2-b", "4-c"}, "what was dropped by epoch 3 had left before"


def test_one_task_of_a_host_does_it(tmp_path):
    sweep_host(tmp_path, 3, never, never)
    filled(tmp_path, "1-a")
    sweep_host(tmp_path, 4, lambda: {4: []}, never)
    sweep_host(tmp_path, 4, never, never)
    sweep_host(tmp_path, 3, never, never)
    assert names(tmp_path) == {"1-a"}


def test_a_host_that_was_away_for_long_looks_at_all_that_lives(tmp_path):
    sweep_host(tmp_path, 3, never, never)
    filled(tmp_path, "1-a", "2-b", "100-new")
    sweep_host(tmp_path, 99, lambda: {99: []}, lambda: ["2-b"])
    assert names(tmp_path) == {"2-b", "100-new"}, "files of the epoch under way are nobody's business"
    filled(tmp_path, "3-c")
    sweep_host(tmp_path, 100, lambda: {100: ["3-c"]}, never)
    assert names(tmp_path) == {"2-b", "100-new"}


def test_the_driver_remembers_so_many_commits():
    drops = Drops()
    for epoch in range(EPOCHS_REMEMBERED + 5):
        drops.note(epoch, {f"{epoch}-x"})
    assert drops.recent.keys() == set(range(5, EPOCHS_REMEMBERED + 5))
    assert drops.recent[7] == ("7-x",)
