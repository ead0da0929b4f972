"""How good the optimiser's polynomial algorithms are, measured against all orders and all trees (O2-O6; chapters 5-7).

    python -m benchmarks.optimizer_quality

| section   | question                                                                 | measured against |
|-----------|--------------------------------------------------------------------------|------------------|
| orders    | are probe orders good on cyclic graphs, and with Cartesian products?     | all orders       |
| min_state | is the binary tree the smallest? with Cartesian edges, as in 6.1.1? and  | all binary trees |
|           | where it is divided from the top (`small`)?                              |                  |
| qualified | is a qualified plan found where there is one?                            | all hybrid trees |
| time      | how long does a strategy take for 20 streams?                            |                  |

`linked` is without Cartesian products, on both sides. `alone` is a strategy as the paper has it, gone on to its end.

Graphs are those of the dissertation's 8.2 (rates of 1 to 100, selectivities even in (0, 1)), and `wide` ones with
selectivities from 0.0001 to 1, even in their logarithm, whose joins may also make fewer rows; in seven shapes
(`random_graphs.py`). Budgets are drawn in three ways, each for CPU and for memory by itself:

| budgets     | drawn between                                                         |
|-------------|-----------------------------------------------------------------------|
| `all`       | the cheapest and the dearest of all plans, evenly                     |
| `all log`   | the same, evenly in the logarithm                                     |
| `close`     | the cheapest and the dearest undominated plan, evenly in the logarithm|

Graphs whose undominated plans all cost the same within a percent are left out: there is nothing to choose.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.machine import save
from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.combinations_met import met_along
from watersmeet.optimizer.cost import PAPER_PRICES, CostModel, NodeCost, Plan
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.exact_ordering import exact_orders
from watersmeet.optimizer.exhaustive import undominated_plans
from watersmeet.optimizer.join_graph import JoinGraph, bits
from watersmeet.optimizer.links import input_graph, is_tree, spanning_links
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.mjoin_ordering import order_probes, probing
from watersmeet.optimizer.rank_ordering import rank_orders
from watersmeet.optimizer.shapes import partitions
from watersmeet.optimizer.state_removal import remove_states
from watersmeet.optimizer.state_selection import select_states
from watersmeet.optimizer.state_splitting import small_tree
from watersmeet.optimizer.strategies import STRATEGIES, optimise

SAME = 1 + 1e-9
SPREAD_MIN = 1.01
IN_TIME_MS = 50.0
"""What we aim at for 20 streams."""
KINDS = [(shape, wide) for shape in SHAPES for wide in (True, False)]
PAPER_ALONE: dict[str, Callable[[CostModel], list[Plan]]] = {
    "mjoin-init": lambda model: list(select_states(model)),
    "bjtree-init": lambda model: list(remove_states(model, min_state(model, cartesian=False))),
}


def paper_model(graph: JoinGraph) -> CostModel:
    return CostModel(graph, PAPER_PRICES, keeping="paper")


def label(shape: str, wide: bool) -> str:
    return f"{shape}, wide" if wide else shape


def orders(rng: random.Random, graphs: int, n: int = 8) -> Iterator[dict[str, Any]]:
    """Combinations met over the fewest possible, for every input of every graph; and how often the orders by rank along
    a spanning tree with Cartesian edges are worse or better than without them."""
    inputs = tuple(1 << i for i in range(n))
    for shape, wide in KINDS:
        gap: list[float] = []
        linked_gap: list[float] = []
        changes: Counter[str] = Counter()
        for _ in range(graphs):
            graph = random_graph(n, shape, rng, wide=wide)
            node = input_graph(graph, inputs)
            best = np.array(probing(graph, inputs, exact_orders(graph, inputs)).met)
            linked_best = np.array(probing(graph, inputs, exact_orders(graph, inputs, cartesian=False)).met)
            gap += list(np.array(order_probes(graph, inputs, exact_inputs_max=2).met) / best)
            linked = order_probes(graph, inputs, cartesian=False, exact_inputs_max=2)
            linked_gap += list(np.array(linked.met) / linked_best)
            tree = node.links if is_tree(node) else spanning_links(node, cartesian=False)
            plain, trusting = (
                met_along(graph, inputs, rank_orders(node.live, links)).sum(axis=1)
                for links in (tree, spanning_links(node, cartesian=True))
            )
            changes["worse"] += int((trusting > plain * SAME).sum())
            changes["better"] += int((trusting * SAME < plain).sum())
        yield {
            "graphs": label(shape, wide),
            **gaps("", gap),
            **gaps("linked_", linked_gap),
            "worse_percent": percent(changes["worse"], len(gap)),
            "better_percent": percent(changes["better"], len(gap)),
        }


def min_states(rng: random.Random, graphs: int) -> Iterator[dict[str, Any]]:
    """Bytes of intermediate state over the fewest of all binary trees, without and with Cartesian edges, and for the
    better of both; without them where the tree may be divided from the top (`small`); and how often the tree with them
    is larger or smaller. One window, 3 to 8 streams."""
    for shape, wide in KINDS:
        ratios: dict[str, list[float]] = defaultdict(list)
        changes: Counter[str] = Counter()
        for _ in range(graphs):
            model = paper_model(random_graph(rng.randint(3, 8), shape, rng, windows=(1.0,), wide=wide))
            without, with_edges = (
                sum(model.kept_bytes(state) for state in min_state(model, cartesian=cartesian))
                for cartesian in (False, True)
            )
            least, linked_least = (least_state(model, cartesian=cartesian) for cartesian in (True, False))
            ratios["linked"].append(without / linked_least)
            small = small_tree(model, cartesian=False)
            ratios["small"].append(sum(map(model.kept_bytes, small)) / linked_least)
            ratios["cartesian"].append(with_edges / least)
            ratios["better"].append(min(without, with_edges) / least)
            changes["larger"] += with_edges > without * SAME
            changes["smaller"] += with_edges * SAME < without
        yield {
            "graphs": label(shape, wide),
            **gaps("linked_", ratios["linked"]),
            **gaps("small_", ratios["small"]),
            **gaps("cartesian_", ratios["cartesian"]),
            "larger_percent": percent(changes["larger"], graphs),
            "smaller_percent": percent(changes["smaller"], graphs),
            **gaps("better_", ratios["better"]),
        }


def least_state(model: CostModel, *, cartesian: bool) -> float:
    """The fewest bytes of intermediate state of all binary trees."""
    graph = model.graph
    least = {1 << i: 0.0 for i in range(len(graph.streams))}
    for streams in sorted(range(1, graph.everyone + 1), key=int.bit_count):
        if streams.bit_count() > 1 and (cartesian or graph.connected(streams)):
            below, some = math.inf, (streams - 1) & streams
            while some:
                if some in least and streams ^ some in least:
                    below = min(below, least[some] + least[streams ^ some])
                some = (some - 1) & streams
            least[streams] = below + (model.kept_bytes(streams) if streams != graph.everyone else 0.0)
    return least[graph.everyone]


def qualified(rng: random.Random, graphs: int, draws: int, keeping: str) -> Iterator[dict[str, Any]]:
    """Of the settings in which some tree is qualified, those in which a strategy finds one."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for shape, wide in KINDS:
        for _ in range(graphs):
            graph = random_graph(rng.randint(4, 7), shape, rng, wide=wide)
            model = paper_model(graph) if keeping == "paper" else CostModel(graph, slots=4, cartesian=False)
            best = undominated_plans(model)
            if spread(best) < SPREAD_MIN:
                continue
            alone = {name: search(model) for name, search in PAPER_ALONE.items()}
            for how, budget in drawn(model, best, rng, draws):
                if any(map(budget.admits, best)):
                    counts = found[label(shape, wide), how]
                    counts["settings"] += 1
                    for name, plans in alone.items():
                        counts[f"{name} alone"] += any(map(budget.admits, plans))
                        counts[name] += any(map(budget.admits, STRATEGIES[name](model, budget)))
    names = [name for each in PAPER_ALONE for name in (f"{each} alone", each)]
    for (graphs_label, how), counts in found.items():
        yield {
            "keeping": keeping,
            "graphs": graphs_label,
            "budgets": how,
            "settings": counts["settings"],
            **{name: percent(counts[name], counts["settings"]) for name in names},
        }


