"""The record of an epoch, from its job to its commit; it is reported when the epoch is committed."""

from __future__ import annotations

import time
from dataclasses import replace

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.epoch.kinds import Switch, query_after
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.spark.outside import Outside
from watersmeet.runtime.spark.progress import Ran, progress_of, resting
from watersmeet.state.manifest import Manifest
from watersmeet.state.requests import take_requests


class EpochRecord:
    """Keeps events and statistics, and passes progress on."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._started: float | None = None
        self.ran: Ran | None = None
        """The current epoch, once its job is done; None while an epoch of an earlier run is sent."""

    def note_time(self, step: str) -> None:
        if self.ran is not None:
            self.ran = replace(self.ran, times=self.ran.times._replace(**{step: time.monotonic()}))

    def tell(self, plan: JoinPlan, coordinator: Coordinator, after: Manifest) -> None:
        """Report a committed epoch, and keep its events and statistics. An epoch without changes is not reported."""
        ran, outside = self.ran, self._outside
        assert ran is not None
        self.ran = None
        outside.checkpoint.events.append(after.events)
        if not ran.outcome.reports and not isinstance(ran.epoch, Switch):
            outside.on_progress(resting(outside.results.query, plan, after, coordinator))
            return
        coordinator.note(ran.epoch, after, ran.outcome.reports)
        for request in take_requests(outside.checkpoint.requests):
            coordinator.note_request(request)
        outside.checkpoint.write_statistics(coordinator.table(after.placement))
        since, self._started = self._started, ran.times.started
        query = query_after(outside.results.query, ran.epoch)
        outside.on_progress(progress_of(query, plan, ran, after, since, coordinator))
