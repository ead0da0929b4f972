"""What the Spark tests share: streams as numbered Parquet files, a join over them, its output and the right answer.

Every stream is a folder `<base>/<stream>` with one file per micro-batch. Spark takes files in the order of their
modification times, so those are set by number, and `maxFilesPerTrigger=1` makes the n-th file of every stream
together the n-th micro-batch.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tests.oracle import canonical, nested_loop_join
from watersmeet import StreamJoin
from watersmeet.runtime.spark.stream_join import pieces_of

FIRST_FILE_SECONDS = 1_700_000_000
SECOND_US = 1_000_000
READINGS = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("name", pa.string())])

Batch = Mapping[str, pa.Table]


def write_file(folder: Path, number: int, table: pa.Table) -> None:
    """File `number` of a stream; it appears whole, with a modification time that says its place."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f"_{number:05d}.parquet"
    pq.write_table(table, hidden)
    os.utime(hidden, (FIRST_FILE_SECONDS + number, FIRST_FILE_SECONDS + number))
    hidden.rename(folder / f"{number:05d}.parquet")


def write_batches(base: Path, batches: Sequence[Batch], start: int = 0) -> None:
    """One file per stream and batch."""
    for number, batch in enumerate(batches, start):
        for stream, table in batch.items():
            write_file(base / stream, number, table)


def read_stream(spark: SparkSession, folder: Path, schema: pa.Schema, **options: object) -> DataFrame:
    """A stream over such a folder, one file per micro-batch unless told otherwise (None: all at once)."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"maxFilesPerTrigger": 1, **options}
    reader = spark.readStream.schema(from_arrow_schema(schema, prefer_timestamp_ntz=True))
    return reader.options(**{k: v for k, v in given.items() if v is not None}).parquet(str(folder))


def readings(rows: Sequence[tuple[int | None, float | None, int]]) -> pa.Table:
    """Rows of (key, event time in seconds, value) in the schema most tests use."""
    return pa.table(
        {
            "k": [k for k, _, _ in rows],
            "ts": [None if t is None else round(t * SECOND_US) for _, t, _ in rows],
            "v": [v for _, _, v in rows],
            "name": [f"n{v % 3}" for _, _, v in rows],
        },
        schema=pa.schema([READINGS.field(0), pa.field("ts", pa.int64()), READINGS.field(2), READINGS.field(3)]),
    ).cast(READINGS)


def random_batches(
    seed: int, streams: str, batches: int, rows: int, *, keys: int = 10, batch_seconds: float = 60, disorder: float = 30
) -> list[dict[str, pa.Table]]:
    """Batches that move on in time, with disorder inside and across batches, duplicates and NULL keys."""
    rng = random.Random(seed)
    made = []
    for number in range(batches):
        batch = {}
        for stream in streams:
            drawn = []
            for i in range(rows):
                key = None if rng.random() < 0.02 else rng.randrange(keys)
                at = (number + rng.random()) * batch_seconds - rng.random() * disorder
                drawn.append((key, round(max(at, 0), 3), number * rows + i))
            batch[stream] = readings(drawn + drawn[:1])
        made.append(batch)
    return made


def join_of(
    spark: SparkSession,
    base: Path,
    streams: str = "abc",
    *,
    within: str | None = "2 minutes",
    delay: str = "30 seconds",
    **options: object,
) -> StreamJoin:
    """The join most tests run: equal k within a window, and one residual predicate; options are the sources'."""
    join = StreamJoin(spark)
    for name in streams:
        df = read_stream(spark, base / name, READINGS, **options)
        join = join.stream(name, df, eventTime="ts" if within else None, delay=delay)
    join = join.where(" AND ".join(f"{left}.k = {right}.k" for left, right in pairwise(streams)))
    join = join.where(f"{streams[0]}.v <> {streams[-1]}.v + 3")
    if within:
        join = join.within(within)
    return join.select(f"{streams[0]}.k AS k", *(f"{name}.{column}" for name in streams for column in ("ts", "v")))


def run(join: StreamJoin, out: Path, checkpoint: Path, **writer_options: object) -> Any:
    """Process all that is there into a Parquet folder; the handle of the ended query."""
    query = start(join, out, checkpoint, **writer_options)
    query.awaitTermination()
    return query


def start(join: StreamJoin, out: Path, checkpoint: Path, **writer_options: object) -> Any:
    writer = join.writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", str(checkpoint))
    return writer.options(**writer_options).trigger(availableNow=True).start()


def output(spark: SparkSession, out: Path, format: str = "parquet") -> Counter:
    """The multiset of result rows that a reader sees."""
    return canonical(spark.read.format(format).load(str(out)).toArrow())


def expected(join: StreamJoin, batches: Sequence[Batch]) -> Counter:
    """The multiset of result rows that the oracle owes."""
    return answer(join, batches).results


def answer(join: StreamJoin, batches: Sequence[Batch]) -> Any:
    return nested_loop_join(pieces_of(join).build()[0], batches)


def until(condition: Callable[[], object], seconds: float = 120, what: str = "the condition") -> None:
    """Wait for a condition; a test that waits on clocks fails on slow machines."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.05)
