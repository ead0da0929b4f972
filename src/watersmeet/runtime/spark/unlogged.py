"""Calls to Spark whose failure is expected. PySpark logs every error with its Java trace on standard error before we
can catch it; our own message must not come after such a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.logger import PySparkLogger

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def unlogged() -> Iterator[None]:
    """In this block, PySpark does not log errors of Spark that it turns into exceptions."""
    loggers = [logger for logger in map(PySparkLogger.getLogger, LOGGERS) if not logger.disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False
