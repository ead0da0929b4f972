"""How Spark writes its small log files (offsets, commits, sources, the sink's log) for our queries.

By default Spark goes through Hadoop's FileContext, which on a local path starts a `chmod` process for every file and
its checksum; with several sources that is a noticeable part of a small micro-batch. The manager over FileSystem writes
the same files, by rename too, in a fraction of the time. It does not by itself keep two drivers apart, which our lock
on the checkpoint does. A class that the user has chosen stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
QUICK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
PATIENCE_S = 10.0


def start_with_quick_log_files(spark: SparkSession, start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that writes its log files the quick way; the session's own setting is put back."""
    if spark.conf.get(SETTING, None) is not None:
        return start()
    spark.conf.set(SETTING, QUICK)
    try:
        query = start()
        _await_sources(query)
        return query
    finally:
        spark.conf.unset(SETTING)


def _await_sources(query: StreamingQuery) -> None:
    """Wait until the sources have opened their logs: they read the session's setting, the query itself keeps a copy."""
    deadline = time.monotonic() + PATIENCE_S
    while query.isActive and "nitializing" in query.status["message"] and time.monotonic() < deadline:
        time.sleep(0.005)
