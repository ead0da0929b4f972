"""Tiers: durable bytes are verified whenever they cross, memory is a bounded cache that may vanish at any time."""

import resource
import shutil
import time
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from tests.spoiling import spoil_copies
from watersmeet.errors import CorruptSegmentError
from watersmeet.state import mapped
from watersmeet.state.private_folder import PrivateFolder
from watersmeet.state.run import build_runs
from watersmeet.state.tiers import Tiers, epoch_of, segment_name, task_name

NAME = segment_name(task_name(0, 0, 0), "x", 0)


def runs(rows: int = 3) -> list:
    hashes = np.arange(rows, dtype=np.uint64)
    keys = pa.record_batch({"k": np.arange(rows)})
    return [(0, run) for run in build_runs(hashes, keys, None, pa.record_batch({"v": np.arange(rows)}))]


def tiers_in(folder, budget: int | None = None) -> Tiers:
    return Tiers(folder / "durable", folder / "memory", budget)


def resident(folder) -> set[str]:
    return {path.name for path in (folder / "memory").glob("*")}


def corrupt(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_names_tell_their_epoch_and_no_two_attempts_share_one():
    tasks = [task_name(12, stage, slot) for stage in (0, 1) for slot in (0, 1)]
    names = [segment_name(task, attempt, n) for task in tasks for attempt in ("x", "y") for n in (0, 1)]
    assert len(set(names)) == 16
    assert {epoch_of(name) for name in names} == {12}
    assert epoch_of("000000000012-01-0003-61b46a7fe-0.seg") == 12, "as version 0.1 named them"


def stored(folder, budget: int | None = None, name: str = NAME, rows: int = 3):
    """A segment as an epoch leaves it: durable, and in memory if the budget allows."""
    tiers = tiers_in(folder, budget)
    ref = tiers.write(name, runs(rows))
    tiers.retain([ref])
    return ref


def test_a_written_segment_is_durable_and_in_memory_when_the_epoch_ends(tmp_path):
    tiers = tiers_in(tmp_path)
    ref = tiers.write(NAME, runs())
    assert (tmp_path / "durable" / ref.name).stat().st_size == ref.bytes
    assert resident(tmp_path) == set()
    tiers.retain([ref])
    assert resident(tmp_path) == {ref.name}
    assert tiers.open(ref)[0][1].rows == 3
    assert (tiers.resident_bytes, tiers.fetched_bytes) == (ref.bytes, 0)


def test_a_segment_that_is_not_in_memory_is_fetched_and_counted(tmp_path):
    ref = stored(tmp_path)
    shutil.rmtree(tmp_path / "memory")
    cold = tiers_in(tmp_path)
    assert cold.open(ref)[0][1].rows == 3
    cold.retain([ref])
    assert cold.fetched_bytes == ref.bytes
    assert resident(tmp_path) == {ref.name}


def test_without_room_a_segment_is_read_where_it_lies(tmp_path):
    ref = stored(tmp_path)
    shutil.rmtree(tmp_path / "memory")
    small = tiers_in(tmp_path, budget=ref.bytes - 1)
    assert small.open(ref)[0][1].rows == 3
    small.retain([ref])
    assert resident(tmp_path) == set()
    assert small.fetched_bytes == 0


@pytest.mark.parametrize("budget", [None, 1], ids=["fetched", "read in place"])
def test_corrupted_bytes_are_refused_by_segment_name(tmp_path, budget):
    ref = tiers_in(tmp_path, budget=1).write(NAME, runs())
    corrupt(tmp_path / "durable" / ref.name)
    with pytest.raises(CorruptSegmentError, match=ref.name):
        tiers_in(tmp_path, budget).open(ref)
    assert resident(tmp_path) == set()


@pytest.mark.parametrize("budget", [None, 1], ids=["fetched", "read in place"])
def test_a_truncated_segment_is_refused_by_name(tmp_path, budget):
    ref = tiers_in(tmp_path, budget=1).write(NAME, runs())
    path = tmp_path / "durable" / ref.name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptSegmentError, match=ref.name):
        tiers_in(tmp_path, budget).open(ref)


