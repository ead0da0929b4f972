"""The time that a clean-up takes after a query has spilled in nearly every epoch, and what its state has grown to.

    python -m benchmarks.clean_up [--epochs 100 200 400 800]

Two streams without a window over a budget that a few batches fill, in process: nearly every epoch closes groups, so
there are about as many generations as epochs. Keys are drawn from a range that grows with the run: rows and results
are in proportion to the number of epochs, and so should be the clean-up. Files, extents and manifest are those just
before it. All results together are compared with the whole join, by number and checksum, before a time is told.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.machine import save
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.manifest_json import to_json

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PARTITIONS = 32
PER_KEY = 3
"""Rows of a stream that a key has in all."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one run has come to."""

    epochs: int
    rows: int
    results: int
    owed: int
    run_ms_median: float
    clean_up_s: float
    files: int
    extents: int
    manifest_bytes: int


def batches_of(epochs: int, rows: int) -> list[dict[str, pa.Table]]:
    rng = np.random.default_rng(5)
    keys = max(1, epochs * rows // PER_KEY)

    def table() -> pa.Table:
        return pa.table([rng.integers(0, keys, rows), rng.integers(0, 1000, rows)], schema=SCHEMA)

    return [{"a": table(), "b": table()} for _ in range(epochs)]


def whole_join(batches: list[dict[str, pa.Table]]) -> tuple[int, int]:
    """How many results the join of everything has, and the sum of a.v * b.v over them."""
    sides = []
    for name in "ab":
        everything = pa.concat_tables(batch[name] for batch in batches)
        keys, values = everything["k"].to_numpy(), everything["v"].to_numpy()
        size = 1 + max(int(batch[n]["k"].to_numpy().max()) for batch in batches for n in "ab")
        sums = np.bincount(keys, weights=values, minlength=size).astype(np.int64)
        sides.append((np.bincount(keys, minlength=size), sums))
    (count_a, sum_a), (count_b, sum_b) = sides
    return int(count_a @ count_b), int(sum_a @ sum_b)


def checksum(results: pa.Table) -> int:
    return pc.sum(pc.multiply(results.column(0), results.column(1))).as_py() or 0


def run(epochs: int, rows: int, budget: int) -> Found:
    batches = batches_of(epochs, rows)
    query = build_query(
        [Stream(name, SCHEMA, None) for name in "ab"],
        where=["a.k = b.k"],
        within=None,
        windows={},
        select=["a.v", "b.v"],
    )
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-bench-", dir="/dev/shm") as folder,
        tempfile.TemporaryDirectory(prefix="watersmeet-bench-", dir="/dev/shm") as memory,
    ):
        spill = SpillSettings(policy=policy_named("local-output"), budget_bytes=budget)
        setup = {"memory": Path(memory), "memory_budget_bytes": budget, "spill": spill, "partitions": PARTITIONS}
        engine = InProcessQuery(query, Path(folder), **setup)
        total = summed = 0
        seconds = []
        for batch in batches:
            began = time.perf_counter()
            found = engine.run(batch)
            seconds.append(time.perf_counter() - began)
            total, summed = total + found.num_rows, summed + checksum(found)
        manifest = engine.manifest
        began = time.perf_counter()
        owed = list(engine.clean_up())
        took = time.perf_counter() - began
    owed_rows = sum(found.num_rows for found in owed)
    assert owed_rows > total // 2, "most results are owed"
    assert (total + owed_rows, summed + sum(map(checksum, owed))) == whole_join(batches), "results differ"
    state = len(manifest.segments), sum(1 for _ in manifest.all_extents()), len(to_json(manifest))
    median_ms = round(1000 * statistics.median(seconds), 2)
    return Found(epochs, 2 * epochs * rows, total + owed_rows, owed_rows, median_ms, round(took, 3), *state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, nargs="+", default=[100, 200, 400, 800])
    parser.add_argument("--rows", type=int, default=500, help="per stream and micro-batch")
    parser.add_argument("--budget", type=int, default=40_000, help="bytes of memory")
    args = parser.parse_args()
    run(20, args.rows, args.budget)  # imports, and touches memory for the first time
    print("epochs     rows  results     owed  epoch ms  clean-up s  files  extents  manifest")
    found = []
    for epochs in args.epochs:
        one = run(epochs, args.rows, args.budget)
        found.append(asdict(one))
        print(
            f"{one.epochs:6d} {one.rows:8d} {one.results:8d} {one.owed:8d} {one.run_ms_median:9.1f}"
            f" {one.clean_up_s:11.2f} {one.files:6d} {one.extents:8d} {one.manifest_bytes:9d}",
            flush=True,
        )
    print(f"written to {save('clean_up', {'workload': vars(args), 'runs': found}).name}")


if __name__ == "__main__":
    main()
