"""Figures 8.10 to 8.15 of the dissertation (O7; Zhu 2006, 8.2): the optimiser's strategies in 1,800 random settings.

    python -m benchmarks.figures.optimizer_settings [--jobs 2]

The claims: both polynomial strategies find a qualified plan about as often as the exhaustive one (8.10) in a small part
of its time (8.11, 8.12); and the first qualified plan that `mjoin-init` meets has less memory and more CPU than the one
of `bjtree-init`, the more so the more streams there are (8.13 to 8.15).

The paper's set-up: 3 to 20 streams, 100 settings each; rates from 1 to 100 a second; joins chosen at random;
selectivities even in (0, 1). Its exhaustive search ran out of memory at 8 streams.

| ours                                            | why                                                              |
|-------------------------------------------------|------------------------------------------------------------------|
| window 1 s; all prices 1                        | not given                                                        |
| joins: a random tree, and every other pair with | not given; so the graph is connected, and has about half as many |
| probability 1 / n                               | edges again                                                      |
| budgets: for each resource, of the mjoin and    | not given; the two plans are where the strategies start          |
| the min-state bjtree, between the lesser and    |                                                                  |
| 1.1 times the greater, even in the logarithm    |                                                                  |
| exhaustive up to 7 streams                      | 8 take a second and more for each setting                        |
| costs relative to the budgets                   | in numbers of rows they differ by 20 orders of magnitude         |

Strategies are those of `optimizer/strategies.py`: unlike the paper's, they look around where nothing qualifies. `alone`
leaves that out. 8.13 to 8.15 show the first qualified plan that each strategy meets, as the paper has it.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Any

from benchmarks.figures.plotting import Line, draw, draw_points
from benchmarks.machine import save
from benchmarks.random_graphs import tree
from watersmeet.optimizer.cost import PAPER_PRICES, CostModel, Plan
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.exhaustive import undominated_plans
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, bits
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.state_removal import remove_states
from watersmeet.optimizer.state_selection import select_states
from watersmeet.optimizer.strategies import bjtree_init, mjoin_init

STREAMS = range(3, 21)
EXHAUSTIVE_MAX = 7
MJOIN, BJTREE, EXHAUSTIVE = "mjoin-init", "bjtree-init", "exhaustive"
COLOURS = {MJOIN: "#b2182b", BJTREE: "#2166ac", EXHAUSTIVE: "#4d4d4d"}
SEARCHES: dict[str, Callable[[CostModel, Budget], list[Plan]]] = {
    MJOIN: mjoin_init,
    BJTREE: bjtree_init,
    EXHAUSTIVE: undominated_plans,
    f"{MJOIN} alone": lambda model, _: list(select_states(model)),
    f"{BJTREE} alone": lambda model, _: list(remove_states(model, min_state(model, cartesian=True))),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one strategy in one setting: CPU time taken, and what the first qualified plan, if any, needs."""

    streams: int
    strategy: str
    taken_ms: float
    found: tuple[float, float] | None
    """Memory and CPU, as shares of their budgets."""


def random_setting(n: int, rng: random.Random) -> tuple[JoinGraph, Budget]:
    streams = tuple(StreamFigures(f"s{i}", rng.uniform(1, 100), 1.0) for i in range(n))
    joins = tree(n, rng)
    joins += [pair for pair in (1 << i | 1 << j for i, j in combinations(range(n), 2)) if rng.random() < 1 / n]
    graph = JoinGraph(streams, tuple(Predicate(each, rng.uniform(0.001, 1)) for each in dict.fromkeys(joins)))
    model = model_of(graph)
    starts = [model.plan(frozenset()), model.plan(min_state(model, cartesian=True))]
    cpu, memory = (sorted(values) for values in zip(*((s.cpu_s, s.memory_bytes) for s in starts), strict=True))
    return graph, Budget(*(math.exp(rng.uniform(math.log(low), math.log(1.1 * high))) for low, high in (cpu, memory)))


def model_of(graph: JoinGraph) -> CostModel:
    """With nothing remembered of earlier runs."""
    bits.cache_clear()
    return CostModel(JoinGraph(graph.streams, graph.classes), PAPER_PRICES, keeping="paper")


def run(task: tuple[int, int, int]) -> list[Outcome]:
    """All settings of a number of streams."""
    n, count, seed = task
    rng = random.Random(1000 * seed + n)
    found = []
    for _ in range(count):
        graph, budget = random_setting(n, rng)
        for strategy, search in SEARCHES.items():
            if strategy != EXHAUSTIVE or n <= EXHAUSTIVE_MAX:
                model = model_of(graph)
                began = time.process_time()
                plans = search(model, budget)
                taken_ms = (time.process_time() - began) * 1000
                first = next((plan for plan in plans if budget.admits(plan)), None)
                costs = first and (first.memory_bytes / budget.memory_bytes, first.cpu_s / budget.cpu_s)
                found.append(Outcome(n, strategy, taken_ms, costs))
    return found


Outcomes = dict[tuple[str, int], list[Outcome]]


def qualified_percent(outcomes: Sequence[Outcome]) -> float:
    return 100 * sum(each.found is not None for each in outcomes) / len(outcomes)


