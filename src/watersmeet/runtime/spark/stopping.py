"""A quiet end for a micro-batch that runs while its query is stopped.

`stop()` cancels the jobs of the batch, and the function that Spark calls for it then fails. Spark ends quietly if the
text of that failure says that a call was interrupted. It looks for this with a regular expression that overflows the
stack on the long text of a cancelled job, and prints a thousand lines (`StreamExecution.isInterruptionException`). So
the function raises a short error of its own, in the words that Spark looks for.

A cancelled task continues until its Python worker has ended. A session that is stopped before that prints an error for
each task, so `stop()` waits for them a moment.

PySpark's handler of Ctrl-C first cancels all jobs and then raises KeyboardInterrupt. A batch that fails because of this
stops its query in the same way; the handle keeps the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.outside import JobsCancelled

INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling watersmeet: java.lang.InterruptedException"

TASKS_END_WITHIN_S = 10.0
"""Spark kills a Python worker two seconds after its task was cancelled; a busy machine takes longer."""


class Interrupted(Exception):
    """The batch was abandoned because its query is stopped."""

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


def interruptible(driver: EpochDriver, stop_query: Callable[[], None]) -> Callable[[DataFrame, int], None]:
    """The driver's foreachBatch function, which ends quietly with its query. `stop_query` marks Spark's query as
    stopped, and does not wait for its end."""

    def run_batch(batch: DataFrame, number: int) -> None:
        try:
            driver.run_batch(batch, number)
        except Exception as error:
            if isinstance(error, JobsCancelled):
                stop_query()
            elif not driver.is_stopped:
                raise
            raise Interrupted from None

    return run_batch


def is_in_batch(query: StreamingQuery) -> bool:
    return bool(query.isActive and query.status["isTriggerActive"])


def await_tasks(session: SparkSession) -> None:
    """Wait some seconds for the end of cancelled tasks, unless another query has tasks of its own."""
    deadline = time.monotonic() + TASKS_END_WITHIN_S
    while tasks_running(session) and not session.streams.active and time.monotonic() < deadline:
        time.sleep(0.05)


def tasks_running(session: SparkSession) -> int:
    """Tasks that have not ended, by the scheduler's own count: `statusTracker` learns of tasks later, or not at all if
    they begin within a tenth of a second after its last look."""
    counts = session.sparkContext._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    running = 0
    while counts.hasNext():
        running += counts.next()
    return running