@pytest.mark.parametrize("budget", [None, 1], ids=["fetched", "read in place"])
def test_a_missing_segment_is_named(tmp_path, budget):
    ref = tiers_in(tmp_path, budget=1).write(NAME, runs())
    (tmp_path / "durable" / ref.name).unlink()
    with pytest.raises(CorruptSegmentError, match=f"{ref.name} .*missing"):
        tiers_in(tmp_path, budget).open(ref)


def test_no_memory_tier_is_no_hindrance(tmp_path):
    tiers = Tiers(tmp_path / "durable", None)
    ref = tiers.write(NAME, runs())
    assert tiers.open(ref)[0][1].rows == 3
    tiers.leave([], task_name(5, 0, 0))
    tiers.retain([ref])
    assert tiers.resident_bytes == 0


@pytest.mark.parametrize("by_budget", [True, False], ids=["budget", "limit"])
def test_the_first_segments_stay_up_to_budget_and_limit(tmp_path, by_budget):
    tiers = tiers_in(tmp_path)
    refs = [tiers.write(segment_name(task_name(epoch, 0, 0), "x", 0), runs()) for epoch in range(4)]
    tiers.retain(refs)
    room = refs[0].bytes * 2
    tiers.budget_bytes = room if by_budget else 10 * room
    tiers.retain(reversed(refs), 10 * room if by_budget else room)
    assert resident(tmp_path) == {refs[3].name, refs[2].name}
    assert tiers.resident_bytes == refs[3].bytes + refs[2].bytes


def test_memory_never_holds_more_than_before_or_after(tmp_path, monkeypatch):
    tiers = tiers_in(tmp_path)
    old = [tiers.write(segment_name(task_name(0, 0, 0), "x", n), runs()) for n in range(3)]
    tiers.retain(old)
    new = [tiers.write(segment_name(task_name(1, 0, 0), "x", n), runs()) for n in range(3)]
    sizes = []
    copy = PrivateFolder.copy
    monkeypatch.setattr(PrivateFolder, "copy", lambda *how: (sizes.append(len(resident(tmp_path))), copy(*how))[1])
    tiers.retain([*new, old[0]], limit_bytes=4 * old[0].bytes)
    assert sizes == [1, 2, 3]


def test_what_is_evicted_stays_readable_for_who_has_it_mapped(tmp_path):
    tiers = tiers_in(tmp_path)
    ref = tiers.write(NAME, runs(1000))
    tiers.retain([ref])
    ((_, run),) = tiers.open(ref)
    tiers.retain([])
    assert resident(tmp_path) == set()
    assert run.payload.column(0).to_pylist() == list(range(1000))


def test_what_a_slot_needs_no_longer_and_failed_attempts_leave_memory(tmp_path):
    tiers = tiers_in(tmp_path)
    live, dead, failed, neighbour, stage = (
        stored(tmp_path, name=segment_name(task_name(*task), "x", 0))
        for task in ((3, 0, 0), (4, 0, 0), (5, 1, 0), (5, 1, 1), (5, 0, 0))
    )
    tiers.leave([dead.name], task_name(5, 1, 0))
    assert resident(tmp_path) == {live.name, neighbour.name, stage.name}
    assert {path.name for path in (tmp_path / "durable").glob("*")} == {
        r.name for r in (live, dead, failed, neighbour, stage)
    }