def mean_ms(outcomes: Sequence[Outcome]) -> float:
    return fmean(each.taken_ms for each in outcomes)


def plot(outcomes: Outcomes) -> None:
    x = "streams"
    shares = [_line(outcomes, strategy, qualified_percent) for strategy in (MJOIN, BJTREE, EXHAUSTIVE)]
    shares += [_line(outcomes, f"{strategy} alone", qualified_percent, ":") for strategy in (MJOIN, BJTREE)]
    title = "Figure 8.10: settings in which a qualified plan is found"
    draw("o7_fig10_qualified", shares, title=title, x=x, y="percent of settings", x_from=3, y_from=70)
    times = [_line(outcomes, strategy, mean_ms) for strategy in (EXHAUSTIVE, BJTREE, MJOIN)]
    y = "mean CPU time (ms)"
    draw("o7_fig11_time", times, title="Figure 8.11: optimisation time", x=x, y=y, x_from=3, log_y=True)
    limit = (50.0, "50 ms")
    title = "Figure 8.12: optimisation time of the polynomial strategies"
    draw("o7_fig12_time_polynomial", times[1:], title=title, x=x, y=y, limit=limit, x_from=3)
    for number, n in ((13, 3), (14, 5), (15, 10)):
        points = {strategy: _costs(outcomes[strategy, n]) for strategy in (MJOIN, BJTREE)}
        draw_points(
            f"o7_fig{number}_{n}_streams",
            points,
            title=f"Figure 8.{number}: first qualified plans, {n} streams",
            x="share of the memory budget",
            y="share of the CPU budget",
            colours=[COLOURS[strategy] for strategy in points],
        )


def _line(outcomes: Outcomes, strategy: str, figure: Callable[[Sequence[Outcome]], float], style: str = "-") -> Line:
    streams = [n for n in STREAMS if outcomes[strategy, n]]
    colour = COLOURS[strategy.removesuffix(" alone")]
    return Line(strategy, streams, [figure(outcomes[strategy, n]) for n in streams], colour, style)


def _costs(outcomes: Sequence[Outcome]) -> list[tuple[float, float]]:
    return [each.found for each in outcomes if each.found is not None]


def claims(outcomes: Outcomes) -> list[dict[str, Any]]:
    """The shapes of the paper's figures, judged; nothing is asserted of them."""
    few = [n for n in STREAMS if outcomes[EXHAUSTIVE, n]]
    found = []
    for strategy in (MJOIN, BJTREE):
        least = min(qualified_percent(outcomes[strategy, n]) / qualified_percent(outcomes[EXHAUSTIVE, n]) for n in few)
        found.append(
            _claim(f"8.10: {strategy} qualifies at least 0.95 times as often as exhaustive", least, least >= 0.95)
        )
        slowest = mean_ms(outcomes[strategy, STREAMS[-1]])
        found.append(_claim(f"8.12: {strategy} takes under 50 ms for {STREAMS[-1]} streams", slowest, slowest < 50))
        gain = mean_ms(outcomes[EXHAUSTIVE, few[-1]]) / mean_ms(outcomes[strategy, few[-1]])
        found.append(_claim(f"8.11: {strategy} is at least 10 times faster at {few[-1]} streams", gain, gain >= 10))
    apart = max(abs(qualified_percent(outcomes[MJOIN, n]) - qualified_percent(outcomes[BJTREE, n])) for n in STREAMS)
    found.append(_claim("8.10: the two qualify equally often, within 5 points", apart, apart <= 5))
    for n in (5, 10):
        medians = {s: [median(values) for values in zip(*_costs(outcomes[s, n]), strict=True)] for s in (MJOIN, BJTREE)}
        memory, cpu = (medians[MJOIN][i] / medians[BJTREE][i] for i in (0, 1))
        found.append(
            _claim(f"8.13-15: mjoin-init has less memory at {n} streams (ratio of medians)", memory, memory < 1)
        )
        found.append(_claim(f"8.13-15: mjoin-init has more CPU at {n} streams (ratio of medians)", cpu, cpu > 1))
    return found


def _claim(text: str, value: float, confirmed: bool) -> dict[str, Any]:
    return {"claim": text, "value": round(value, 3), "confirmed": confirmed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=100, help="for each number of streams")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    tasks = [(n, args.settings, args.seed) for n in STREAMS]
    outcomes: Outcomes = defaultdict(list)
    with ProcessPoolExecutor(args.jobs) as pool:
        for found in pool.map(run, tasks):
            for each in found:
                outcomes[each.strategy, each.streams].append(each)
    plot(outcomes)
    judged = claims(outcomes)
    for one in judged:
        print(f"{one['claim']:<80}{one['value']:>10}  {'yes' if one['confirmed'] else 'NO'}")
    rows = [
        {
            "streams": n,
            "strategy": strategy,
            "qualified_percent": round(qualified_percent(some), 1),
            "mean_ms": round(mean_ms(some), 2),
        }
        for (strategy, n), some in outcomes.items()
        if some
    ]
    workload = {"settings": args.settings, "seed": args.seed}
    saved = save("optimizer_settings", {"workload": workload, "claims": judged, "runs": rows})
    print(f"written to {saved.name}")


if __name__ == "__main__":
    main()
