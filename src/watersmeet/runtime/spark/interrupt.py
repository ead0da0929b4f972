"""Ctrl-C in a script that waits for a query: KeyboardInterrupt reaches the script, and Spark's warnings do not.

PySpark's handler of Ctrl-C has then cancelled all jobs. Spark warns of every lost task, of the Python workers that it
kills, and of jobs that it does not find when the query is stopped. All of that follows from Ctrl-C, so these loggers
are set to ERROR until it is over. A logger with a level of its own is left as it is.

If the script does not catch the KeyboardInterrupt, one line takes the place of Python's traceback, which would show our
code: the query is stopped first, and the line says how far it came. The exit code is Python's (130 in a shell). This is
done by `sys.excepthook`, only for an exception that left `awaitTermination`, and only where nobody else has set a hook.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import TracebackType

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.runtime.spark.stopping import await_tasks, is_in_batch
from watersmeet.state.manifest import Manifest

LOGGERS = (
    "org.apache.spark.scheduler.DAGScheduler",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.python",
)
ENDED_WITHIN_S = 5.0
"""How long an interrupt waits for the end of a query whose jobs were cancelled."""
LATE_WARNINGS_S = 0.2
"""How long after the end of a task its warning may come."""
_CLOSING_LINE = "_watersmeet_last_words"


def settle(session: SparkSession, query: StreamingQuery, ended: Event) -> None:
    """Wait for the end of a query whose batch Ctrl-C has cancelled, and of its tasks. Python's own handler cancels
    nothing: then this does nothing."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        with _without_warnings(session):
            if is_in_batch(query):
                ended.wait(ENDED_WITHIN_S)
            await_tasks(session)


def stop_quietly(session: SparkSession, query: StreamingQuery) -> None:
    """Stop a query that Ctrl-C or the end of its script ends, and wait for its tasks."""
    with _without_warnings(session):
        query.stop()
        await_tasks(session)


@contextmanager
def _without_warnings(session: SparkSession) -> Iterator[None]:
    """In this block, and a moment longer, Spark does not warn of cancelled jobs and killed tasks."""
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    settings = context.getConfiguration()
    silenced = [name for name in LOGGERS if not settings.getLoggers().containsKey(name)]
    for name in silenced:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)
    try:
        yield
    finally:
        time.sleep(LATE_WARNINGS_S)
        for name in silenced:
            settings.removeLogger(name)  # it then has the level of all others again
        context.updateLoggers()


def closing_line(name: str, last: Manifest | None, *, is_kept: bool) -> str:
    """The line of a query that has ended: how far it came, and whether it can go on."""
    how_far = "before its first epoch" if last is None else f"after epoch {last.epoch}"
    future = "start it again to go on" if is_kept else "its checkpoint was temporary"
    return f"stopped by Ctrl-C: query {name} ended {how_far}; {future}"


def end_with(interrupt: KeyboardInterrupt, closing_line: Callable[[], str]) -> None:
    """Print a line in place of the traceback if the script does not catch the interrupt."""
    setattr(interrupt, _CLOSING_LINE, closing_line)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _say


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    closing_line = getattr(error, _CLOSING_LINE, None)
    if closing_line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        print(closing_line(), file=sys.stderr)
