"""The event log: every event once, whole or not at all, through crashes at any byte and at any step; and bounded."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from watersmeet.errors import CheckpointError
from watersmeet.state import event_log, storage
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.event_log import BLOCK, EPOCHS_KEPT, EPOCHS_MORE, EVENTS, EventLog, RolledUp
from watersmeet.state.manifest import PlanText, before_first_epoch

OPEN = Path.open


def event(epoch: int, kind: str = "spill", slot: int = 0, **details: object) -> dict[str, object]:
    return {"epoch": epoch, "kind": kind, "slot": slot, "reason": "over the budget", **details}


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]


def write_plainly(folder: Path, events: list[dict[str, object]]) -> None:
    """As a log of lines alone, without marks."""
    (folder / EVENTS).write_text("".join(f"{json.dumps(one)}\n" for one in events))


def test_a_log_that_is_not_there_has_no_events(tmp_path):
    log = EventLog(tmp_path / "none")
    assert (log.last_epoch(), log.read()) == (-1, ({}, []))
    log.append([])
    assert not log.path.exists()


def test_events_come_back_in_their_order_and_the_last_epoch_is_known(tmp_path):
    log = EventLog(tmp_path)
    given = [[event(0, "plan", plan="(a b)")], [event(3, slot=0), event(3, slot=1), event(3, "cleanUp")], [event(4)]]
    for some in given:
        log.append(some)
        assert log.last_epoch() == EventLog(tmp_path).last_epoch() == some[-1]["epoch"]
    assert EventLog(tmp_path).read() == ({}, [one for some in given for one in some])
    assert lines(tmp_path)[0] == given[0][0]


def test_only_the_end_of_the_file_is_read_to_find_the_last_epoch(tmp_path, monkeypatch):
    many = [event(epoch) for epoch in range(2_000)]
    write_plainly(tmp_path, many)
    read = []
    whole = event_log._last_whole
    monkeypatch.setattr(event_log, "_last_whole", lambda data, **how: read.append(len(data)) or whole(data, **how))
    assert EventLog(tmp_path).last_epoch() == 1_999
    assert read == [BLOCK]
    EventLog(tmp_path).append([event(2_000, slot=slot) for slot in range(1_000)])
    with (tmp_path / EVENTS).open("ab") as file:
        file.truncate(file.tell() - 5)
    assert EventLog(tmp_path).last_epoch() == 1_999


def test_a_log_of_plain_lines_goes_on(tmp_path):
    write_plainly(tmp_path, [event(1), event(1, slot=1), event(2)])
    log = EventLog(tmp_path)
    log.restore(2, [event(2)])
    log.append([event(5)])
    assert log.read() == ({}, [event(1), event(1, slot=1), event(2), event(5)])


def test_after_a_crash_at_any_byte_of_an_append_all_its_events_are_there_once(tmp_path):
    first, last = [event(1)], [event(2, slot=0), event(2, slot=1), event(2, "cleanUp", results=3)]
    log = EventLog(tmp_path)
    log.append(first)
    before = log.path.stat().st_size
    log.append(last)
    whole = log.path.read_bytes()
    for size in range(len(whole) + 1):
        log.path.write_bytes(whole[:size])
        found = EventLog(tmp_path)
        complete = [*(first if size >= before else []), *(last if size == len(whole) else [])]
        assert found.read() == ({}, complete)
        assert found.last_epoch() == (complete[-1]["epoch"] if complete else -1)
        if size >= before:
            found.restore(2, last)
            found.restore(2, last)
            assert log.path.read_bytes() == whole


def test_zeros_at_the_end_and_lines_that_cannot_be_read_are_passed_over(tmp_path):
    log = EventLog(tmp_path)
    log.append([event(1)])
    with log.path.open("ab") as file:
        file.write(b'{"epoch": 2, "ki{"epoch": 3}\n[1]\n' + json.dumps(event(4)).encode() + b"\n" + b"\0" * 20_000)
    assert EventLog(tmp_path).last_epoch() == 4
    EventLog(tmp_path).append([event(5)])
    assert EventLog(tmp_path).read() == ({}, [event(1), event(4), event(5)])


def test_an_append_that_fails_half_way_is_removed_by_the_next(tmp_path, monkeypatch):
    log = EventLog(tmp_path)
    log.append([event(1)])

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *why):
            self.file.close()

        def write(self, data):
            self.file.write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(event_log, "open_to_append", lambda path: Full(OPEN(path, "ab")))
        with pytest.raises(CheckpointError, match="No space left"):
            log.append([event(2, slot=0), event(2, slot=1)])
    assert log.last_epoch() == 1
    log.append([event(2, slot=0), event(2, slot=1)])
    assert log.read() == ({}, [event(1), event(2, slot=0), event(2, slot=1)])


def both(epoch: int) -> list[dict[str, object]]:
    """Two events in every epoch that is even, one in the others."""
    spill = event(epoch, bytes=epoch, groups=2, stage=1, fraction=0.5)
    return [spill] if epoch % 2 else [spill, event(epoch, "cleanUp", results=7)]


def expected(epochs: range) -> dict[str, RolledUp]:
    found: dict[str, RolledUp] = {}
    for name in ("spill", "cleanUp"):
        some = [one for epoch in epochs for one in both(epoch) if one["kind"] == name]
        sums: Counter[str] = Counter()
        for one in some:
            sums.update({k: v for k, v in one.items() if k in ("bytes", "groups", "results")})
        found[name] = RolledUp(len(some), some[0]["epoch"], some[-1]["epoch"], dict(sums))
    return found


def require_all_once(folder: Path, last: int) -> int:
    """Every event up to an epoch is either a line or part of the summary; how many epochs the summary has."""
    summary, events = EventLog(folder).read()
    first = events[0]["epoch"]
    assert isinstance(first, int)
    assert last - first >= min(last, EPOCHS_KEPT - 1)
    assert events == [one for epoch in range(first, last + 1) for one in both(epoch)]
    assert summary == (expected(range(first)) if first else {})
    return first


def test_25000_epochs_leave_a_bounded_log_in_which_every_event_counts_once(tmp_path):
    log, most = EventLog(tmp_path), 0
    for epoch in range(25_000):
        log.append(both(epoch))
        if epoch % 500 == 0:
            most = max(most, sum(1 for _ in log.path.open("rb")))
        if epoch % 8_000 == 0:
            log = EventLog(tmp_path)
    assert most <= 1 + 1.5 * (EPOCHS_KEPT + EPOCHS_MORE)
    assert require_all_once(tmp_path, 24_999) > 25_000 - EPOCHS_KEPT - EPOCHS_MORE - 1
    assert log.last_epoch() == 24_999
    assert os.listdir(tmp_path) == [EVENTS]


def about_to_roll_up(folder: Path) -> int:
    """A log that is rolled up by its next append, not for the first time; the epoch of that."""
    write_plainly(folder, [one for epoch in range(EPOCHS_KEPT + EPOCHS_MORE) for one in both(epoch)])
    log = EventLog(folder)
    log.append(both(EPOCHS_KEPT + EPOCHS_MORE))
    assert require_all_once(folder, EPOCHS_KEPT + EPOCHS_MORE) == EPOCHS_MORE + 1
    for epoch in range(EPOCHS_KEPT + EPOCHS_MORE + 1, EPOCHS_KEPT + 2 * EPOCHS_MORE + 1):
        log.append(both(epoch))
    return EPOCHS_KEPT + 2 * EPOCHS_MORE + 1


class Crash(Exception):
    """The process ends here."""


def crash(*_args: object, **_kwargs: object) -> None:
    raise Crash


STEPS = {
    "before the new file is there": (storage, "open_new", crash),
    "while it is written": (event_log.shutil, "copyfileobj", crash),
    "before it is synced": (storage.os, "fsync", crash),
    "before it is renamed": (storage.os, "rename", crash),
    "after it is renamed": (storage, "sync_folder", crash),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_while_older_events_are_rolled_up_loses_and_repeats_none(tmp_path, monkeypatch, step):
    folder = Checkpoint(tmp_path).folder
    folder.mkdir()
    epoch = about_to_roll_up(folder)
    with monkeypatch.context() as broken:
        broken.setattr(*STEPS[step])
        broken.setattr(storage, "remove", lambda _: None)
        with pytest.raises(Crash):
            EventLog(folder).append(both(epoch))
    rolled_up = require_all_once(folder, epoch)
    assert rolled_up == (2 * EPOCHS_MORE + 2 if step == "after it is renamed" else EPOCHS_MORE + 1)
    successor = EventLog(folder)
    successor.restore(epoch, both(epoch))
    assert require_all_once(folder, epoch) == rolled_up
    successor.append(both(epoch + 1))
    assert require_all_once(folder, epoch + 1) >= 2 * EPOCHS_MORE + 2
    checkpoint = Checkpoint(tmp_path)
    checkpoint.sweep(before_first_epoch(PlanText("(a b)"), 2, ["k"], 1, 1), checkpoint.files())
    assert os.listdir(folder) == [EVENTS]


def test_rare_events_are_rolled_up_too(tmp_path):
    log = EventLog(tmp_path)
    for epoch in range(0, 200_000, 20_000):
        log.append([event(epoch, bytes=1)])
    assert log.read() == ({"spill": RolledUp(9, 0, 160_000, {"bytes": 9})}, [event(180_000, bytes=1)])
    assert EventLog(tmp_path).last_epoch() == 180_000


def test_a_checkpoint_appends_to_its_log(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.acquire("test")
    checkpoint.events.append([])
    checkpoint.events.append([event(0), event(0, slot=1)])
    assert checkpoint.events.read() == ({}, [event(0), event(0, slot=1)])
    assert EventLog(tmp_path / "watersmeet").last_epoch() == 0
    checkpoint.release()


@pytest.mark.parametrize(
    "line",
    [
        '{"epoch": true}',
        '{"epoch": "5"}',
        '{"rolledUp": 5}',
        '{"rolledUp": {"throughEpoch": 3}}',
        '{"rolledUp": {"throughEpoch": 3, "kinds": {"spill": {"count": 1}}}}',
        "5",
        "null",
        "[" * 99_999,
    ],
    ids=range(8),
)
def test_lines_of_another_shape_are_passed_over(tmp_path, line):
    for known in ([], [event(1)]):
        write_plainly(tmp_path, known)
        with (tmp_path / EVENTS).open("a") as file:
            file.write(f"{line}\n")
        log = EventLog(tmp_path)
        assert log.read() == ({}, known)
        assert log.last_epoch() == (1 if known else -1)
        log.append([event(2)])
        assert EventLog(tmp_path).read() == ({}, [*known, event(2)])


@pytest.mark.parametrize("kind", ["link", "hard link", "folder"])
def test_a_log_that_is_no_file_of_its_own_is_set_aside(tmp_path, kind):
    (tmp_path / "outside").write_bytes(b"untouched")
    path = tmp_path / EVENTS
    match kind:
        case "link":
            path.symlink_to(tmp_path / "outside")
        case "hard link":
            path.hardlink_to(tmp_path / "outside")
        case _:
            path.mkdir()
    log = EventLog(tmp_path)
    log.restore(1, [event(1)])
    log.append([event(2)])
    assert EventLog(tmp_path).read() == ({}, [event(1), event(2)])
    assert (tmp_path / "outside").read_bytes() == b"untouched"
