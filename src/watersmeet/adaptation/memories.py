"""The moving values of a running query, in three memories, and the totals of its slots and streams.

| memory   | an epoch counts for                                     | used for                             |
|----------|---------------------------------------------------------|--------------------------------------|
| `recent` | half the longest window (without windows, half an hour) | progress; the next plan              |
| `long`   | four times the longest window                           | the plan while the data is thrashing |
| `totals` | ever                                                    | how full windows are                 |

The first micro-batch covers an unknown time, so only totals of slots and streams count it. All values are kept beside
the checkpoint. Results do not depend on them: a crash may lose those of the last epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.adaptation.moving import OF_SLOTS, Counted, Moving
from watersmeet.epoch.kinds import Epoch, has_rows
from watersmeet.epoch.task import SlotReport
from watersmeet.optimizer.assumptions import HOUR_US
from watersmeet.query.logical import JoinQuery
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import Measure

RECENT, LONG = 0.5, 4.0
"""Memories, in windows: of statistics in general, and where the data is thrashing."""
MEMORIES = ("recent", "long", "totals")


class Memories:
    """All moving values of one query."""

    def __init__(self, query: JoinQuery) -> None:
        windows = [window for window in query.windows_us if window is not None]
        self.window_s = max(windows, default=HOUR_US) / 1e6
        self.recent, self.long = Moving(RECENT * self.window_s), Moving(LONG * self.window_s)
        self.totals = Moving()
        self.at_s: float | None = None
        """The time that the data had reached after the last epoch."""
        self.slot_totals: Counter[tuple[int, Measure]] = Counter()
        self.stream_totals: Counter[str] = Counter()
        """Rows of each stream that slots have received."""

    def note(self, epoch: Epoch, after: Manifest, reports: Sequence[SlotReport]) -> tuple[float, Counted] | None:
        """Add a committed epoch, and return the seconds that it covers, and its figures; None if it had no rows or
        covers an unknown time."""
        before_s, self.at_s = self.at_s, data_time_s(after)
        if not reports:
            return None
        counted = Counted.of(reports)
        self.slot_totals.update(counted.slots)
        if not has_rows(epoch):
            return None
        self.stream_totals.update(counted.rows)
        if before_s is None or self.at_s is None:
            return None
        seconds = max(0.0, self.at_s - before_s)
        for moving in (self.recent, self.long, self.totals):
            moving.add(seconds, counted)
        return seconds, counted

    def to_value(self) -> dict[str, Any]:
        """As JSON, for a checkpoint."""
        moving = {name: getattr(self, name).to_value() for name in MEMORIES}
        slots = [[slot, measure.name, value] for (slot, measure), value in self.slot_totals.items()]
        return {"at_s": self.at_s, **moving, "slots": slots, "streams": self.stream_totals}

    def restore(self, value: Mapping[str, Any]) -> None:
        """Continue from a value of `to_value`."""
        for name in MEMORIES:
            getattr(self, name).restore(value[name])
        self.at_s = value["at_s"]
        known = {measure.name: measure for measure in OF_SLOTS}
        slots = value.get("slots", ())
        self.slot_totals = Counter({(slot, known[name]): total for slot, name, total in slots if name in known})
        self.stream_totals = Counter(value.get("streams", {}))


def data_time_s(manifest: Manifest) -> float | None:
    """The time that the data has reached: the median of the streams' latest event times, so that one row with a wrong
    time does not move it; without event times, the driver's clock."""
    times = sorted(us / 1e6 for us in manifest.times_max_us if us is not None)
    if times:
        return times[len(times) // 2] if len(times) == len(manifest.times_max_us) else None
    return max(manifest.last_seen_ms, default=0) / 1e3
