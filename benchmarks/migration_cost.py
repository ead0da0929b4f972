"""Migrations between random pairs of plans: predicted against measured cost, and what `auto` chooses (M3), in process.

    python -m benchmarks.migration_cost --pairs 30

Three to five streams over one key or a chain of two keys, random rates and numbers of keys, two random trees. Every
strategy migrates the same query, with a window of state and a memory budget below it, over the same micro-batches. Runs
take turns, so that a busy machine slows all of them. All figures are CPU time; equal results are asserted first.

| figure     | is                                                                               | aim                |
|------------|----------------------------------------------------------------------------------|--------------------|
| predicted  | by `predicted_s`, of the measured build                                          | 1.5 off at median  |
| cost       | of a strategy, more than the plan that does not change, in median micro-batches  |                    |
| wait       | the most that a micro-batch of a strategy takes longer than that of the old plan | at most 0.5        |
| overloaded | `auto` has the cheapest strategy                                                 | in 90 % of pairs   |
| steady     | `auto` has the cheapest of those whose wait is at most 0.5 of a micro-batch      | in 90 % of pairs   |
| memory     | the most bytes in memory in a migration, of the budget                           | 1                  |
| after      | a bucket later: state bytes, compared pairs, matches; more than the new plan's   | 10 %, 5 %, 5 %     |

A choice is *right* if it costs at most `MORE` micro-batches more than the best one: less cannot be told from noise. If
no strategy keeps the bound, the one with the shortest wait is the best.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.join_shapes import checksum
from benchmarks.machine import save
from watersmeet.adaptation.migration import AUTO, MOVING_STATE, STRATEGIES, chosen, unfit_because
from watersmeet.adaptation.migration_choice import predicted_s
from watersmeet.epoch.goals import Migrate
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.state_matching import rebuild
from watersmeet.plan.tree import Join, Leaf, Tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import MATCHES, MEMORY_BYTES, PAIRS, STATE_BYTES, Measure

SCHEMA = pa.schema([(name, pa.int64()) for name in ("k", "j", "n")] + [("ts", pa.timestamp("us", tz="UTC"))])
WINDOW, BEFORE, AFTER = 8, 16, 28
"""Micro-batches in a window, and so in eight buckets; before the migration; and, at most, after it has begun."""
START_US = 1_700_000_000_000_000
LATER = 2
"""Micro-batches after the last one of a migration: a bucket, and the one in which it ends."""
WAIT_MAX, MORE = 0.5, 0.5
BUDGET_PER_ROW = 24
OLD, NEW = "old", "new"
time.perf_counter_ns = time.process_time_ns
"""The engine's own times, from which it predicts, are CPU times here, because the machine may be busy."""


@dataclass(frozen=True)
class Pair:
    """A query, its data, and the plans before and after."""

    query: JoinQuery
    rows: Sequence[int]
    """A micro-batch, by stream."""
    keys: int
    """Different keys, of either column."""
    old: JoinPlan
    new: JoinPlan

    def batches(self, seed: int) -> Iterator[dict[str, pa.Table]]:
        rng = np.random.default_rng(seed)
        for second in range(BEFORE + AFTER):
            yield {
                stream.name: self._rows(rng, second, rows)
                for stream, rows in zip(self.query.streams, self.rows, strict=True)
            }

    def _rows(self, rng: np.random.Generator, second: int, rows: int) -> pa.Table:
        times = START_US + second * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rows))
        keys = [rng.integers(0, self.keys, rows) for _ in range(2)]
        columns = [*keys, rng.integers(0, 1 << 40, rows), pa.array(times).cast(SCHEMA[3].type)]
        return pa.table(columns, schema=SCHEMA)


