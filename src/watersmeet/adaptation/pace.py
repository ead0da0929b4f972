"""The pace of a migration that reads stored rows in chunks: a chunk takes a part of the time of a micro-batch.

Arriving rows wait for a chunk. So its rows follow from the time that the last chunk took, beside the median of the last
micro-batches: `SHARE` of it. The first chunk is small, because its price is not known. The same times tell whether the
query is overloaded: then nothing is gained by chunks, which make a migration dearer (dissertation 12.4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from watersmeet.epoch.task import SlotReport
from watersmeet.state.measures import BUILD_NS, BUILT_ROWS, CPU_TIMES, INSERT_NS, INSERTED, Counts

SHARE = 0.3
"""Of the CPU time of a micro-batch."""
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
        self._watermarks_us: deque[int] = deque(maxlen=BATCHES + 1)

    @property
    def rows(self) -> int:
        """The rows of the next chunk."""
        return self._rows

    @property
    def batch_s(self) -> float | None:
        """The CPU time of a micro-batch on a slot; None before the first."""
        return median(self._batches_s) if self._batches_s else None

    @property
    def is_overloaded(self) -> bool:
        """Whether the query cannot keep up: its last micro-batches have taken more CPU time on a slot than the event
        time by which they moved the watermark. Always false without windows, and before `BATCHES` micro-batches."""
        seen = self._watermarks_us
        return len(seen) > BATCHES and sum(self._batches_s) > (seen[-1] - seen[0]) / 1e6

    def note_batch(self, reports: Sequence[SlotReport], slots: int, watermark_us: int | None = None) -> None:
        if watermark_us is not None:
            self._watermarks_us.append(watermark_us)
        spent_ns = sum(report.counts.of(measure) for report in reports for measure in CPU_TIMES)
        self._batches_s.append((spent_ns - sum(_stored_ns(report.counts) for report in reports)) / 1e9 / slots)

    def note_chunk(self, rows: float, reports: Sequence[SlotReport], slots: int) -> None:
        """Note a chunk that has read so many rows on a slot."""
        spent_ns = sum(report.counts.of(BUILD_NS) + _stored_ns(report.counts) for report in reports)
        if self.batch_s is None or not spent_ns:
            return
        factor = min(FACTOR, max(1 / FACTOR, SHARE * self.batch_s / (spent_ns / 1e9 / slots)))
        self._rows = max(1, min(self._rows_max, round(rows * factor)))


def _stored_ns(counts: Counts) -> float:
    """The time to store the rows of a chunk that is a part of a micro-batch."""
    return counts.of(INSERT_NS) * counts.of(BUILT_ROWS) / max(1, counts.of(INSERTED))