def test_a_copy_that_the_system_cuts_off_costs_speed_and_nothing_else(tmp_path):
    tiers = tiers_in(tmp_path)
    ref = tiers.write(NAME, runs())
    with files_of_at_most(ref.bytes // 2):
        tiers.retain([ref])
    assert (resident(tmp_path), tiers.resident_bytes, tiers.fetched_bytes) == (set(), 0, 0)
    assert tiers.open(ref)[0][1].rows == 3


@contextmanager
def files_of_at_most(size: int):
    """Within, the system refuses to write more into a file, as it does on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_a_segment_evicted_while_it_is_opened_is_read_where_it_lies(tmp_path, monkeypatch):
    ref = stored(tmp_path)
    mark = PrivateFolder.mark

    def evicted_by_another_slot(folder, name):
        found = mark(folder, name)
        folder.remove(name)
        return found

    monkeypatch.setattr(PrivateFolder, "mark", evicted_by_another_slot)
    monkeypatch.setattr(mapped, "_mapped", {})
    tiers = tiers_in(tmp_path)
    assert tiers.open(ref)[0][1].rows == 3
    assert (resident(tmp_path), tiers.spoiled_copies) == (set(), 0)


# --- what is mapped is what the manifest means -----------------------------------------------------------------------


def replaced(path) -> None:
    spoil_copies(path.parent)


def overwritten(path) -> None:
    """Other bytes in the same file."""
    content = bytearray(path.read_bytes())
    content[content.rindex(np.arange(3).tobytes())] = 77
    time.sleep(0.05)  # the system's clock of changes is coarse
    with path.open("r+b") as file:
        file.write(content)


def emptied(path) -> None:
    path.unlink()
    path.touch()


def cut(path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1])


def values(runs) -> list[int]:
    return [value for _, run in runs for value in run.payload.column(0).to_pylist()]


@pytest.mark.parametrize("spoil", [replaced, overwritten, corrupt, emptied, cut])
@pytest.mark.parametrize("is_mapped", [True, False], ids=["mapped before", "not mapped"])
@pytest.mark.parametrize("look", [Tiers.open, Tiers.peek])
def test_a_spoiled_copy_leaves_memory_and_is_never_joined(tmp_path, monkeypatch, spoil, is_mapped, look):
    ref = stored(tmp_path)
    if not is_mapped:
        monkeypatch.setattr(mapped, "_mapped", {})
    spoil(tmp_path / "memory" / ref.name)
    tiers = tiers_in(tmp_path)
    assert values(look(tiers, ref)) == [0, 1, 2]
    assert (resident(tmp_path), tiers.spoiled_copies) == (set(), 1)


def test_a_spoiled_copy_is_fetched_anew(tmp_path):
    ref = stored(tmp_path)
    replaced(tmp_path / "memory" / ref.name)
    tiers = tiers_in(tmp_path)
    tiers.open(ref)
    tiers.retain([ref])
    assert (resident(tmp_path), tiers.resident_bytes, tiers.fetched_bytes) == ({ref.name}, ref.bytes, ref.bytes)
    again = tiers_in(tmp_path)
    assert values(again.open(ref)) == [0, 1, 2]
    assert again.spoiled_copies == 0


def test_a_link_in_place_of_a_copy_is_not_followed(tmp_path):
    ref = stored(tmp_path)
    copy = tmp_path / "memory" / ref.name
    replaced(copy)
    elsewhere = tmp_path / "elsewhere"
    copy.rename(elsewhere)
    copy.symlink_to(elsewhere)
    tiers = tiers_in(tmp_path)
    assert values(tiers.open(ref)) == [0, 1, 2]
    tiers.retain([ref])
    assert not copy.is_symlink()
    assert elsewhere.exists()


def test_what_is_mapped_is_verified_once(tmp_path, monkeypatch):
    """No task pays again for what its process has mapped."""
    refs = [stored(tmp_path, name=segment_name(task_name(n, 0, 0), "x", 0)) for n in range(3)]
    monkeypatch.setattr(mapped, "_mapped", {})
    looked_at = []
    look = PrivateFolder.mapped
    monkeypatch.setattr(PrivateFolder, "mapped", lambda folder, name: (looked_at.append(name), look(folder, name))[1])
    for _ in range(5):
        tiers = tiers_in(tmp_path)
        for ref in refs:
            tiers.open(ref)
        tiers.retain(refs)
    assert sorted(looked_at) == sorted(ref.name for ref in refs)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_process_that_has_verified_a_segment_sees_when_it_was_changed(tmp_path, in_place):
    """Between two runs of a query on the same Spark session, say."""
    ref = stored(tmp_path, budget=0)
    tiers = tiers_in(tmp_path, 0)
    tiers.open(ref)
    path = tmp_path / "durable" / NAME
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if not in_place:
        path.unlink()
    path.write_bytes(content)
    with pytest.raises(CorruptSegmentError, match=NAME):
        tiers_in(tmp_path, 0).open(ref)


def test_a_link_in_place_of_a_segment_is_not_followed(tmp_path):
    ref = stored(tmp_path, budget=0)
    (tmp_path / "durable" / NAME).rename(tmp_path / "elsewhere")
    (tmp_path / "durable" / NAME).symlink_to(tmp_path / "elsewhere")
    for read in (tiers_in(tmp_path, 0).open, tiers_in(tmp_path, 0).read, tiers_in(tmp_path, 0).peek):
        with pytest.raises(CorruptSegmentError, match="symbolic link"):
            read(ref)
