"""Questions to Spark whose answer may be an error: PySpark logs each of those with its Java trace on standard error,
before anybody can catch it. What we say in our own words must not be preceded by that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.logger import PySparkLogger

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def unlogged() -> Iterator[None]:
    """Within, PySpark logs no error of Spark that it turns into an exception."""
    loggers = [logger for logger in map(PySparkLogger.getLogger, LOGGERS) if not logger.disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False