def drawn(model: CostModel, best: Sequence[Plan], rng: random.Random, draws: int) -> Iterator[tuple[str, Budget]]:
    cpu, memory = [plan.cpu_s for plan in best], [plan.memory_bytes for plan in best]
    dearest_cpu, dearest_memory = dearest(model, lambda node: node.cpu_s), dearest(model, lambda n: n.memory_bytes)
    for _ in range(draws):
        yield "all", Budget(rng.uniform(min(cpu), dearest_cpu), rng.uniform(min(memory), dearest_memory))
        yield "all log", Budget(log_even(rng, min(cpu), dearest_cpu), log_even(rng, min(memory), dearest_memory))
        yield "close", Budget(log_even(rng, min(cpu), max(cpu)), log_even(rng, min(memory), max(memory)))


def dearest(model: CostModel, cost: Callable[[NodeCost], float]) -> float:
    """Of all trees the most that a resource can cost (stages and exchanges between nodes aside)."""
    model = replace(model, exact_inputs_max=3)
    most = {1 << i: 0.0 for i in range(len(model.graph.streams))}
    for streams in sorted(range(1, model.graph.everyone + 1), key=int.bit_count):
        if streams.bit_count() > 1:
            most[streams] = max(
                cost(model.node(inputs)) + sum(most[each] for each in inputs) for inputs in partitions(streams)
            )
    return most[model.graph.everyone]


