"""The driver's surroundings (checkpoint, sink, listeners), and the errors of Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import WatersmeetError, error_from_worker
from watersmeet.observe.progress import EpochProgress
from watersmeet.runtime.spark.homes import Homes
from watersmeet.runtime.spark.results import ResultPath
from watersmeet.runtime.spark.sinks import Sink
from watersmeet.runtime.spark.slot_work import Folders
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest
from watersmeet.state.outbox import rows_in

OF_SINK = "sink:"
"""The prefix of paths of files in the sink's folder."""


ALL_CANCELLED = "as part of cancellation of all jobs"
"""Spark's message for jobs cancelled by Ctrl-C or `cancelAllJobs`."""


class JobsCancelled(WatersmeetError):
    """All jobs were cancelled, and with them the epoch."""

    default_error_class = "JOBS_CANCELLED"


class Stopped(Exception):
    """The query was stopped while this batch waited or ran."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The driver's surroundings: the places of state and results, the sink, and the receivers of progress."""

    checkpoint: Checkpoint
    folders: Folders
    results: ResultPath
    sink: Sink
    session: SparkSession
    on_progress: Callable[[EpochProgress], None]
    on_resent: Callable[[int | None, int], None]
    """Called after the results of an earlier run's last epoch are sent, with its batch and their number."""
    idle_timeout_ms: int | None = None
    homes: Homes = field(default_factory=Homes)

    def note_resent(self, manifest: Manifest) -> None:
        """Note that the results of an earlier run's manifest were sent now."""
        self.on_resent(manifest.batch, rows_in(self.results.folder, manifest.outbox.files))

    def files(self) -> frozenset[str]:
        """All files that earlier runs may have left over, in the checkpoint and in the sink's folder."""
        return self.checkpoint.files() | {f"{OF_SINK}{name}" for name in self.sink.leftovers()}

    def sweep(self, live: Manifest, seen: frozenset[str]) -> None:
        """Remove the files that neither the last manifest nor the sink's log names."""
        of_sink = frozenset(name for name in seen if name.startswith(OF_SINK))
        self.checkpoint.sweep(live, seen - of_sink)
        self.sink.sweep(frozenset(name.removeprefix(OF_SINK) for name in of_sink))


def clone_of(session: SparkSession) -> SparkSession:
    """A clone of the user's session, like the one that a stream makes."""
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise a WatersmeetError of a Python worker as it was raised there, and a short error for a cancelled job."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if ALL_CANCELLED in text:
            raise JobsCancelled(
                "all jobs of Spark were cancelled, by Ctrl-C or cancelAllJobs()",
                hint="start the query again: it goes on from its checkpoint",
            ) from error
        found = error_from_worker(text)
        if found is None:
            raise
        raise found from error


@contextmanager
def cancellable(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs started in this block, so that they can be cancelled. When a query is stopped, Spark itself cancels
    only the jobs of a batch."""
    context = session.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)
