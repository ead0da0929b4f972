"""The optimiser's cost model against the engine: predicted and measured CPU and memory, and the plans that it picks.

Random queries (`calibration/queries.py`), each with the mjoin, the binary tree of min-state, the best hybrid by the
model, and a few other trees (`calibration/trees.py`), run by the real engine in process, on one slot, with equal
results (`calibration/measuring.py`). Four questions:

1. How near does the model come? Rank correlations and errors, for nodes of one key, of several, and hop by hop.
2. Which prices fit best (`calibration/fitting.py`)? Fitted on one half of the queries and judged on the other; then on
   all: these are the figures for `DEFAULT_PRICES` in `optimizer/cost.py`. The other questions are of the prices there.
3. Is the plan picked by statistics learned from the first micro-batches good, of so many seconds as LEARNED_S says? (A
   query on Spark learns from its first one, whatever that holds.) Its CPU is compared with that of the best of the
   three families, stretch by stretch; we aim at 1.1 at the median and at 1.3 at the 90th percentile.
4. With a budget between the least and the greatest memory of the families, is the picked plan's measured memory ever
   over it when one of the families is under it?

Predictions are by the figures that the data is made from, picks by those learned. Memory is the most that all stores
hold at any time after the windows have filled. In process, an exchange is a copy, so `exchange_s` and `stage_s` are
less than Spark's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.calibration.fitting import counts_of, fitted
from benchmarks.calibration.judging import (
    Point,
    accuracy,
    accuracy_by_group,
    over_best,
    predicted_by,
    spread,
    within_queries,
)
from benchmarks.calibration.learning import learned
from benchmarks.calibration.measuring import run_all
from benchmarks.calibration.queries import Workload, workloads
from benchmarks.calibration.trees import FAMILIES, Compared, picked, trees_to_compare
from benchmarks.figures.plotting import PLAN_COLOURS, Points, draw_predictions
from benchmarks.machine import save
from watersmeet.optimizer.assumptions import graph_of
from watersmeet.optimizer.cost import DEFAULT_PRICES, CostModel, Prices
from watersmeet.optimizer.dominating import MEMORY_MARGIN, Budget
from watersmeet.optimizer.shapes import States
from watersmeet.optimizer.strategies import optimise

LEARNED_S = (1, 3)
BUDGETS = 3
"""Per query."""
CPU_OVER_BEST = {"median": 1.1, "p90": 1.3}


@dataclass(frozen=True, slots=True)
class Budgeted:
    """A plan picked under a memory budget, and what it took."""

    query: str
    budget_bytes: int
    tree: str
    state_bytes: int
    least_family_bytes: int

    @property
    def is_over(self) -> bool:
        return self.state_bytes > self.budget_bytes


@dataclass(frozen=True, slots=True)
class Judged:
    """A query with all that was measured of it."""

    points: list[Point]
    picks: dict[int, Compared]
    """By seconds learned from, as the next."""
    budgeted: dict[int, list[Budgeted]]

    def over_best(self, learned_s: int) -> float:
        return over_best(self.points, self.picks[learned_s])


def measure(workload: Workload) -> Judged:
    """All trees of one query, the picked one among them, and picks under budgets between what the families took."""
    graph = workload.true_graph()
    trees = trees_to_compare(CostModel(graph), workload.seed)
    models = {seconds: learned_model(workload, seconds) for seconds in LEARNED_S}
    picks = {seconds: picked(optimise(model, Budget()).winner) for seconds, model in models.items()}
    trees += [pick for pick in dict.fromkeys(picks.values()) if pick not in trees]
    points = [
        Point(workload, tree, measured, predicted_by(DEFAULT_PRICES, graph, tree.states))
        for tree, measured in zip(trees, run_all(workload, trees), strict=True)
    ]
    known = {p.tree.states: p.measured.state_bytes_max for p in points}
    return Judged(points, picks, {s: budgeted(workload, model, points, known) for s, model in models.items()})


def learned_model(workload: Workload, seconds: int) -> CostModel:
    """As a query has it, but for the prices of Spark."""
    query, first = workload.query(), list(workload.batches(seconds))
    rows = {name: pa.concat_tables([batch[name] for batch in first]) for name in workload.names}
    return CostModel(graph_of(query, learned(query, rows)), cartesian=False)


def budgeted(workload: Workload, model: CostModel, points: Sequence[Point], known: dict[States, int]) -> list[Budgeted]:
    """Trees that are not known yet are run by themselves."""
    families = [p.measured.state_bytes_max for p in points if p.tree.label in FAMILIES]
    rng = np.random.default_rng([workload.seed, 3])
    found = []
    for budget in np.exp(rng.uniform(np.log(min(families)), np.log(max(families)), BUDGETS)):
        tree = picked(optimise(model, Budget(memory_bytes=float(budget), memory_margin=MEMORY_MARGIN)).winner)
        if tree.states not in known:
            (measured,) = run_all(workload, [tree])
            known[tree.states] = measured.state_bytes_max
        text = tree.text(workload.names)
        found.append(Budgeted(workload.name, int(budget), text, known[tree.states], min(families)))
    return found


def halves(judged: Sequence[Judged]) -> tuple[list[Point], list[Point]]:
    """Queries by turns of two, so that kinds, windows and numbers of streams are in both."""
    first = [p for number, each in enumerate(judged) if number // 2 % 2 == 0 for p in each.points]
    return first, [p for number, each in enumerate(judged) if number // 2 % 2 for p in each.points]


def fit(points: Sequence[Point]) -> Prices:
    counts = [counts_of(p.workload.true_graph(), [p.tree.states]) for p in points]
    return fitted(np.concatenate(counts), np.array([p.measured.cpu_s for p in points]))


def repriced(points: Sequence[Point], prices: Prices) -> list[Point]:
    return [
        Point(p.workload, p.tree, p.measured, predicted_by(prices, p.workload.true_graph(), p.tree.states))
        for p in points
    ]


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    points = [point for each in judged for point in each.points]
    first, second = halves(judged)
    half_fit = fit(first)
    unseen = repriced(second, half_fit)
    return {
        "queries": len(judged),
        "model": {"all": accuracy(points), "within_queries": within_queries(points), **accuracy_by_group(points)},
        "fitted_on_half": {
            "prices": asdict(half_fit),
            "on_the_other_half": {"all": accuracy(unseen), "within_queries": within_queries(unseen)},
        },
        "fitted_on_all": asdict(fit(points)),
        "picks_by_seconds_learned_from": {seconds: _picks(judged, seconds) for seconds in LEARNED_S},
        "file_bytes_over_state_bytes": spread([p.measured.file_bytes_max / p.measured.state_bytes_max for p in points]),
    }


def _picks(judged: Sequence[Judged], learned_s: int) -> dict[str, Any]:
    reached = spread([each.over_best(learned_s) for each in judged])
    budgets = [item for each in judged for item in each.budgeted[learned_s]]
    return {
        "cpu_over_best_family": {
            **reached,
            "reached": {name: reached[name] <= limit for name, limit in CPU_OVER_BEST.items()},
        },
        "memory_budgets": {"drawn": len(budgets), "over": [asdict(item) for item in budgets if item.is_over]},
    }


def told(each: Judged) -> dict[str, Any]:
    """A query for the file of results."""
    (workload, *_) = [point.workload for point in each.points]
    return {
        **asdict(workload),
        "results": each.points[0].measured.results,
        "picked": {seconds: pick.text(workload.names) for seconds, pick in each.picks.items()},
        "picked_over_best_family": {seconds: round(each.over_best(seconds), 3) for seconds in LEARNED_S},
        "trees": [
            {
                "label": p.tree.label,
                "tree": p.tree.text(workload.names),
                "group": p.group,
                "cpu_s": [round(value, 4) for value in p.measured.repeats_cpu_s],
                "predicted_cpu_s": round(p.predicted.cpu_s, 4),
                "state_bytes": p.measured.state_bytes_max,
                "predicted_bytes": round(p.predicted.memory_bytes),
                "counts": dict(p.measured.counts),
            }
            for p in each.points
        ],
        "budgets": {seconds: list(map(asdict, items)) for seconds, items in each.budgeted.items()},
    }


def show(each: Judged) -> None:
    workload = each.points[0].workload
    print(f"\n{workload.name} {workload.kind}, {sum(workload.rates):,} rows/s, windows {workload.windows_s}")
    print(f"  {'tree':<32}{'CPU ms/s':>10}{'predicted':>10}{'state KiB':>11}{'predicted':>11}")
    for p in each.points:
        seconds = [f"{seconds} s" for seconds, pick in each.picks.items() if pick == p.tree]
        mark = f" <- picked after {', '.join(seconds)}" if seconds else ""
        cpu = f"{p.measured.cpu_s * 1000:>10.1f}{p.predicted.cpu_s * 1000:>10.1f}"
        state = f"{p.measured.state_bytes_max / 1024:>11,.0f}{p.predicted.memory_bytes / 1024:>11,.0f}"
        print(f"  {p.tree.label + ' ' + p.tree.text(workload.names):<32}{cpu}{state}{mark}")
    for seconds, items in each.budgeted.items():
        ratio, over = each.over_best(seconds), sum(item.is_over for item in items)
        print(f"  after {seconds} s: picked / best family {ratio:.2f}; over budget {over} of {len(items)}", flush=True)


def draw(judged: Sequence[Judged]) -> None:
    points = [point for each in judged for point in each.points]
    draw_predictions(
        "cost_model",
        [
            Points(
                family,
                [p.measured.cpu_s * 1000 for p in points if p.family == family],
                [p.predicted.cpu_s * 1000 for p in points if p.family == family],
                PLAN_COLOURS[family],
            )
            for family in FAMILIES
        ],
        title=f"The cost model: {len(points)} trees of {len(judged)} random queries",
        x="measured CPU, ms per second of event time",
        y="predicted CPU, ms per second",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=36)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.process_time()
    judged = []
    for workload in workloads(args.queries, args.seed):
        judged.append(measure(workload))
        show(judged[-1])
    found = summary(judged)
    if args.seed == 1:
        draw(judged)
    spent = round(time.process_time() - began)
    path = save(
        "cost_model" if args.seed == 1 else f"cost_model_seed_{args.seed}",
        {"workload": vars(args), "cpu_seconds": spent, **found, "measured": [told(each) for each in judged]},
    )
    for name, figures in found.items():
        print(f"{name}: {figures}")
    print(f"{spent} s of CPU; written to {path.name}")


if __name__ == "__main__":
    main()
