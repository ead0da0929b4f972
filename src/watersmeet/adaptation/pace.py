"""The pace of a migration that reads stored rows in chunks: a micro-batch with a chunk is little longer than usual.

Arriving rows wait for a chunk, and for whatever else a migration costs while it is under way. So the rows of the next
chunk follow from the time of the whole micro-batch that had the last one: as many as make it `TIMES` as long as a usual
one, the median before the migration. A chunk takes at least `SHARE_MIN` of a usual micro-batch, so that the migration
ends. The first chunk is small, because its price is not known. A micro-batch with a chunk merges no state; every other
one has no chunk, and merges.

The same times tell whether the query is overloaded: then nothing is gained by chunks, which make a migration dearer
(dissertation 12.4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from watersmeet.epoch.task import SlotReport
from watersmeet.state.measures import BUILD_NS, BUILT_ROWS, CPU_TIMES, INSERT_NS, INSERTED, Counts

TIMES = 1.4
SHARE_MIN = 0.3
FIRST_ROWS = 8_000
FACTOR = 4
"""The most by which chunks grow or shrink from one to the next."""
BATCHES = 9
"""Micro-batches whose time is kept."""


class Pace:
    """The rows of chunks, of one slot."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max, self._rows = rows_max, min(rows_max, FIRST_ROWS)
        self._batches_s: deque[float] = deque(maxlen=BATCHES)
        self._usual_s: deque[float] = deque(maxlen=BATCHES)
        self._watermarks_us: deque[int] = deque(maxlen=BATCHES + 1)

    @property
    def rows(self) -> int:
        """The rows of the next chunk."""
        return self._rows

    @property
    def batch_s(self) -> float | None:
        """The CPU time of a usual micro-batch on a slot; None before the first."""
        return median(self._usual_s) if self._usual_s else None

    @property
    def is_overloaded(self) -> bool:
        """Whether the query cannot keep up: its last micro-batches have taken more CPU time on a slot than the event
        time by which they moved the watermark. Always false without windows, and before `BATCHES` micro-batches."""
        seen = self._watermarks_us
        return len(seen) > BATCHES and sum(self._batches_s) > (seen[-1] - seen[0]) / 1e6

    def note_batch(
        self, reports: Sequence[SlotReport], slots: int, watermark_us: int | None = None, *, is_usual: bool = True
    ) -> None:
        """Note a micro-batch; it is usual if no migration is under way."""
        if watermark_us is not None:
            self._watermarks_us.append(watermark_us)
        self._batches_s.append(_of_batch_s(reports, slots))
        if is_usual:
            self._usual_s.append(self._batches_s[-1])

    def note_chunk(self, rows: float, reports: Sequence[SlotReport], slots: int) -> None:
        """Note a chunk that has read so many rows on a slot, and the micro-batch that it came with, if any."""
        spent_s = sum(report.counts.of(BUILD_NS) + _stored_ns(report.counts) for report in reports) / 1e9 / slots
        usual_s = self.batch_s
        if usual_s is None or not spent_s:
            return
        left_s = max(SHARE_MIN * usual_s, TIMES * usual_s - _of_batch_s(reports, slots))
        factor = min(FACTOR, max(1 / FACTOR, left_s / spent_s))
        self._rows = max(1, min(self._rows_max, round(rows * factor)))


def _of_batch_s(reports: Sequence[SlotReport], slots: int) -> float:
    """The time that the rows of a micro-batch took on a slot, without its chunk."""
    spent_ns = sum(report.counts.of(measure) for report in reports for measure in CPU_TIMES)
    return (spent_ns - sum(_stored_ns(report.counts) for report in reports)) / 1e9 / slots


def _stored_ns(counts: Counts) -> float:
    """The time to store the rows of a chunk that is a part of a micro-batch."""
    return counts.of(INSERT_NS) * counts.of(BUILT_ROWS) / max(1, counts.of(INSERTED))
