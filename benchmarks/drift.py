"""The run-time optimiser against every fixed plan and a clairvoyant (M7; dissertation 16.4), in process.

A chain a.x = b.x AND b.y = c.y, one window for all streams. The selectivities of the two joins are swapped, as in
16.4, by swapping how many values the keys have:

| setting    | regimes                                | aim                                                 |
|------------|----------------------------------------|-----------------------------------------------------|
| drift      | at least four, of several windows each | <= 0.8 x the best fixed plan, <= 1.25 x clairvoyant |
| thrash     | shorter than the window                | <= 1.05 x the best fixed plan                       |
| stationary | one                                    | no migration in 200 epochs, overhead <= 2 %         |

*Fixed*: all trees without a Cartesian product. *Clairvoyant*: knows when regimes begin and migrates then, by moving
state, to the plan that was cheapest in that regime; in drift it costs at most 0.6 x the best fixed plan, else there is
nothing to win. *Ours* starts by the plan of the first regime, as a query does whose plan is chosen by its first
micro-batch, and knows nothing else. CPU seconds of the process, migrations, looks and sketches included, after the
first window. All runs of a seed take the same micro-batches in turn, so that a busy machine slows all of them; equal
results are asserted as count and checksum. The overhead of a stationary query is the median, over epochs, of the ratio
to the same plan without the optimiser.

Ours: rates of 2026 and hash joins, so selectivities are lower than the paper's (.02 and .3 of 100 rows a window).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.join_shapes import checksum
from benchmarks.machine import save
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.cost import DEFAULT_PRICES
from watersmeet.optimizer.dominating import Budget
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.planning.planner import Planner
from watersmeet.planning.reoptimizing import Reoptimizer
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("n", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
NAMES = ("a", "b", "c")
FIXED = ("((a b) c)", "(a (b c))", "(a b c)")
OURS, CLAIRVOYANT = "ours", "clairvoyant"
START_US = 1_700_000_000_000_000
WINDOW = 10
"""Seconds, and micro-batches."""
PARTITIONS = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """Rows a second of each stream, values of the key that matches often and of the other one, and the lengths of
    regimes in micro-batches."""

    rate: int
    few: int
    many: int
    regimes: tuple[int, ...]

    @property
    def epochs(self) -> int:
        return sum(self.regimes)

    def regime(self, epoch: int) -> int:
        """The number of the regime of an epoch."""
        return int(np.searchsorted(np.cumsum(self.regimes), epoch, side="right"))


SETTINGS = {
    "drift": Setting(3000, 800, 2_000_000, (60, 60, 60, 60)),
    "thrash": Setting(3000, 800, 2_000_000, (7, 5, 6, 4, 7, 6, 5, 7, 4, 6) * 2),
    "stationary": Setting(3000, 8000, 80_000, (210,)),
}


def query() -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in NAMES],
        where=["a.x = b.x", "b.y = c.y"],
        within=f"{WINDOW} seconds",
        windows={},
        select=[f"{name}.n AS {name}n" for name in NAMES],
    )


def batches(setting: Setting, seed: int) -> Iterator[dict[str, pa.Table]]:
    """One micro-batch a second; Poisson arrivals."""
    rng = np.random.default_rng(seed)
    for epoch in range(setting.epochs):
        swapped = setting.regime(epoch) % 2 == 1
        x, y = (setting.many, setting.few) if swapped else (setting.few, setting.many)
        batch = {}
        for name in NAMES:
            rows = int(rng.poisson(setting.rate))
            ts = np.sort(rng.integers(0, 1_000_000, rows)) + START_US + epoch * 1_000_000
            columns = [rng.integers(0, x, rows), rng.integers(0, y, rows), rng.integers(0, 1 << 40, rows), ts]
            batch[name] = pa.table([pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
        yield batch


@dataclass(slots=True)
class Runner:
    """A query under measurement."""

    name: str
    engine: InProcessQuery
    cpu_s: list[float] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
    migrations: int = 0

    def step(self, batch: Mapping[str, pa.Table], to: str | None) -> tuple[int, int]:
        began = time.process_time()
        if to is not None and plan_text(self.engine.plan) != to:
            for _ in self.engine.migrating(_plan(to)):
                pass
            self.migrations += 1
        before = plan_text(self.engine.plan)
        results = self.engine.run(batch)
        self.cpu_s.append(time.process_time() - began)
        self.plans.append(plan_text(self.engine.plan))
        self.migrations += before != self.plans[-1]
        return checksum(results)


def _plan(text: str) -> Any:
    return plan_join(query(), (parse_tree(text, list(NAMES)),), PARTITIONS)


def started(name: str, tree: str, folder: Path, *, adapts: bool = False) -> Runner:
    planner = Planner(query(), "auto", Assumptions({}), 1, PARTITIONS, Budget(), prices=DEFAULT_PRICES)
    engine = InProcessQuery(
        query(),
        folder / name.replace(" ", ""),
        partitions=PARTITIONS,
        trees=[parse_tree(tree, list(NAMES))],
        reoptimizer=Reoptimizer(planner) if adapts else None,
    )
    return Runner(name, engine)


def run_all(setting: Setting, seed: int, runners: list[Runner], script: Mapping[int, str]) -> None:
    """All runners take each batch in turn, each time in another order."""
    order = np.random.default_rng(seed)
    for epoch, batch in enumerate(batches(setting, seed)):
        found = set()
        for i in order.permutation(len(runners)):
            to = script.get(epoch) if runners[i].name == CLAIRVOYANT else None
            found.add(runners[i].step(batch, to))
        assert len(found) == 1, f"results differ in epoch {epoch}: {found}"


def totals(runners: list[Runner]) -> dict[str, float]:
    return {runner.name: sum(runner.cpu_s[WINDOW:]) for runner in runners}


def right_plans(setting: Setting, fixed: list[Runner]) -> list[str]:
    """By regime, the fixed plan that was cheapest in the second half of it."""
    edges = np.cumsum([0, *setting.regimes])
    return [
        min(fixed, key=lambda runner: sum(runner.cpu_s[(low + high) // 2 : high])).name for low, high in pairwise(edges)
    ]


def best_by_kind(setting: Setting, seed: int) -> tuple[str, str]:
    """The cheapest plan of either kind of regime, found by a short run of each."""
    found = []
    for swapped in (False, True):
        short = Setting(setting.rate, setting.few, setting.many, (0, 25) if swapped else (25,))
        with tempfile.TemporaryDirectory() as folder:
            fixed = [started(tree, tree, Path(folder)) for tree in FIXED]
            run_all(short, seed, fixed, {})
            found.append(right_plans(Setting(1, 1, 1, (25,)), fixed)[0])
    return found[0], found[1]


def measure(name: str, seed: int) -> dict[str, Any]:
    setting = SETTINGS[name]
    plans = best_by_kind(setting, seed)
    edges = np.cumsum([0, *setting.regimes])[:-1]
    script = {int(edge): plans[number % 2] for number, edge in enumerate(edges)}
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        runners = [started(OURS, plans[0], at, adapts=True)]
        if name == "stationary":
            runners.append(started(plans[0], plans[0], at))
        else:
            runners += [started(tree, tree, at) for tree in FIXED]
            runners.append(started(CLAIRVOYANT, plans[0], at))
        run_all(setting, seed, runners, script)
    spent = totals(runners)
    fixed = min(value for key, value in spent.items() if key not in (OURS, CLAIRVOYANT))
    ours = runners[0]
    found = {
        "seed": seed,
        "plans": plans,
        "cpu_s": {key: round(value, 3) for key, value in spent.items()},
        "migrations": ours.migrations,
        "ours_to_best_fixed": round(spent[OURS] / fixed, 3),
    }
    if name == "stationary":
        ratios = [a / b for a, b in zip(ours.cpu_s[WINDOW:], runners[1].cpu_s[WINDOW:], strict=True)]
        return {**found, "overhead": round(statistics.median(ratios) - 1, 4)}
    return {
        **found,
        "clairvoyant_to_best_fixed": round(spent[CLAIRVOYANT] / fixed, 3),
        "ours_to_clairvoyant": round(spent[OURS] / spent[CLAIRVOYANT], 3),
        "changes": [i for i in range(1, len(ours.plans)) if ours.plans[i] != ours.plans[i - 1]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(given.seeds):
        for name in given.settings:
            found.setdefault(name, []).append(measure(name, seed))
            print(name, found[name][-1], flush=True)
    print(save("drift", {"settings": found}))


if __name__ == "__main__":
    main()
