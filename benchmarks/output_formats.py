"""What csv and json output cost beside Parquet, against what Spark alone takes to convert the same rows.

Results are Parquet files before anything else happens to them. For a Parquet sink these are its part files; for csv and
json Spark reads them and writes them again. The workload is that of `native_spark`: 3 streams, a window of 60 s, and
some 700,000 results per micro-batch by default.

    a   a micro-batch of the query with Parquet output
    b   the same with csv or json output
    c   what Spark takes for `spark.read.parquet(...).write` of the rows of a micro-batch, in the same session

The figure is (b - a) / c, and we aim at 1.3 at most: of CPU seconds of all processes per micro-batch, which other work
on the machine changes little, medians over the rounds; and of wall seconds, medians over the micro-batches of all
rounds but the first two of a run. Queries and conversions take turns, round by round, after a warm-up of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.machine import save
from benchmarks.native_spark import WINDOW, generate, session, sources
from benchmarks.process_tree import processes_below
from watersmeet import StreamJoin

FORMATS = ("parquet", "csv", "json")
COLUMNS = "k BIGINT, av DOUBLE, bv DOUBLE, cv DOUBLE"
SKIPPED = 2
"""Micro-batches at the start of a run, before windows are full."""


def run(spark: SparkSession, data: Path, out: Path, format: str) -> list[float]:
    """Seconds per micro-batch."""
    shutil.rmtree(out, ignore_errors=True)
    join = StreamJoin(spark)
    for name, df in sources(spark, data).items():
        join = join.stream(name, df, eventTime="ts")
    writer = (
        join.where("a.k = b.k AND b.k = c.k")
        .within(WINDOW)
        .select("a.k AS k", "a.v AS av", "b.v AS bv", "c.v AS cv")
        .writeStream.format(format)
    )
    writer = writer.option("path", str(out / "rows")).option("checkpointLocation", str(out / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p["numInputRows"] > 0]
    return [p["durationMs"]["triggerExecution"] / 1000 for p in progress]


def conversions(spark: SparkSession, out: Path, scratch: Path, format: str) -> list[float]:
    """Seconds to convert the rows of every micro-batch that a run with Parquet output has left."""
    seconds = []
    for files in _by_epoch(out):
        shutil.rmtree(scratch, ignore_errors=True)
        began = time.perf_counter()
        spark.read.schema(COLUMNS).parquet(*files).write.format(format).save(str(scratch))
        seconds.append(time.perf_counter() - began)
    return seconds


def _by_epoch(out: Path) -> list[list[str]]:
    log = out / "rows" / "_spark_metadata"
    found: dict[int, list[str]] = {}
    for file in sorted(log.iterdir(), key=lambda f: f.name):
        if file.name.isdigit():
            found[int(file.name)] = [json.loads(line)["path"] for line in file.read_text().splitlines()[1:]]
    return [files for _, files in sorted(found.items()) if files]


def cpu_seconds() -> float:
    """Of this process and of all below it: the JVM, and Python workers."""
    own = os.times()
    return own.user + own.system + sum(stat.cpu_s for stat in processes_below(os.getpid()).values())


def same_rows(spark: SparkSession, folder: Path) -> int:
    """How many rows there are, of which all formats must have the same."""
    sums = ["count(*) AS n", "sum(xxhash64(k, av, bv, cv) % 1000003) AS checksum"]
    found = {
        format: spark.read.schema(COLUMNS).format(format).load(str(folder / format / "rows")).selectExpr(*sums).first()
        for format in FORMATS
    }
    assert len(set(found.values())) == 1, f"other results: {found}"
    return int(found["parquet"].n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=900_000, help="rows per stream")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=2160, help="event time covered")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    spark = session("hdfs", args.cores)
    spark.sparkContext.setLogLevel("ERROR")
    wall: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        data = folder / "data"
        generate(data, args.rows, args.keys, args.batches, args.seconds, args.seed)

        def timed(side: str, work: Callable[[], list[float]], *, counts: bool) -> None:
            before = cpu_seconds()
            found = work()
            if counts:
                cpu[side].append((cpu_seconds() - before) / len(found))
                wall[side] += found[SKIPPED:]

        for number in range(args.rounds + 1):
            for format in FORMATS if number % 2 else FORMATS[::-1]:
                timed(format, partial(run, spark, data, folder / format, format), counts=number > 0)
            for format in FORMATS[1:]:
                convert = partial(conversions, spark, folder / "parquet", folder / "scratch", format)
                timed(f"convert to {format}", convert, counts=number > 0)
            print(f"round {number}{'' if number else ' (warm-up)'}", flush=True)
        rows = same_rows(spark, folder)
    spark.stop()
    figures: dict[str, Any] = {}
    for kind, seconds in (("CPU", cpu), ("wall", wall)):
        medians = {side: statistics.median(values) for side, values in seconds.items()}
        for format in FORMATS[1:]:
            a, b, c = medians["parquet"], medians[format], medians[f"convert to {format}"]
            figures[f"{format}, {kind}"] = round((b - a) / c, 2)
            print(
                f"{kind} s per micro-batch: {format} {b:.3f}, Parquet {a:.3f}, Spark's conversion {c:.3f}: "
                f"{figures[f'{format}, {kind}']}"
            )
    print(f"{rows:,} results in {args.batches} micro-batches, {args.rounds} rounds")
    save("output_formats", {"workload": vars(args), "figures": figures, "cpu_s": dict(cpu), "wall_s": dict(wall)})


if __name__ == "__main__":
    main()
