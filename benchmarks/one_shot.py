"""Ours against one-shot batch joins of the same data by DuckDB and Polars: the limit, without state, recovery or
latency.

The workload of `benchmarks/native_spark.py`. The batch engines see all rows at once, on as many threads as we have
cores, and write one Parquet file. We take ten micro-batches, commit state durably after each, and write Parquet; our
time is from the start of the query to its end, with Spark and its workers warmed up by a run over a tenth of the
data.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from benchmarks.machine import save
from benchmarks.native_spark import STREAMS, generate, measure, run_ours, session

WINDOW_US = 60_000_000


def run_duckdb(data: Path, out: Path, threads: int) -> int:
    con = duckdb.connect(config={"threads": threads})
    near = " AND ".join(
        f"abs(epoch_us({x}.ts) - epoch_us({y}.ts)) < {WINDOW_US}" for x, y in (("a", "b"), ("a", "c"), ("b", "c"))
    )
    tables = ", ".join(f"read_parquet('{data / name}/*.parquet') {name}" for name in STREAMS)
    query = f"SELECT a.k AS k, a.v AS av, b.v AS bv, c.v AS cv FROM {tables} WHERE a.k = b.k AND b.k = c.k AND {near}"
    found = con.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet)").fetchone()
    assert found is not None
    return int(found[0])


def run_polars(data: Path, out: Path, threads: int) -> int:
    """Polars takes its number of threads from the environment, and uses all cores otherwise."""
    a, b, c = (
        pl.scan_parquet(data / name / "*.parquet").rename({"ts": f"{name}t", "v": f"{name}v"}) for name in STREAMS
    )

    def near(x: str, y: str) -> pl.Expr:
        return (pl.col(x) - pl.col(y)).abs() < pl.duration(microseconds=WINDOW_US)

    ab = a.join(b, on="k").filter(near("at", "bt"))
    abc = ab.join(c, on="k").filter(near("at", "ct") & near("bt", "ct"))
    frame = abc.select("k", "av", "bv", "cv").collect(engine="streaming")
    frame.write_parquet(out, compression="snappy")
    return frame.height


def timed(name: str, run: Callable[[], int], repeats: int) -> dict[str, Any]:
    seconds = []
    rows = 0
    for _ in range(repeats):
        began = time.perf_counter()
        rows = run()
        seconds.append(time.perf_counter() - began)
    print(f"{name:>16}: {min(seconds):6.2f} s in all, {rows:,} results", flush=True)
    return {"whole_s": min(seconds), "results": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_500_000, help="rows per stream")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3600, help="event time covered")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        generate(folder / "data", args.rows, args.keys, args.batches, args.seconds, args.seed)
        generate(folder / "warm", args.rows // 10, args.keys, 5, args.seconds, args.seed)
        spark = session("hdfs", args.cores)
        spark.sparkContext.setLogLevel("ERROR")
        measure(spark, "warm-up", run_ours, folder / "warm", folder)
        measured: dict[str, Any] = {"watersmeet": measure(spark, "watersmeet", run_ours, folder / "data", folder)}
        spark.stop()
        for rival, run in (("duckdb", run_duckdb), ("polars", run_polars)):
            out = folder / f"{rival}.parquet"
            measured[rival] = timed(rival, lambda run=run, out=out: run(folder / "data", out, args.cores), 3)
    ours = measured["watersmeet"]
    ratios = {}
    for rival in ("duckdb", "polars"):
        assert measured[rival]["results"] == ours["results"], f"{rival}: other results"
        ratios[rival] = round(ours["whole_s"] / measured[rival]["whole_s"], 2)
        print(f"ten micro-batches take {ratios[rival]}x the time of {rival}'s one-shot join")
    print(f"written to {save('one_shot', {'workload': vars(args), 'ours_over': ratios, 'measured': measured}).name}")


if __name__ == "__main__":
    main()
