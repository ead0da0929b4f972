"""A chain of five streams over three keys, ours against Spark's own stream-stream joins, with DuckDB as the judge.

The query of row S5: a.x = b.x = c.x (one key class), c.y = d.y, d.z = e.z, all within 60 s of each other. 5 streams x
200,000 rows over ten minutes of event time, ten micro-batches of one file per stream, Parquet in and out, durable
checkpoints, `local[2]`; about two matches per row and hop on x, one on y and on z.

Ours must run as (((a b c) d) e): three stages, each on a key and on two slots, with exchanges inside the micro-batch;
the plan, and rows on both slots of every stage, are asserted. Spark runs four binary joins, left-deep, with one shuffle
partition per core; each watermark column but one is hidden behind an expression, as in `benchmarks/native_spark.py`.
It gets its default state store; `--stores hdfs rocksdb` times both, and the better one is the rival. Spark's predicates
are ours, pair by pair, so that both give what DuckDB gives in one shot: counts and a checksum of the results are
asserted equal before any ratio is told. Both sides are warmed up with three micro-batches of a tenth of the rows.

The figure is the ratio of the medians of seconds per micro-batch over micro-batches 3-9; DuckDB, which sees all rows at
once and keeps no state, is the limit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.machine import save
from benchmarks.native_spark import START_US, STORES, session
from watersmeet import StreamJoin
from watersmeet.observe.explain import explain_text
from watersmeet.runtime.spark.query import epochs_of
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.measures import ROWS

KEYS = {"a": "x", "b": "x", "c": "xy", "d": "yz", "e": "z"}
WHERE = "a.x = b.x AND b.x = c.x AND c.y = d.y AND d.z = e.z"
WINDOW = "60 seconds"
WINDOW_US = 60_000_000
PLAN = ("== Plan (((a b c) d) e) ==", "stage 0 on a.x = b.x = c.x,", "stage 1 on c.y = d.y,", "stage 2 on d.z = e.z")


def generate(folder: Path, rows: int, keys: dict[str, int], batches: int, seconds: int, seed: int) -> None:
    """One file per stream and micro-batch, in time order; n numbers the rows of a stream."""
    rng = np.random.default_rng(seed)
    for name, columns in KEYS.items():
        (folder / name).mkdir(parents=True)
        ts = np.sort(rng.integers(0, seconds * 1_000_000, rows)) + START_US
        values = {column: rng.integers(0, keys[column], rows) for column in columns}
        table = pa.table({**values, "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")), "n": np.arange(rows)})
        for i in range(batches):
            path = folder / name / f"{i:04d}.parquet"
            pq.write_table(table.slice(i * rows // batches, (i + 1) * rows // batches - i * rows // batches), path)
            os.utime(path, (START_US // 10**6 + i, START_US // 10**6 + i))


def sources(spark: SparkSession, data: Path) -> dict[str, DataFrame]:
    schemas = {
        name: "".join(f"{c} BIGINT, " for c in columns) + "ts TIMESTAMP, n BIGINT" for name, columns in KEYS.items()
    }
    return {
        name: spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(data / name))
        for name, schema in schemas.items()
    }


def started(result: Any, out: Path) -> Any:
    return (
        result.writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def run_ours(spark: SparkSession, data: Path, out: Path) -> Any:
    join = StreamJoin(spark)
    for name, df in sources(spark, data).items():
        join = join.stream(name, df, eventTime="ts")
    join = join.where(WHERE).within(WINDOW).select(*(f"{name}.n AS {name}n" for name in KEYS))
    query, plan, options = pieces_of(join).build()
    text = explain_text(query, plan, options.slots)
    missing = [part for part in (*PLAN, f"{spark.sparkContext.defaultParallelism} slots,") if part not in text]
    assert not missing, f"{missing} intended, but the plan is\n{text}"
    assert not any(stage.on_one_slot for stage in plan.stages), "every stage must have a key"
    return started(join, out)


def run_native(spark: SparkSession, data: Path, out: Path) -> Any:
    named = {
        name: df.select(*(F.col(c).alias(f"{name}{c}") for c in (*KEYS[name], "ts", "n"))).withWatermark(
            f"{name}ts", "0 seconds"
        )
        for name, df in sources(spark, data).items()
    }
    first, *others = named
    joined, bound = named[first], [first]
    for name, equal in zip(others, ("ax = bx", "ax = cx", "cy = dy", "dz = ez"), strict=True):
        near = [f"{x}ts > {name}ts - INTERVAL {WINDOW} AND {x}ts < {name}ts + INTERVAL {WINDOW}" for x in bound]
        joined = joined.join(named[name], F.expr(" AND ".join([equal, *near])))
        joined = joined.withColumn(f"{name}ts", F.expr(f"{name}ts + INTERVAL 0 SECONDS"))
        bound.append(name)
    return started(joined.select(*(f"{name}n" for name in KEYS)), out)


def run_duckdb(data: Path, out: Path, threads: int) -> dict[str, Any]:
    near = " AND ".join(f"abs(epoch_us({x}.ts) - epoch_us({y}.ts)) < {WINDOW_US}" for x, y in combinations(KEYS, 2))
    tables = ", ".join(f"read_parquet('{data / name}/*.parquet') {name}" for name in KEYS)
    select = ", ".join(f"{name}.n AS {name}n" for name in KEYS)
    began = time.perf_counter()
    duckdb.connect(config={"threads": threads}).execute(
        f"COPY (SELECT {select} FROM {tables} WHERE {WHERE} AND {near}) TO '{out}' (FORMAT parquet)"
    )
    return {"whole_s": time.perf_counter() - began, **judged(out)}


def judged(rows: Path) -> dict[str, int]:
    """Count and order-independent checksum of results in Parquet, by one judge for all."""
    columns = ", ".join(f"{name}n" for name in KEYS)
    files = rows / "*.parquet" if rows.is_dir() else rows
    query = f"SELECT count(*), sum(hash({columns}) % 1000003) FROM read_parquet('{files}')"
    found = duckdb.connect().execute(query).fetchone()
    assert found is not None
    return {"results": int(found[0]), "checksum": int(found[1] or 0)}


def measure(spark: SparkSession, name: str, start: Callable[..., Any], data: Path, folder: Path) -> dict[str, Any]:
    out = folder / name
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    query = start(spark, data, out)
    query.awaitTermination()
    whole = time.perf_counter() - began
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"] > 0]
    if start is run_ours:
        for epoch in epochs_of(query):
            busy = [counts.of(ROWS) for counts in epoch.slot_counts]
            assert len(busy) == 3 * spark.sparkContext.defaultParallelism, "three stages on a slot per core intended"
            assert min(busy) > 0 or sum(epoch.rows.values()) == 0, f"a slot had no rows: {busy}"
    found = judged(out / "rows")
    steady = statistics.median(seconds[2:9])
    print(
        f"{name:>16}: {steady:7.3f} s per micro-batch (median of 3-9), {whole:6.1f} s in all,"
        f" {found['results']:,} results",
        flush=True,
    )
    return {"steady_s": steady, "whole_s": whole, "per_batch_s": seconds, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="rows per stream")
    parser.add_argument("--keys", type=int, nargs=3, default=[20_000, 40_000, 40_000], help="values of x, y and z")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=600, help="event time covered")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["hdfs"], help="state stores of Spark")
    parser.add_argument("--only", choices=("ours",), help="time one side, for profiling")
    args = parser.parse_args()
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        keys = dict(zip("xyz", args.keys, strict=True))
        generate(folder / "data", args.rows, keys, args.batches, args.seconds, args.seed)
        limit = run_duckdb(folder / "data", folder / "duckdb.parquet", args.cores)
        print(
            f"5 streams x {args.rows:,} rows, keys {keys}, window {WINDOW}; DuckDB finds {limit['results']:,} results"
        )
        spark = session("hdfs", args.cores)
        spark.sparkContext.setLogLevel("ERROR")
        tenth = {name: count // 10 for name, count in keys.items()}
        generate(folder / "warm", args.rows // 10, tenth, 3, args.seconds, args.seed)
        for start in (run_ours,) if args.only else (run_ours, run_native):
            measure(spark, "warm-up", start, folder / "warm", folder)
        measured["watersmeet"] = measure(spark, "watersmeet", run_ours, folder / "data", folder)
        for store in () if args.only else args.stores:
            spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
            measured[f"spark ({store})"] = measure(spark, f"spark ({store})", run_native, folder / "data", folder)
        spark.stop()
    for name, side in measured.items():
        assert (side["results"], side["checksum"]) == (limit["results"], limit["checksum"]), f"{name}: other results"
    if args.only:
        return
    ours = measured["watersmeet"]
    best = min((m["steady_s"], n) for n, m in measured.items() if n != "watersmeet")
    ratio, over_limit = best[0] / ours["steady_s"], ours["whole_s"] / limit["whole_s"]
    print(f"\nequal results; watersmeet is {ratio:.1f}x faster per micro-batch than {best[1]}")
    print(f"ten micro-batches take {over_limit:.1f}x the time of DuckDB's one-shot join")
    arguments = {key: value for key, value in vars(args).items() if key != "only"}
    figures = {"ratio": round(ratio, 2), "ours_over_duckdb": round(over_limit, 2)}
    path = save("chain_of_keys", {"workload": arguments, **figures, "measured": {**measured, "duckdb": limit}})
    print(f"written to {path.name}")


if __name__ == "__main__":
    main()