def random_pair(seed: int, rows: int) -> Pair:
    """Two plans of which the second has a store that the first has not. `rows`: the state of a full window."""
    rng = np.random.default_rng(seed)
    names = "abcde"[: rng.integers(3, 6)]
    columns = ["k"] * (len(names) - 1)
    if rng.random() < 0.3:
        columns[rng.integers(1, len(columns)) :] = ["j"] * len(columns)
    columns = columns[: len(names) - 1]
    pairs = zip(names, names[1:], columns, strict=False)
    where = [" AND ".join(f"{left}.{column} = {right}.{column}" for left, right, column in pairs)]
    streams = [Stream(name, SCHEMA, "ts") for name in names]
    select = [f"{names[0]}.n", f"{names[-1]}.n"]
    query = build_query(streams, where=where, within=f"{WINDOW} seconds", windows={}, select=select)
    shares = rng.uniform(1, 3, len(names))
    batch = [int(rows / WINDOW * share / shares.sum()) for share in shares]
    keys = int(rows / len(names) * rng.uniform(0.8, 3))
    partitions = 256
    while True:
        old, new = (plan_join(query, (_random_tree(rng, len(names)),), partitions) for _ in range(2))
        if not rebuild(old, new, 1).is_free:
            return Pair(query, batch, keys, old, new)


def _random_tree(rng: np.random.Generator, streams: int) -> Join:
    """Neighbours are joined, so every node has a key; a node has two inputs, seldom three."""
    level: list[Tree] = [Leaf(stream) for stream in range(streams)]
    while len(level) > 1:
        width = 3 if len(level) > 2 and rng.random() < 0.15 else 2
        at = int(rng.integers(0, len(level) - width + 1))
        level[at : at + width] = [Join(tuple(level[at : at + width]))]
    found = level[0]
    assert isinstance(found, Join)
    return found


@dataclass
class Run:
    """A plan, or a strategy from one to the other, over all micro-batches."""

    engine: InProcessQuery
    cpu_s: list[float] = field(default_factory=list)
    under_way: list[int] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    totals: list[tuple[int, int, int]] = field(default_factory=list)
    """After each micro-batch: state bytes, and compared pairs and matches since the start."""
    results: list[tuple[int, int]] = field(default_factory=list)
    build_s: float = 0.0

    def step(self, batch: dict[str, pa.Table], goal: Migrate | None) -> None:
        began = time.process_time()
        is_under_way = self.engine.manifest.migration is not None or goal is not None
        if goal is not None:
            deque(self.engine.migrating(goal.plan, goal.strategy), maxlen=0)
            self.build_s = time.process_time() - began
        self.results.append(checksum(self.engine.run(batch)))
        self.cpu_s.append(time.process_time() - began)
        if is_under_way:
            self.under_way.append(len(self.cpu_s) - 1)
        counters = self.engine.manifest.counters
        self.memory_bytes.append(self._gauge(MEMORY_BYTES))
        self.totals.append((self._gauge(STATE_BYTES), counters.sum(PAIRS), counters.sum(MATCHES)))

    def _gauge(self, measure: Measure) -> int:
        return sum(counts.of(measure) for counts in self.engine.manifest.gauges.values())

    def per_epoch(self, number: int) -> tuple[int, int, int]:
        """State bytes, and the pairs and matches of one micro-batch."""
        (_, *before), (state, *now) = self.totals[number - 1], self.totals[number]
        pairs, matches = (b - a for a, b in zip(before, now, strict=True))
        return state, pairs, matches


def measure(pair: Pair, seed: int, budget: int, folder: Path) -> dict[str, object]:
    """The figures of a pair."""
    fitting = [each for each in STRATEGIES[1:] if unfit_because(pair.old, pair.new, each, 1) is None]
    runs = {name: _run(pair, name, budget, folder / name) for name in (OLD, NEW, *fitting)}
    predicted, autos = 0.0, ("", "")
    for number, batch in enumerate(pair.batches(seed)):
        if number > BEFORE and all(len(run.cpu_s) > run.under_way[-1] + LATER for run in map(runs.get, fitting) if run):
            break
        if number == BEFORE:
            engine = runs[MOVING_STATE].engine
            predicted, autos = predicted_s(engine.plan, engine.manifest, pair.new), _choices(engine, pair.new)
        for name, run in runs.items():
            starts = number == BEFORE and name in fitting
            run.step(batch, Migrate(pair.new, name, "asked for") if starts else None)
    assert len({tuple(run.results) for run in runs.values()}) == 1, "strategies have different results"
    unit = statistics.median(runs[OLD].cpu_s[WINDOW:])
    costs = {name: _cost(runs[name], runs[NEW]) / unit for name in fitting}
    waits = {name: _wait(runs[name], runs[OLD]) / unit for name in fitting}
    return {
        "plans": [str(pair.old.trees[0]), str(pair.new.trees[0])],
        "predicted of measured": predicted / runs[MOVING_STATE].build_s,
        "batch": unit,
        "costs": costs,
        "waits": waits,
        "auto": autos,
        "memory": max(max(runs[name].memory_bytes) for name in fitting) / budget,
        "after": {name: found for name in fitting if (found := _after(runs[name], runs[NEW])) is not None},
    }


