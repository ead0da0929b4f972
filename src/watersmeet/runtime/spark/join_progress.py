"""Progress as PySpark users know it: a `StreamingQueryProgress`, by keys and by attributes, with the join's fields
added; and its listeners.

Spark's own listeners (`spark.streams.addListener`) see the query underneath, without the join. Listeners of
`query.addListener` get the same events with the progress of the join.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from watersmeet.observe.progress import EpochProgress, merged_progress, with_closing

EPOCHS_KEPT = 100
OURS = ("epoch", "adaptations", "statistics")
"""Keys that Spark's progress does not have."""


class JoinProgress(StreamingQueryProgress):  # type: ignore[misc]  # mypy does not look into pyspark
    """The progress of a trigger; figures that Spark does not have are under `OURS` and in `customMetrics`.

    >>> query.lastProgress.stateOperators[0].numRowsTotal, query.lastProgress["epoch"]
    (1200, 7)
    """

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> JoinProgress:
        """From merged progress, as JSON."""
        given = {"batchDuration": 0, **value}
        made: JoinProgress = cls.fromJson(given)
        made.update({name: given[name] for name in OURS if name in given})
        return made

    @property
    def epoch(self) -> int:
        return self["epoch"]

    @property
    def adaptations(self) -> list[dict[str, Any]]:
        return self["adaptations"]

    @property
    def statistics(self) -> dict[str, Any]:
        return self["statistics"]


class KeptProgress:
    """The progress of the last epochs of a run, to be merged with Spark's."""

    def __init__(self, found: EpochProgress, sink: str) -> None:
        """`found` is the state at the start; `sink` is its description."""
        self.resting, self._sink = found, sink
        self.epochs: deque[EpochProgress] = deque(maxlen=EPOCHS_KEPT)
        self.resent: dict[int | None, int] = {}
        """How many results of an earlier run were sent, by batch."""
        self.migrated: Mapping[str, Any] | None = None
        """The last migration."""

    @property
    def last(self) -> EpochProgress:
        return self.epochs[-1] if self.epochs else self.resting

    def note_resent(self, batch: int | None, results: int) -> None:
        self.resent[batch] = results

    def note(self, progress: EpochProgress) -> None:
        self.resting = progress
        for event in progress.events:
            if event.kind == "migrate":
                self.migrated = event.to_dict()
        if progress.is_resting:
            return
        if progress.is_closing and self.epochs:
            self.epochs[-1] = with_closing(self.epochs[-1], progress)
        else:
            self.epochs.append(progress)

    def merged(self, found: StreamingQueryProgress) -> JoinProgress:
        """Spark's progress of a trigger, with that of its epochs."""
        value = json.loads(found.json)
        batch = value["batchId"]
        epochs = [epoch for epoch in self.epochs if epoch.batch == batch]
        return JoinProgress.of(merged_progress(value, epochs, self.resting, self._sink, self.resent.get(batch, 0)))


class Forwarding(StreamingQueryListener):  # type: ignore[misc]
    """Passes the events of one run on to a user's listener, with the progress of the join."""

    def __init__(
        self, listener: StreamingQueryListener, run_id: str, merged: Callable[[StreamingQueryProgress], JoinProgress]
    ) -> None:
        self._listener, self._run_id, self._merged = listener, run_id, merged

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if str(event.runId) == self._run_id:
            self._listener.onQueryStarted(event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if str(event.progress.runId) == self._run_id:
            self._listener.onQueryProgress(QueryProgressEvent(self._merged(event.progress)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        if str(event.runId) == self._run_id:
            self._listener.onQueryIdle(event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.runId) == self._run_id:
            self._listener.onQueryTerminated(event)