def times(rng: random.Random, graphs: int, n: int = 20, repeats: int = 5) -> Iterator[dict[str, Any]]:
    """CPU milliseconds, the least of some repeats (of all that is measured, so that they are far apart): without
    budgets, and with budgets that cannot be met; with the cost model of the paper and with that of the engine, as a
    query has it. And the share of all of these that are under IN_TIME_MS."""
    for keeping in ("paper", "engine"):
        drawn_graphs = {kind: [random_graph(n, kind[0], rng, wide=kind[1]) for _ in range(graphs)] for kind in KINDS}
        taken: dict[tuple[tuple[str, bool], str], list[float]] = {}
        for _ in range(repeats):
            for kind, some in drawn_graphs.items():
                for name in PAPER_ALONE:
                    for how, budget in (("", Budget()), (", no plan fits", Budget(1e-9, 1e-9))):
                        values = [timed(graph, keeping, budget, name) for graph in some]
                        least = taken.get((kind, name + how), values)
                        taken[kind, name + how] = list(map(min, least, values))
        for kind in KINDS:
            of_kind = {name: values for (each, name), values in taken.items() if each == kind}
            row: dict[str, Any] = {"keeping": keeping, "graphs": label(*kind)}
            for name, values in of_kind.items():
                row[f"{name}_ms"] = [round(statistics.median(values), 1), round(max(values), 1)]
            everything = [ms for values in of_kind.values() for ms in values]
            row["in_time_percent"] = percent(sum(ms < IN_TIME_MS for ms in everything), len(everything))
            yield row


def timed(graph: JoinGraph, keeping: str, budget: Budget, strategy: str) -> float:
    """With nothing remembered of earlier runs."""
    bits.cache_clear()
    graph = JoinGraph(graph.streams, graph.classes)
    model = paper_model(graph) if keeping == "paper" else CostModel(graph, slots=4, cartesian=False)
    began = time.process_time()
    optimise(model, budget, strategy)
    return (time.process_time() - began) * 1000


def log_even(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def spread(plans: Sequence[Plan]) -> float:
    cpu, memory = [plan.cpu_s for plan in plans], [plan.memory_bytes for plan in plans]
    return min(max(cpu) / min(cpu), max(memory) / min(memory))


def percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 1) if whole else math.nan


def gaps(name: str, ratios: Sequence[float]) -> dict[str, float]:
    """How often a ratio to the best is 1, its 95th percentile, and the largest."""
    return {
        f"{name}optimal_percent": percent(sum(ratio <= SAME for ratio in ratios), len(ratios)),
        f"{name}gap_p95": round(float(np.percentile(ratios, 95)), 3),
        f"{name}gap_max": round(float(max(ratios)), 2),
    }


def together(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Qualified percentages by keeping and budgets, over all graphs."""
    found = []
    names = [name for each in PAPER_ALONE for name in (f"{each} alone", each)]
    for keeping, how in dict.fromkeys((row["keeping"], row["budgets"]) for row in rows):
        some = [row for row in rows if (row["keeping"], row["budgets"]) == (keeping, how)]
        settings = sum(row["settings"] for row in some)
        shares = {name: sum(row[name] * row["settings"] for row in some) / settings for name in names}
        worst = {f"{each}, worst graphs": min(r[each] for r in some) for each in PAPER_ALONE}
        row = {"keeping": keeping, "budgets": how, "settings": settings}
        found.append(row | {name: round(share, 1) for name, share in shares.items()} | worst)
    return found


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{title}")
    columns = list(rows[0])
    widths = [max(len(column), *(len(str(row[column])) for row in rows)) for column in columns]
    for line in [columns, *([row[column] for column in columns] for row in rows)]:
        print("  ".join(f"{cell!s:>{width}}" for cell, width in zip(line, widths, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of graphs")
    args = parser.parse_args()
    rng = random.Random(args.seed)

    def scaled(number: int) -> int:
        return max(2, round(number * args.scale))

    found: dict[str, list[dict[str, Any]]] = {}
    found["orders"] = list(orders(rng, scaled(40)))
    print_table("probe orders of one node over 8 streams: over the fewest combinations", found["orders"])
    found["min_state"] = list(min_states(rng, scaled(200)))
    print_table("binary trees: over the fewest bytes of intermediate state", found["min_state"])
    by_graphs = [
        *qualified(rng, scaled(12), 5, "paper"),
        *qualified(rng, scaled(12), 5, "engine"),
    ]
    found["qualified"] = together(by_graphs)
    print_table("percent of settings in which a qualified plan is found, where there is one", found["qualified"])
    found["qualified_by_graphs"] = by_graphs
    found["time"] = list(times(rng, scaled(20)))
    print_table("CPU milliseconds for 20 streams: median and largest", found["time"])
    saved = save("optimizer_quality", {"workload": {"seed": args.seed, "scale": args.scale}, **found})
    print(f"\nwritten to {saved.name}")


if __name__ == "__main__":
    main()
