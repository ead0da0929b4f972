"""Ours against Spark's own stream-stream joins: the same 3-way windowed join of the same files, in one run.

Workload: 3 streams x 1.5M rows, 20,000 keys, one hour of event time, pairwise window of 60 s, ten micro-batches of one
file per stream; about 6.96M results. Both sides checkpoint durably and write Parquet through Spark's file sink. Our
window is strict, so Spark gets the same predicate (`<`). Spark refuses a third event-time stream unless the second
watermark column is hidden behind an expression. Spark is given its best: both state stores are timed, with one shuffle
partition per core, and the better one is the rival.

The figure is the ratio of the medians of seconds per micro-batch over micro-batches 3-9; counts and a checksum of the
results are asserted equal first. Every side is warmed up by a run over a tenth of the data: without it the JVM compiles
in the background through all of our run, which is over in a quarter of a minute, and through the first tenth of
Spark's (`--cold` does without).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.machine import save
from watersmeet import StreamJoin

STREAMS = ("a", "b", "c")
SCHEMA = "k BIGINT, ts TIMESTAMP, v DOUBLE"
START_US = 1_700_000_000_000_000
WINDOW = "60 seconds"
STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def generate(folder: Path, rows: int, keys: int, batches: int, seconds: int, seed: int) -> None:
    """One file per stream and micro-batch, in time order."""
    rng = np.random.default_rng(seed)
    for name in STREAMS:
        (folder / name).mkdir(parents=True)
        ts = np.sort(rng.integers(0, seconds * 1_000_000, rows)) + START_US
        table = pa.table(
            {
                "k": rng.integers(0, keys, rows),
                "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
                "v": rng.random(rows),
            }
        )
        for i in range(batches):
            part = table.slice(i * rows // batches, (i + 1) * rows // batches - i * rows // batches)
            path = folder / name / f"{i:04d}.parquet"
            pq.write_table(part, path)
            os.utime(path, (START_US // 10**6 + i, START_US // 10**6 + i))


def session(store: str, cores: int) -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("native_spark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "8g")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass", STORES[store])
        .getOrCreate()
    )


def sources(spark: SparkSession, data: Path) -> dict[str, DataFrame]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    return {name: reader.parquet(str(data / name)) for name in STREAMS}


def run_ours(spark: SparkSession, data: Path, out: Path) -> Any:
    join = StreamJoin(spark)
    for name, df in sources(spark, data).items():
        join = join.stream(name, df, eventTime="ts")
    return (
        join.where("a.k = b.k AND b.k = c.k")
        .within(WINDOW)
        .select("a.k AS k", "a.v AS av", "b.v AS bv", "c.v AS cv")
        .writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def run_native(spark: SparkSession, data: Path, out: Path) -> Any:
    named = {
        name: df.select(F.col("k").alias(f"{name}k"), F.col("ts").alias(f"{name}t"), F.col("v").alias(f"{name}v"))
        for name, df in sources(spark, data).items()
    }
    a, b, c = (named[name].withWatermark(f"{name}t", "0 seconds") for name in STREAMS)

    def near(x: str, y: str) -> str:
        return f"{x} > {y} - INTERVAL {WINDOW} AND {x} < {y} + INTERVAL {WINDOW}"

    ab = a.join(b, F.expr(f"ak = bk AND {near('at', 'bt')}")).withColumn("bt", F.expr("bt + INTERVAL 0 SECONDS"))
    abc = ab.join(c, F.expr(f"ak = ck AND {near('at', 'ct')} AND {near('bt', 'ct')}"))
    return (
        abc.select(F.col("ak").alias("k"), "av", "bv", "cv")
        .writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def measure(spark: SparkSession, name: str, start: Any, data: Path, folder: Path) -> dict[str, Any]:
    out = folder / name
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    query = start(spark, data, out)
    query.awaitTermination()
    whole = time.perf_counter() - began
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"] > 0]
    count, total = (
        spark.read.parquet(str(out / "rows"))
        .agg(F.count("*"), F.sum(F.xxhash64("k", "av", "bv", "cv") % 1000003))
        .first()
    )
    steady = statistics.median(seconds[2:9])
    print(
        f"{name:>16}: {steady:7.3f} s per micro-batch (median of 3-9), {whole:6.1f} s in all, {count:,} results",
        flush=True,
    )
    return {"steady_s": steady, "whole_s": whole, "per_batch_s": seconds, "results": count, "checksum": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_500_000, help="rows per stream")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3600, help="event time covered")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES), help="state stores of Spark")
    parser.add_argument("--cold", action="store_true", help="measure in a JVM that has not run the query before")
    parser.add_argument("--only", choices=("ours",), help="time one side, for profiling")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        generate(folder / "data", args.rows, args.keys, args.batches, args.seconds, args.seed)
        print(f"3 streams x {args.rows:,} rows, {args.keys:,} keys, window {WINDOW}, {args.batches} micro-batches")
        if not args.cold:
            generate(folder / "warm", args.rows // 10, args.keys, 5, args.seconds, args.seed)
        measured: dict[str, Any] = {}
        spark = session("hdfs", args.cores)
        spark.sparkContext.setLogLevel("ERROR")
        sides = [("watersmeet", run_ours, "hdfs"), *((f"spark ({s})", run_native, s) for s in args.stores)]
        for side, run, store in sides:
            spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
            if not args.cold:
                measure(spark, "warm-up", run, folder / "warm", folder)
            measured[side] = measure(spark, side, run, folder / "data", folder)
            if args.only:
                return
        spark.stop()
    ours = measured["watersmeet"]
    for name, rival in measured.items():
        assert (rival["results"], rival["checksum"]) == (ours["results"], ours["checksum"]), f"{name}: other results"
    best = min((m["steady_s"], n) for n, m in measured.items() if n != "watersmeet")
    ratio = best[0] / ours["steady_s"]
    print(f"\nequal results; watersmeet is {ratio:.1f}x faster per micro-batch than {best[1]}")
    arguments = {key: value for key, value in vars(args).items() if key != "only"}
    path = save(
        "native_spark", {"workload": arguments, "ratio": round(ratio, 2), "measured": json.loads(json.dumps(measured))}
    )
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
