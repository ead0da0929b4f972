"""The event log of a checkpoint: adaptations with their reasons, one JSON line each, for people. It is bounded.

    events.jsonl
      {"rolledUp": {...}}       if there are older events: per kind how many, of which epochs, and sums of their details
      {"epoch": 17, "kind": ...}    an event; with "more": 2, two more events of the same call of `append` follow
      ...

The events of the last EPOCHS_KEPT epochs stay as lines. When the first line is EPOCHS_MORE epochs older than that, the
older lines are rolled up into the first line. That line is in the same file as the others, so one rename replaces both
at once: no crash can count an event twice or lose it.

Appends are not synced. A crash may leave a part of the last append; such a part is not read, and it is removed before
the next append. So the log has all events of one `append` or none. If a driver dies between a commit and its append,
the next driver gives the events of the last manifest to `restore`. After a power cut more may be missing at the end. A
line that cannot be read is skipped, and anything else than a plain file (a folder, a link) is set aside: nothing
depends on the log.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from watersmeet.state.json_shapes import mapping_of, record, whole
from watersmeet.state.manifest import BEFORE_FIRST_EPOCH
from watersmeet.state.plain_files import NotPlainError, open_to_append, open_to_change, open_to_read, set_aside
from watersmeet.state.storage import write_durably, writing

EVENTS = "events.jsonl"
EPOCHS_KEPT = 10_000
EPOCHS_MORE = 1_000
SUMMED = ("bytes", "groups", "results", "rows")
"""Details of events whose sums are kept; others are names, or make no sense as a sum."""
BLOCK = 1 << 14
ROLLED_UP, THROUGH, MORE = "rolledUp", "throughEpoch", "more"

Line = dict[str, Any]
_EVENT = record({"epoch": whole()})
_KIND = record({"count": whole(), "firstEpoch": whole(), "lastEpoch": whole(), "sums": mapping_of(whole(-(1 << 63)))})
_ROLLED_UP = record({ROLLED_UP: record({THROUGH: whole(), "kinds": mapping_of(_KIND)})})


@dataclass(frozen=True, slots=True)
class RolledUp:
    """The summary of older events of one kind."""

    count: int
    epoch_first: int
    epoch_last: int
    sums: Mapping[str, int] = field(default_factory=dict)

    def plus(self, event: Mapping[str, Any]) -> RolledUp:
        sums = dict(self.sums)
        for name in SUMMED:
            if isinstance(event.get(name), int):
                sums[name] = sums.get(name, 0) + event[name]
        epoch = event["epoch"]
        return RolledUp(self.count + 1, min(self.epoch_first, epoch), max(self.epoch_last, epoch), sums)


Summary = dict[str, RolledUp]
"""By kind of event."""


class EventLog:
    """The log in a folder; one driver writes it, and anybody may read it at the same time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / EVENTS
        self._is_whole = False
        """Whether the file is known to end with the last event of an `append`."""
        self._oldest: int | None = None
        """The epoch of the first event line; None if it has to be looked up."""

    def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Add events, in the order of their epochs; all of them or, if that fails, none."""
        if not events:
            return
        following = range(len(events) - 1, -1, -1)
        lines = [{**event, MORE: more} if more else event for event, more in zip(events, following, strict=True)]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        with writing(self.path):
            self._mend()
            self._is_whole = False
            with open_to_append(self.path) as file:
                file.write(text.encode())
            self._is_whole = True
        newest = max(event["epoch"] for event in events)
        if self._oldest is None:
            self._oldest = self._first_epoch()
        if newest - self._oldest >= EPOCHS_KEPT + EPOCHS_MORE:
            self._roll_up(newest - EPOCHS_KEPT)

    def restore(self, epoch: int, events: Sequence[Mapping[str, Any]]) -> None:
        """Add the events of the last committed epoch unless the log has them: a crash may have happened between the
        commit and `append`. All events must be of that epoch."""
        if self.last_epoch() < epoch:
            self.append(events)

    def last_epoch(self) -> int:
        """The last epoch in the log, read from the end of the file; -1 if there is none."""
        return self._end()[1]

    def read(self) -> tuple[Summary, list[Line]]:
        """The summaries of older events, by kind, and the later events."""
        file = self._opened()
        if file is None:
            return {}, []
        with file:
            data = file.read()
        end, _ = _last_whole(data, is_all=True) or (0, BEFORE_FIRST_EPOCH)
        summary: Summary = {}
        events = []
        for line in map(_parsed, data[:end].splitlines()):
            if line is None:
                continue
            if ROLLED_UP in line:
                summary = _summary(line)
            else:
                events.append({name: value for name, value in line.items() if name != MORE})
        return summary, events

    def _mend(self) -> None:
        """Remove the rest of an incomplete append."""
        if self._is_whole:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        set_aside(self.path)
        end, _ = self._end()
        with open_to_change(self.path) as file:
            file.truncate(end)

    def _opened(self) -> BinaryIO | None:
        try:
            return open_to_read(self.path)
        except (FileNotFoundError, NotPlainError):
            return None

    def _end(self) -> tuple[int, int]:
        """Where the last complete append ends, and its epoch."""
        file = self._opened()
        if file is None:
            return 0, BEFORE_FIRST_EPOCH
        with file:
            size, length = file.seek(0, os.SEEK_END), BLOCK
            while True:
                start = max(0, size - length)
                file.seek(start)
                found = _last_whole(file.read(size - start), is_all=start == 0)
                if found is not None:
                    return start + found[0], found[1]
                if start == 0:
                    return 0, BEFORE_FIRST_EPOCH
                length *= 4

    def _first_epoch(self) -> int:
        """The epoch of the first event line; there must be one."""
        with open_to_read(self.path) as file:
            lines = (line for line in map(_parsed, file) if line is not None)
            return next(int(line["epoch"]) for line in lines if ROLLED_UP not in line)

    def _roll_up(self, through: int) -> None:
        """Move the events up to an epoch from their own lines into the summary line."""
        self._oldest = None
        summary: Summary = {}
        first_kept = b""
        with open_to_read(self.path) as file:
            for text in file:
                line = _parsed(text)
                if line is None:
                    continue
                if ROLLED_UP in line:
                    summary = _summary(line)
                elif line["epoch"] > through:
                    first_kept = text
                    break
                else:
                    kind, epoch = str(line.get("kind")), line["epoch"]
                    summary[kind] = summary.get(kind, RolledUp(0, epoch, epoch)).plus(line)

            def write(target: BinaryIO) -> None:
                target.write(_summary_line(through, summary))
                target.write(first_kept)
                shutil.copyfileobj(file, target)

            write_durably(self.path, write, replace=True)


def _last_whole(data: bytes, *, is_all: bool) -> tuple[int, int] | None:
    """Where in the end of a file (`is_all`: in all of it) the last complete append ends, and its epoch."""
    end = data.rfind(b"\n") + 1
    while end > 0:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if start == 0 and not is_all:
            return None
        line = _parsed(data[start:end])
        if line is not None and not line.get(MORE):
            return end, line[ROLLED_UP][THROUGH] if ROLLED_UP in line else line["epoch"]
        end = start
    return None


def _parsed(text: bytes) -> Line | None:
    """The parsed line; None if it is invalid."""
    try:
        line = json.loads(text)
        (_ROLLED_UP if isinstance(line, dict) and ROLLED_UP in line else _EVENT)(line, "")
    except (ValueError, RecursionError):
        return None
    return line


def _summary(line: Line) -> Summary:
    kinds = line[ROLLED_UP]["kinds"]
    return {k: RolledUp(v["count"], v["firstEpoch"], v["lastEpoch"], v["sums"]) for k, v in kinds.items()}


def _summary_line(through: int, summary: Summary) -> bytes:
    kinds = {
        kind: {"count": v.count, "firstEpoch": v.epoch_first, "lastEpoch": v.epoch_last, "sums": dict(v.sums)}
        for kind, v in summary.items()
    }
    return f"{json.dumps({ROLLED_UP: {THROUGH: through, 'kinds': kinds}})}\n".encode()
