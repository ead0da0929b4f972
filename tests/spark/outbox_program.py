"""Queries with all kinds of sinks over the same streams; as a program, in a process of its own that is to be killed.

    python -m tests.spark.outbox_program <kind> <folder>

It is a guest in the JVM of the test (`processes.visiting`), and prints nothing. Exit code 0: everything is in the sink.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tests.oracle import canonical
from tests.spark.driver_program import guest_session
from tests.spark.helpers import join_of
from watersmeet import StreamJoin

COLUMNS = "k int, a_ts timestamp, a_v bigint, b_ts timestamp, b_v bigint"
TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

Start = Callable[..., Any]
"""Of the session, the folder for sink and checkpoint, and that of the streams if it is another."""


def rows(spark: SparkSession, folder: Path) -> StreamJoin:
    return join_of(spark, folder, "ab").option("slots", 2)


def groups(spark: SparkSession, folder: Path) -> StreamJoin:
    join = join_of(spark, folder, "ab").option("slots", 2)
    return join.groupBy("a.k").select("a.k AS k", "count(*) AS n", "sum(b.v) AS total")


def files_of(format: str, *partition_by: str, **options: str) -> Start:
    def start(spark: SparkSession, folder: Path, streams: Path | None = None) -> Any:
        writer = rows(spark, streams or folder).writeStream.format(format).option("path", str(folder / "out"))
        writer = writer.options(checkpointLocation=folder / "ck", **options)
        return writer.partitionBy(*partition_by).trigger(availableNow=True).start()

    return start


def to_function(join: Callable[[SparkSession, Path], StreamJoin], mode: str) -> Start:
    """Every epoch becomes a file of its own; one that is sent again replaces it."""

    def start(spark: SparkSession, folder: Path, streams: Path | None = None) -> Any:
        sent = folder / "sent"
        sent.mkdir(exist_ok=True)

        def keep(results: DataFrame, epoch: int) -> None:
            pq.write_table(results.toArrow(), sent / f"{epoch:05d}.parquet")

        writer = join(spark, streams or folder).writeStream.outputMode(mode).foreachBatch(keep)
        return writer.option("checkpointLocation", folder / "ck").trigger(availableNow=True).start()

    return start


STARTS = {
    "parquet": files_of("parquet"),
    "csv": files_of("csv", **TIMES),
    "partitioned": files_of("parquet", "k"),
    "function": to_function(rows, "append"),
    "complete": to_function(groups, "complete"),
}


def sent(spark: SparkSession, folder: Path, kind: str) -> Counter:
    """What a reader of the sink sees."""
    if kind in ("function", "complete"):
        tables = [pq.read_table(file) for file in sorted((folder / "sent").iterdir())]
        return sum(map(canonical, tables[-1:] if kind == "complete" else tables), Counter())
    reader = spark.read.format("csv" if kind == "csv" else "parquet").schema(COLUMNS).options(**TIMES)
    place = re.sub(r"[*?\[\]{}]", r"\\\g<0>", str(folder / "out"))
    return canonical(reader.load(place).select("k", "a_ts", "a_v", "b_ts", "b_v").toArrow())


if __name__ == "__main__":
    STARTS[sys.argv[1]](guest_session(), Path(sys.argv[2])).awaitTermination()
    os._exit(0)
