"""Cost per micro-batch while the state grows 100-fold, at constant batch size and constant matches per row.

Two streams without a window, so that nothing expires. Every batch brings new keys, and every row of a batch matches one
row of the same batch and one of the first hundredth of the run: the work per row is constant, and only the state grows.
With `--window`, a third of the run fits into the window: buckets close and expire, which must not show either.
The in-process runner is used, without a log in Spark's place, so that the figure is the engine's and not Spark's.
Aimed at: the median of the last decile of micro-batches is at most 1.3 times that of the first, and the 99th percentile
at most 3 times the median; where a run misses that, it says so.

A decile of a run is ten micro-batches of some ten milliseconds, so one run says little. A short query warms up first
(it imports, and touches memory for the first time), the run is repeated, each time from an empty state, and the figures
are the medians of those of the repetitions, which are printed and kept as well.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import save
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
BATCH_US = 1_000_000
ROWS, WARM_UP = 10_000, 20
GROWTH_MAX, SPREAD_MAX = 1.3, 3.0


def mixed(keys: list[pa.Array]) -> Any:
    """A hash that costs nothing beside the join, of all columns of a key."""
    found = np.zeros(len(keys[0]), dtype=np.uint64)
    for values in keys:
        found = (found + values.to_numpy().astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return found


def batch_of(number: int, rows: int, old: int, rng: np.random.Generator) -> dict[str, pa.Table]:
    fresh = np.arange(number * rows, (number + 1) * rows)
    known = rng.integers(0, old, rows // 10)
    right = np.concatenate([fresh[: rows - len(known)], known])
    times = number * BATCH_US + rng.integers(0, BATCH_US, rows)
    return {name: pa.table([keys, keys, times], schema=SCHEMA) for name, keys in (("a", fresh), ("b", right))}


def run(batches: int, rows: int, window: bool) -> list[float]:
    """The seconds that each micro-batch of one query took, from an empty state on."""
    query = build_query(
        [Stream(name, SCHEMA, "ts" if window else None) for name in "ab"],
        where=["a.k = b.k"],
        within=f"{batches // 3} seconds" if window else None,
        windows={},
        select=["a.v", "b.v"],
    )
    rng = np.random.default_rng(1)
    seconds: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name,
        tempfile.TemporaryDirectory(dir="/dev/shm") as m,
    ):
        engine = InProcessQuery(query, Path(name), memory=Path(m), hash_keys=mixed, keeps_log=False)
        assert len(engine.plan.stages) == 1, "one stage intended"
        for number in range(batches):
            batch = batch_of(number, rows, rows * max(1, batches // 100), rng)
            began = time.perf_counter()
            results = engine.run(batch)
            seconds.append(time.perf_counter() - began)
            assert results.num_rows >= rows - rows // 10, "matches per row are not constant"
    return seconds


def figures_of(seconds: list[float]) -> tuple[float, float]:
    """How the median grew from the first to the last decile, and the 99th percentile of the last over its median."""
    decile = len(seconds) // 10
    first, last = statistics.median(seconds[:decile]), statistics.median(seconds[-decile:])
    return last / first, float(np.percentile(seconds[-decile:], 99)) / last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows per stream and micro-batch")
    parser.add_argument("--window", action="store_true", help="rows expire after a third of the run")
    parser.add_argument("--repetitions", type=int, default=7)
    args = parser.parse_args()
    run(WARM_UP, args.rows, args.window)
    growths: list[float] = []
    spreads: list[float] = []
    for number in range(args.repetitions):
        seconds = run(args.batches, args.rows, args.window)
        growth, spread = figures_of(seconds)
        growths.append(round(growth, 2))
        spreads.append(round(spread, 2))
        told = f"last decile / first = {growth:.2f}, p99 / median = {spread:.2f}"
        print(f"repetition {number}: {statistics.median(seconds) * 1000:.1f} ms, {told}", flush=True)
    figures = {"growth_of_median": statistics.median(growths), "p99_over_median": statistics.median(spreads)}
    growth, spread = figures["growth_of_median"], figures["p99_over_median"]
    print(f"state x{args.batches}: last decile / first = {growth}, p99 / median = {spread}")
    if growth > GROWTH_MAX or spread > SPREAD_MAX:
        print(f"missed: at most {GROWTH_MAX} and {SPREAD_MAX} were aimed at")
    name = "state_growth_windowed" if args.window else "state_growth"
    if args.rows != ROWS:
        name += f"_{args.rows}_rows"
    each = {"growth_of_each": growths, "p99_of_each": spreads}
    print(f"written to {save(name, {'workload': vars(args), **figures, **each}).name}")


if __name__ == "__main__":
    main()
