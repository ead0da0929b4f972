"""Attempts at an epoch in process: some are lost, like tasks that Spark repeats, and must leave no trace."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from watersmeet.epoch.task import SlotReport
from watersmeet.runtime.inprocess_slots import Cut
from watersmeet.state import attempts
from watersmeet.state.checkpoint import Checkpoint

Attempt = Callable[[Cut], tuple[pa.Table, list[SlotReport]]]
"""Runs all tasks of an epoch; returns the rows that slots emit, and their reports."""


class LostAttempt(Exception):
    """Ends an attempt without a report."""


class Attempts:
    """Runs epochs, each after its lost attempts."""

    def __init__(self, checkpoint: Checkpoint, cut: Cut) -> None:
        self.cut = cut
        self.to_lose: list[Callable[[], None]] = []
        """One function per lost attempt at the next epoch, called before the attempt; it may spoil `cut`."""
        self.lost: list[pa.Table] = []
        """The rows that slots emitted in lost attempts at the last batch."""
        self._checkpoint = checkpoint

    def run(self, attempt: Attempt, *, has_tasks: bool) -> tuple[pa.Table, list[SlotReport]]:
        """The outcome of the last attempt at an epoch."""
        if has_tasks:  # a takeover has no tasks, and must not find a folder of its own
            attempts.begin(self._checkpoint.attempts)
        reports: list[SlotReport] = []
        try:
            while self.to_lose:
                self._lose(self.to_lose.pop(0), attempt)
            emitted, reports = attempt(self.cut)
            return emitted, reports
        finally:
            accepted = {ref.name for report in reports for ref in report.segments}
            attempts.end(self._checkpoint.attempts, self._checkpoint.segments, accepted)

    def _lose(self, spoil: Callable[[], None], attempt: Attempt) -> None:
        cut = self.cut
        try:
            spoil()
            self.lost.append(attempt(self.cut)[0])
        except LostAttempt:
            pass
        finally:
            self.cut = cut
