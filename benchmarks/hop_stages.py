"""In how many stages a node over several keys is probed, and how many combinations are met on the way.

    python -m benchmarks.hop_stages

Each stage is an exchange in every micro-batch. Averages over random join graphs (`random_graphs.py`), one node over all
streams; a tree of n streams needs 2n - 3 stages at least.

| column    | stages of                                                                                            |
|-----------|------------------------------------------------------------------------------------------------------|
| `rule`    | the engine's orders where none are given (`plan/hops.py`): the input that has come least far goes on, |
|           | under the key that takes most others along                                                           |
| `ordered` | the best probe orders, with as few stages as are found for them (`plan/hop_schedule.py`)             |
| `greedy`  | the same orders, with always the key that most inputs are to go by next                              |
| `most`    | orders that follow from always taking the key under which most inputs can go on                      |

`met` is how many times the combinations of the best orders are met by those of the rule: the geometric mean, and that
of the worst tenth of the graphs.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np

from benchmarks.machine import save
from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.combinations_met import met_along
from watersmeet.optimizer.exact_ordering import exact_orders
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import Inputs
from watersmeet.optimizer.stage_keys import walks_along
from watersmeet.plan.probe_orders import ProbeOrder


def stages_by_most(graph: JoinGraph, inputs: Inputs) -> int:
    """How many stages there are if each has the key under which most inputs can go on."""
    everyone = range(len(inputs))
    bound = list(inputs)
    left = [[j for j in everyone if j != i] for i in everyone]
    stages = 0
    while any(left):
        keys = [{j: graph.shared_classes(bound[i], inputs[j]) for j in left[i]} for i in everyone]
        served = Counter(key for mine in keys for key in set(mine.values()) if key)
        key = max(sorted(served, reverse=True), key=lambda each: served[each]) if served else 0
        for i, mine in enumerate(keys):
            for j in [j for j in mine if mine[j] == key][: None if key else 1]:
                left[i].remove(j)
                bound[i] |= inputs[j]
        stages += 1
    return stages


def stages_by_greed(graph: JoinGraph, inputs: Inputs, orders: Sequence[ProbeOrder]) -> int:
    """How many stages there are along some orders if each has the key that most inputs are to go by next."""
    hops = walks_along(graph, inputs, orders).hops
    left = [[hop.key for hop in hops if hop.origins == each and hop.is_sent] for each in inputs]
    stages = 0
    while any(left):
        ahead = Counter(keys[0] for keys in left if keys)
        key = max(ahead, key=lambda each: ahead[each])
        left = [keys[1:] if keys and keys[0] == key else keys for keys in left]
        stages += 1
    return stages


def met(graph: JoinGraph, inputs: Inputs, orders: Sequence[ProbeOrder]) -> float:
    """Combinations that are met in a second."""
    rates = np.array([graph.arrivals(each) for each in inputs])
    return float(rates @ met_along(graph, inputs, orders).sum(axis=1))


def counted(rng: random.Random, graphs: int) -> list[dict[str, Any]]:
    found = []
    for shape in [each for each in SHAPES if each != "one class"]:  # under one key there are no hops
        for n in range(3, 9):
            totals: Counter[str] = Counter()
            times: list[float] = []
            for _ in range(graphs):
                graph = random_graph(n, shape, rng)
                inputs = tuple(1 << i for i in range(n))
                best, rule = exact_orders(graph, inputs, cartesian=False), hop_walks(graph, inputs)
                totals["rule"] += rule.stages
                totals["ordered"] += walks_along(graph, inputs, best).stages
                totals["greedy"] += stages_by_greed(graph, inputs, best)
                totals["most"] += stages_by_most(graph, inputs)
                times.append(met(graph, inputs, rule.orders) / met(graph, inputs, best))
            worst = sorted(times)[-max(1, graphs // 10) :]
            found.append(
                {"graphs": shape, "streams": n}
                | {rule: total / graphs for rule, total in totals.items()}
                | {"met": geometric_mean(times), "met_worst_tenth": geometric_mean(worst)}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", type=int, default=50, help="of each shape and size")
    args = parser.parse_args()
    found = counted(random.Random(args.seed), args.graphs)
    columns = ("rule", "ordered", "greedy", "most", "met", "met_worst_tenth")
    print(f"{'graphs':>10}  streams  {'  '.join(f'{each:>7}' for each in columns)}")
    for row in found:
        figures = "  ".join(f"{row[each]:>{max(7, len(each))}.1f}" for each in columns)
        print(f"{row['graphs']:>10}  {row['streams']:>7}  {figures}")
    saved = save("hop_stages", {"workload": {"seed": args.seed, "graphs": args.graphs}, "stages": found})
    print(f"\nwritten to {saved.name}")


if __name__ == "__main__":
    main()
