"""What the driver works with, and how errors of Python workers reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import error_from_worker
from watersmeet.observe.progress import EpochProgress
from watersmeet.runtime.spark.results import ResultPath
from watersmeet.runtime.spark.sinks import Sink
from watersmeet.runtime.spark.slot_work import Folders
from watersmeet.state.checkpoint import Checkpoint


class Stopped(Exception):
    """The query was stopped while this batch waited or ran."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What the driver works with: where state and results lie, where results go, and who is told."""

    checkpoint: Checkpoint
    folders: Folders
    results: ResultPath
    sink: Sink
    session: SparkSession
    on_progress: Callable[[EpochProgress], None]
    idle_timeout_ms: int | None = None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors of ours that a Python worker raised, as they were there."""
    try:
        yield
    except PySparkException as error:
        found = error_from_worker(str(error))
        if found is None:
            raise
        raise found from error


@contextmanager
def cancellable(session: SparkSession, tag: str) -> Iterator[None]:
    """Jobs that are started here can be cancelled by the tag. When a query is stopped, Spark itself cancels only those
    of a batch."""
    context = session.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)