def _run(pair: Pair, name: str, budget: int, folder: Path) -> Run:
    tree = pair.new.trees[0] if name == NEW else pair.old.trees[0]
    engine = InProcessQuery(
        pair.query,
        folder / "checkpoint",
        memory=folder / "memory",
        memory_budget_bytes=budget,
        trees=[tree],
        keeps_log=False,
    )
    return Run(engine)


def _choices(engine: InProcessQuery, new: JoinPlan) -> tuple[str, str]:
    """What `auto` would choose, under overload and otherwise."""
    goal, pace = Migrate(new, AUTO, "asked for"), engine.coordinator.pace
    overloaded, steady = (
        chosen(engine.plan, engine.manifest, goal, pace.batch_s, is_overloaded=is_overloaded)[0]
        for is_overloaded in (True, False)
    )
    return overloaded, steady


def _cost(run: Run, new: Run) -> float:
    return sum(run.cpu_s[number] - new.cpu_s[number] for number in run.under_way)


def _wait(run: Run, old: Run) -> float:
    return max(run.cpu_s[number] - old.cpu_s[number] for number in run.under_way)


def _after(run: Run, new: Run) -> list[float] | None:
    """One bucket after the migration, of the plan that ran all along; None if that is beyond the end."""
    number = run.under_way[-1] + LATER
    if number >= len(run.cpu_s):
        return None
    return [mine / theirs for mine, theirs in zip(run.per_epoch(number), new.per_epoch(number), strict=True)]


def is_right(choice: str, costs: dict[str, float], waits: dict[str, float], wait_max: float) -> bool:
    """Whether no strategy that keeps the bound is cheaper by more than noise, and the choice keeps it."""
    allowed = {name: cost for name, cost in costs.items() if waits[name] <= wait_max}
    if not allowed:
        return waits[choice] <= min(waits.values()) + MORE
    return waits[choice] <= wait_max and costs[choice] <= min(allowed.values()) + MORE


def summary(found: Sequence[dict]) -> dict[str, float]:
    ratios = [each["predicted of measured"] for each in found]
    after = [ratios for each in found for ratios in each["after"].values()]
    overloaded = [is_right(each["auto"][0], each["costs"], each["waits"], float("inf")) for each in found]
    steady = [is_right(each["auto"][1], each["costs"], each["waits"], WAIT_MAX) for each in found]
    off = [max(ratio, 1 / ratio) for ratio in ratios]
    return {
        "pairs": len(found),
        "predicted of measured, median": statistics.median(ratios),
        "off by a factor of, median": statistics.median(off),
        "right under overload": sum(overloaded) / len(found),
        "right otherwise": sum(steady) / len(found),
        "memory of budget, most": max(each["memory"] for each in found),
        **{
            f"{what} more after, {of}": figure([each[i] - 1 for each in after])
            for i, what in enumerate(("state", "pairs", "matches"))
            for of, figure in (("median", statistics.median), ("most", max))
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first pair")
    given = parser.parse_args()
    found = []
    for seed in range(given.first, given.first + given.pairs):
        with tempfile.TemporaryDirectory() as folder:
            figures = measure(random_pair(seed, given.rows), seed, BUDGET_PER_ROW * given.rows, Path(folder))
        found.append(figures)
        print(seed, figures, flush=True)
    told = summary(found)
    for what, value in told.items():
        print(f"{what:32}{value:.3f}")
    name = f"migration_cost_from_{given.first}" if given.first else "migration_cost"
    save(name, {"rows": given.rows, "summary": told, "found": found})


if __name__ == "__main__":
    main()
