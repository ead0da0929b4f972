"""Kinds of query over the same streams, each into a sink of its own; as a program, to be killed.

    python -m tests.spark.campaign_program <kind> <folder>

It is a guest in the JVM of the test (`processes.visiting`). It prints `started` when the query runs. Exit code 0:
everything is in the sink.

| kind       | query                                                     | sink                              |
|------------|-----------------------------------------------------------|-----------------------------------|
| parquet    | one node, windowed                                        | part files of the tasks           |
| spilling   | one node, no window, memory for a fraction; a clean-up    | the same                          |
| stages     | a tree over two keys                                      | csv, by Spark's writer            |
| hops       | one node over two keys, hop by hop                        | Parquet, partitioned              |
| expression | a select list that only Spark can evaluate                | json                              |
| function   | a binary tree over one key                                | foreachBatch, a file per epoch    |
| complete   | a running aggregate                                       | foreachBatch, each replaces all   |
| windows    | an aggregate over windows, appended when they close       | part files                        |
| a strategy | trees over one key that change all the time, in chunks of | part files of the tasks           |
|            | a few rows; just in time, there is no window              |                                   |

Rows are out of order by less than the delay, so none is late, and the right answer does not depend on which files Spark
takes together. Of windows, those have been closed in the end that the last watermark has passed.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tests.oracle import canonical
from tests.spark.driver_program import guest_session
from tests.spark.helpers import READINGS, read_stream
from watersmeet import StreamJoin
from watersmeet.adaptation import coordinator
from watersmeet.adaptation.migration import STRATEGIES

DELAY, WITHIN = "1 minute", "2 minutes"
ROWS = "k int, a_v bigint, b_v bigint, c_v bigint"
ONE_KEY, TWO_KEYS = "a.k = b.k AND b.k = c.k", "a.k = b.k AND b.name = c.name AND b.v % 7 = c.v % 7"
IN_TIME = " AND ".join(f"abs({x}.t - {y}.t) < 120" for x, y in ("ab", "ac", "bc"))


def join_of(spark: SparkSession, streams: Path, where: str, within: str | None = WITHIN, **options: Any) -> StreamJoin:
    join = StreamJoin(spark)
    for name in "abc":
        df = read_stream(spark, streams / name, READINGS)
        join = join.stream(name, df, eventTime="ts" if within else None, delay=DELAY)
    join = join.where(where).options(slots=2, **options)
    return join.within(within) if within else join


def rows_of(join: StreamJoin) -> StreamJoin:
    return join.select("b.k AS k", "a.v", "b.v", "c.v")


def to_files(join: StreamJoin, folder: Path, format: str, *partition_by: str) -> Any:
    writer = join.writeStream.format(format).partitionBy(*partition_by).option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "ck")).trigger(availableNow=True).start()


def to_function(join: StreamJoin, folder: Path, mode: str = "append") -> Any:
    """Every epoch becomes a file of its own; one that is sent again replaces it."""
    sent = folder / "sent"
    sent.mkdir(exist_ok=True)

    def keep(results: DataFrame, epoch: int) -> None:
        hidden = sent / f".{epoch:05d}"
        pq.write_table(results.toArrow(), hidden)
        hidden.rename(sent / f"{epoch:05d}.parquet")

    writer = join.writeStream.outputMode(mode).foreachBatch(keep)
    return writer.option("checkpointLocation", str(folder / "ck")).trigger(availableNow=True).start()


def start(kind: str, spark: SparkSession, folder: Path) -> Any:
    def join(where: str = ONE_KEY, **how: Any) -> StreamJoin:
        return join_of(spark, folder, where, **how)

    match kind:
        case "parquet":
            return to_files(rows_of(join()), folder, "parquet")
        case "spilling":
            return to_files(rows_of(join(within=None, memoryBudget="2k", partitions=8)), folder, "parquet")
        case "stages":
            return to_files(rows_of(join(TWO_KEYS, plan="((a b) c)")), folder, "csv")
        case "hops":
            return to_files(rows_of(join(TWO_KEYS, plan="(a b c)")), folder, "parquet", "k")
        case "expression":
            return to_files(join().select("b.k AS k", "a.v", "b.v", "greatest(c.v, -1) AS c_v"), folder, "json")
        case "function":
            return to_function(rows_of(join(plan="((a b) c)")), folder)
        case "complete":
            return to_function(grouped(join(), "b.k"), folder, "complete")
        case "windows":
            return to_files(grouped(join(), "b.k", "window(result_time, '1 minute')"), folder, "parquet")
        case "just-in-time":
            return to_files(rows_of(join(within=None, **migrating(kind))), folder, "parquet")
        case _ if kind in STRATEGIES:
            return to_files(rows_of(join(**migrating(kind))), folder, "parquet")
    raise ValueError(f"no such kind: {kind}")


def grouped(join: StreamJoin, *by: str) -> StreamJoin:
    return join.groupBy(*by).select("b.k AS k", "count(*) AS n", "sum(a.v) AS total")


def migrating(strategy: str) -> dict[str, Any]:
    """Options of a query that migrates after every few epochs."""
    coordinator.ROWS_AT_ONCE = 20
    trees = ("(a (b c))", "((a b) c)")
    script = "; ".join(f"{3 * n + 1}: migrate {trees[n % 2]} {strategy}" for n in range(60))
    return {"plan": trees[1], "rehearse": script, "partitions": 8}


KINDS = ("parquet", "spilling", "stages", "hops", "expression", "function", "complete", "windows", *STRATEGIES[1:])


def sent(kind: str, spark: SparkSession, folder: Path) -> Counter:
    """What a reader of the sink sees."""
    if kind in ("function", "complete"):
        tables = [pq.read_table(file) for file in sorted((folder / "sent").glob("*.parquet"))]
        return sum(map(canonical, tables[-1:] if kind == "complete" else tables), Counter())
    format = {"stages": "csv", "expression": "json"}.get(kind, "parquet")
    schema = "k int, n bigint, total bigint" if kind == "windows" else ROWS
    found = spark.read.format(format).schema(schema).load(str(folder / "out"))
    return canonical(found.select(*[field.split()[0] for field in schema.split(", ")]).toArrow())


def right(kind: str, tables: dict[str, pa.Table]) -> Counter:
    """The answer by DuckDB, of all rows at once."""
    session = duckdb.connect()
    for name, table in tables.items():
        session.register(f"{name}_rows", table)
        session.execute(f"CREATE VIEW {name} AS SELECT *, epoch_us(ts) / 1e6 AS t FROM {name}_rows")
    where = TWO_KEYS if kind in ("stages", "hops") else ONE_KEY
    where += "" if kind in ("spilling", "just-in-time") else f" AND {IN_TIME}"
    columns = "b.k AS k, a.v AS a_v, b.v AS b_v, c.v AS c_v, greatest(a.t, b.t, c.t) AS t"
    joined = f"SELECT {columns} FROM a, b, c WHERE {where}"
    match kind:
        case "complete":
            text = f"SELECT k, count(*), sum(a_v)::BIGINT FROM ({joined}) GROUP BY k"
        case "windows":
            watermark = "(SELECT least((SELECT max(t) FROM a), (SELECT max(t) FROM b), (SELECT max(t) FROM c)) - 60)"
            passed = f"floor(t / 60) * 60 + 60 <= {watermark}"
            text = f"SELECT k, count(*), sum(a_v)::BIGINT FROM ({joined}) WHERE {passed} GROUP BY k, floor(t / 60)"
        case _:
            text = f"SELECT k, a_v, b_v, c_v FROM ({joined})"
    return canonical(session.execute(text).to_arrow_table())


if __name__ == "__main__":
    query = start(sys.argv[1], guest_session(), Path(sys.argv[2]))
    print("started", flush=True)
    query.awaitTermination()
    os._exit(0)
