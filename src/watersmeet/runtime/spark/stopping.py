"""How a micro-batch that runs while its query is stopped ends without a word.

`stop()` cancels the jobs of the batch, and the function that Spark calls for it then fails. Spark ends quietly if the
text of that failure says that a call was interrupted. It looks for this with a regular expression that overflows the
stack on the long text of a cancelled job, and prints a thousand lines (`StreamExecution.isInterruptionException`). So
the function raises a short error of its own, in the words that Spark looks for.

PySpark's handler of Ctrl-C cancels all jobs first and raises KeyboardInterrupt then. A batch that fails by this stops
its query in the same way; the handle keeps the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.outside import JobsCancelled

INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling watersmeet: java.lang.InterruptedException"


class Interrupted(Exception):
    """The batch was given up because its query is stopped."""

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
