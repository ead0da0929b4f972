"""The strategies of migrations side by side: the longest wait, the CPU time, and the prediction (M1-M3), in process.

    python -m benchmarks.migration_strategies --rows 5000000

Four streams on one key in a window, migrated from (((a b) c) d) to (a (b (c d))) when the window is full. All runs take
the same micro-batches, in turn, so that a busy machine slows all of them. A *wait* is the CPU time from one end of a
micro-batch to the next, with everything that the migration does between them; `longest, wall` is the same by the clock.

| figure      | is                                                                    | aim                           |
|-------------|-----------------------------------------------------------------------|-------------------------------|
| longest     | the longest wait while the migration is under way, of the median wait | backfill, just-in-time <= 1.5 |
|             | of the plan that does not change                                      | (no micro-batch over 2)       |
| unchanged   | the longest wait of that plan, in the same micro-batches              |                               |
| most more   | the most that a wait is longer than that plan's, in the same          |                               |
|             | micro-batch: merges of state are in both                              |                               |
| both plans  | the longest wait, of the sum of the medians of both plans             | parallel-track <= 1.2         |
| CPU         | more than the plan that does not change, in median micro-batches      |                               |
| predicted   | the build by `predicted_s`, of the measured one                       | moving-state within 30 %      |

`--rows` is the state of a full window, over all streams.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.join_shapes import checksum
from benchmarks.machine import save
from watersmeet.adaptation.migration import STRATEGIES
from watersmeet.adaptation.migration_choice import predicted_s
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

NAMES = ("a", "b", "c", "d")
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
OLD, NEW = "(((a b) c) d)", "(a (b (c d)))"
WINDOW, AFTER = 20, 30
"""Micro-batches in a window; and after the migration has begun."""
START_US = 1_700_000_000_000_000
time.perf_counter_ns = time.process_time_ns
"""The engine's own times, by which it paces chunks and predicts, are CPU times here: the machine may be busy."""
FIXED_OLD, FIXED_NEW = f"{OLD} all along", f"{NEW} all along"


def query() -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts") for name in NAMES]
    where = ["a.k = b.k AND b.k = c.k AND c.k = d.k"]
    return build_query(streams, where=where, within=f"{WINDOW} seconds", windows={}, select=["a.n", "d.n"])


def batches(rows: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """A second of each stream; a key has about one row of each stream in a window."""
    rng, each = np.random.default_rng(seed), rows // WINDOW // len(NAMES)
    for second in range(WINDOW + AFTER):
        times = START_US + second * 1_000_000 + np.sort(rng.integers(0, 1_000_000, each))
        yield {
            name: pa.table([*_numbers(rng, each), pa.array(times).cast(SCHEMA[2].type)], schema=SCHEMA)
            for name in NAMES
        }


def _numbers(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    return [rng.integers(0, rows * WINDOW, rows), rng.integers(0, 1 << 40, rows)]


@dataclass
class Run:
    """One strategy over all micro-batches."""

    engine: InProcessQuery
    waits_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    under_way: list[int] = field(default_factory=list)
    """The micro-batches that end while the migration is under way, and the first one after it."""
    predicted_s: float = 0.0
    build_s: float = 0.0
    results: list[tuple[int, int]] = field(default_factory=list)

    def step(self, number: int, batch: dict[str, pa.Table], strategy: str | None) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        was_under_way = self.engine.manifest.migration is not None
        if strategy is not None and number == WINDOW:
            was_under_way = True
            new = plan_join(self.engine.query, (parse_tree(NEW, NAMES),), self.engine.setup.partitions)
            self.predicted_s = predicted_s(self.engine.plan, self.engine.manifest, new)
            deque(self.engine.migrating(new, strategy), maxlen=0)
            self.build_s = time.process_time() - cpu
        self.results.append(checksum(self.engine.run(batch)))
        self.waits_s.append(time.perf_counter() - wall)
        self.cpu_s.append(time.process_time() - cpu)
        if was_under_way:
            self.under_way.append(number)


def measure(rows: int, seed: int, folder: Path) -> dict[str, dict[str, float]]:
    """The figures of each strategy."""
    names = [FIXED_OLD, FIXED_NEW, *STRATEGIES[1:]]
    runs = {
        name: Run(
            InProcessQuery(
                query(),
                folder / str(i) / "checkpoint",
                memory=folder / str(i) / "memory",
                trees=[parse_tree(NEW if name == FIXED_NEW else OLD, NAMES)],
                keeps_log=False,
            )
        )
        for i, name in enumerate(names)
    }
    for number, batch in enumerate(batches(rows, seed)):
        for name, run in runs.items():
            run.step(number, batch, name if name in STRATEGIES else None)
    assert len({tuple(run.results) for run in runs.values()}) == 1, "strategies have different results"
    before, after = (statistics.median(runs[name].cpu_s[WINDOW:]) for name in (FIXED_OLD, FIXED_NEW))
    wall = statistics.median(runs[FIXED_OLD].waits_s[WINDOW:])
    old, found = runs[FIXED_OLD].cpu_s, {}
    for name in STRATEGIES[1:]:
        run = runs[name]
        waits = [run.cpu_s[number] for number in run.under_way]
        cpu = sum(run.cpu_s[number] - runs[FIXED_NEW].cpu_s[number] for number in run.under_way)
        found[name] = {
            "longest": max(waits) / before,
            "unchanged": max(old[number] for number in run.under_way) / before,
            "most more": max(run.cpu_s[number] - old[number] for number in run.under_way) / before,
            "longest of both plans": max(waits) / (before + after),
            "longest, wall": max(run.waits_s[number] for number in run.under_way) / wall,
            "micro-batches": len(waits),
            "CPU, in micro-batches": cpu / statistics.median(runs[FIXED_NEW].cpu_s[WINDOW:]),
        }
        if name == "moving-state":
            found[name]["predicted of measured"] = run.predicted_s / run.build_s
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    told = []
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            figures = measure(given.rows, seed, Path(folder))
        told.append(figures)
        for name, found in figures.items():
            texts = (f"{what} {value:.2f}" for what, value in found.items())
            print(f"seed {seed}  {name:15}", "  ".join(texts), flush=True)
    save("migration_strategies", {"rows": given.rows, "seeds": told})


if __name__ == "__main__":
    main()
