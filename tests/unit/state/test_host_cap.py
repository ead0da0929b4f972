"""The cap of a host: no moment at which its memory folder holds more, whoever copies and whoever is killed."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from tests.observer import Observer
from watersmeet.state import host_cap
from watersmeet.state.host_cap import EPOCHS_KEPT, Task, note_ran, room_for
from watersmeet.state.manifest import SegmentRef
from watersmeet.state.private_folder import PARTIAL, opened_or_made

MIB = 1 << 20
SPAWN = multiprocessing.get_context("spawn")


def ref(name: str, size: int = 100) -> SegmentRef:
    return SegmentRef(name, size, 0)


def folder_with(path: Path, **files: int):
    """A folder with files of so many bytes; `e3_0_1_x` stands for `3-0-1-x.seg`."""
    folder = opened_or_made(path)
    for name, size in files.items():
        (path / f"{name[1:].replace('_', '-')}.seg").write_bytes(bytes(size))
    return folder


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.name.endswith(".seg")}


def bytes_in(path: Path) -> int:
    return sum(entry.stat().st_size for entry in path.iterdir())


def ran(folder, epoch: int, place: str) -> Task:
    task = Task(epoch, place)
    note_ran(folder, task, folder.names())
    return task


def test_as_many_of_the_first_as_fit_get_room(tmp_path):
    folder = folder_with(tmp_path / "m", e3_0_1_x=250)
    ran(folder, 4, "0-1")
    task = ran(folder, 5, "0-0")
    refs = [ref("5-0-0-x-0.seg", 100), ref("5-0-0-x-1.seg", 300), ref("5-0-0-x-2.seg", 100), ref("5-0-0-x-3.seg", 100)]
    room = room_for(folder, 500, task, refs, ())
    assert set(room.reserved) == {"5-0-0-x-0.seg", "5-0-0-x-2.seg"}
    assert bytes_in(tmp_path / "m") == 450, "a reserved file has its size at once"


def test_what_is_resident_counts_once(tmp_path):
    folder = folder_with(tmp_path / "m", e4_0_0_x_0=200, e4_0_1_x_0=200)
    ran(folder, 4, "0-1")
    task = ran(folder, 5, "0-0")
    mine = [ref("5-0-0-x-0.seg", 100), ref("4-0-0-x-0.seg", 200)]
    room = room_for(folder, 500, task, mine, {"4-0-0-x-0.seg"})
    assert (room.stay, set(room.reserved)) == ({"4-0-0-x-0.seg"}, {"5-0-0-x-0.seg"})


def test_the_first_take_the_room_of_resident_ones(tmp_path):
    folder = folder_with(tmp_path / "m", e4_0_0_x_0=300)
    room = room_for(
        folder, 350, ran(folder, 5, "0-0"), [ref("5-0-0-x-0.seg"), ref("4-0-0-x-0.seg", 300)], names(tmp_path / "m")
    )
    assert (room.stay, set(room.reserved)) == (frozenset(), {"5-0-0-x-0.seg"})
    assert names(tmp_path / "m") == set()


def test_files_of_slots_that_have_gone_make_room_the_longest_gone_first(tmp_path):
    folder = folder_with(tmp_path / "m", e1_0_1_x_0=100, e2_0_2_x_0=100, e9_0_3_x_0=100, e1_0_4_x_0=100)
    now = 10
    for slot, last in ((1, now - EPOCHS_KEPT - 2), (2, now - EPOCHS_KEPT - 1), (3, now - EPOCHS_KEPT)):
        ran(folder, last, f"0-{slot}")
    task = ran(folder, now, "0-0")
    assert not room_for(folder, 400, task, [], ()).reserved
    assert len(names(tmp_path / "m")) == 4, "nothing is evicted without need"
    left = {200: {"2-0-2-x-0.seg", "9-0-3-x-0.seg"}, 300: {"9-0-3-x-0.seg"}, 400: {"9-0-3-x-0.seg"}}
    for size, stay in left.items():
        room = room_for(folder, 400, task, [ref(f"10-0-0-x-{size}.seg", size)], ())
        assert names(tmp_path / "m") == stay
        assert bool(room.reserved) == (size < 400)
        for made in room.reserved.values():
            folder.remove(made)


def test_a_reserved_file_of_a_dead_attempt_goes_when_its_slot_runs_again(tmp_path):
    folder = folder_with(tmp_path / "m")
    task = ran(folder, 5, "0-0")
    room_for(folder, 500, task, [ref("5-0-0-x-0.seg")], ())
    ran(folder, 5, "0-1")
    ran(folder, 5, "0-0")
    assert bytes_in(tmp_path / "m") == 100, "an attempt in this epoch may still copy it"
    ran(folder, 6, "0-0")
    assert bytes_in(tmp_path / "m") == 0


def test_a_slot_has_one_marker(tmp_path):
    folder = folder_with(tmp_path / "m")
    for epoch in (3, 4, 7):
        ran(folder, epoch, "0-0")
        ran(folder, epoch, "0-10")
    assert set(folder.names()) == {".ran-0-0-7", ".ran-0-10-7"}


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path):
    folder = folder_with(tmp_path / "m")
    (tmp_path / "letter").write_text("precious")
    (tmp_path / "m" / host_cap.LOCK).symlink_to(tmp_path / "letter")
    room = room_for(folder, 500, Task(5, "0-0"), [ref("5-0-0-x-0.seg")], ())
    assert not room.reserved
    assert (tmp_path / "letter").read_text() == "precious"


def _slot(folder: str, source: str, slot: int, epochs: int, cap: int) -> None:
    """A process that runs a slot: it copies a file an epoch, and keeps the last few."""
    memory, kept = opened_or_made(Path(folder)), []
    for epoch in range(epochs):
        task = ran(memory, epoch, f"0-{slot}")
        refs = [ref(f"{epoch}-0-{slot}-x-0.seg", MIB), *kept]
        room = room_for(memory, cap, task, refs, {one.name for one in kept})
        for name, reserved in room.reserved.items():
            memory.copy(Path(source), name, reserved)
        kept = [one for one in refs if one.name in room.stay or one.name in room.reserved][:6]


def test_processes_that_race_for_the_last_bytes_never_exceed_the_cap(tmp_path):
    (tmp_path / "source").write_bytes(bytes(MIB))
    cap = 8 * MIB
    with Observer(tmp_path / "m", steady=True) as seen:
        racing = [
            SPAWN.Process(target=_slot, args=(f"{tmp_path / 'm'}", f"{tmp_path / 'source'}", slot, 60, cap))
            for slot in range(3)
        ]
        for process in racing:
            process.start()
        for process in racing:
            process.join(60)
    assert [process.exitcode for process in racing] == [0, 0, 0]
    assert cap - 3 * MIB <= seen.most() <= cap


def test_a_file_that_is_renamed_during_a_look_is_counted(tmp_path, monkeypatch):
    folder = folder_with(tmp_path / "m", e5_0_0_x_0=100)
    monkeypatch.setattr(folder, "names", lambda: ["5-0-0-x-0.seg.0a1b.part", "gone.part"])
    assert folder.sizes() == {"5-0-0-x-0.seg": 100}


def _dying(folder: str) -> None:
    with opened_or_made(Path(folder)).locked(host_cap.LOCK):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_gives_the_lock_up(tmp_path):
    folder = folder_with(tmp_path / "m")
    process = SPAWN.Process(target=_dying, args=(f"{tmp_path / 'm'}",))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    room = room_for(folder, 500, Task(5, "0-0"), [ref("5-0-0-x-0.seg")], ())
    assert all(made.endswith(PARTIAL) for made in room.reserved.values())
    assert room.reserved


@pytest.mark.parametrize("cap", [0, 99])
def test_no_room_is_no_hindrance(tmp_path, cap):
    folder = folder_with(tmp_path / "m")
    room = room_for(folder, cap, Task(5, "0-0"), [ref("5-0-0-x-0.seg")], ())
    assert (room.stay, room.reserved) == (frozenset(), {})
