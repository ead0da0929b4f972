"""Progress as PySpark users know it: a `StreamingQueryProgress`, by keys and by attributes, with the join's fields
added; and its listeners.

Spark's own listeners (`spark.streams.addListener`) see the query underneath, without the join. Listeners of
`query.addListener` get the same events with the progress of the join.
"""

from __future__ import annotations

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
