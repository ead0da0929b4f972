"""In how many stages a node over several keys is probed: the engine's rule beside the obvious one.

    python -m benchmarks.hop_stages

Each stage is an exchange in every micro-batch. `first` is the engine's rule (`plan/hops.py`): the input that has come
least far goes on, under the key that takes most others along. `most` always takes the key that serves most inputs.
Averages over random join graphs (`random_graphs.py`), one node over all streams; all pairs of inputs have to meet
either way, so the number of probes is the same. A tree of n streams needs 2n - 3 stages at least.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import Any

from benchmarks.machine import save
from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import Inputs


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


def counted(rng: random.Random, graphs: int) -> list[dict[str, Any]]:
    found = []
    for shape in SHAPES:
        for n in range(3, 9):
            totals: Counter[str] = Counter()
            for _ in range(graphs):
                graph = random_graph(n, shape, rng)
                inputs = tuple(1 << i for i in range(n))
                totals["first"] += hop_walks(graph, inputs).stages
                totals["most"] += stages_by_most(graph, inputs)
            found.append({"graphs": shape, "streams": n} | {rule: total / graphs for rule, total in totals.items()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", type=int, default=50, help="of each shape and size")
    args = parser.parse_args()
    found = counted(random.Random(args.seed), args.graphs)
    print(f"{'graphs':>10}  streams  first   most")
    for row in found:
        print(f"{row['graphs']:>10}  {row['streams']:>7}  {row['first']:5.1f}  {row['most']:5.1f}")
    saved = save("hop_stages", {"workload": {"seed": args.seed, "graphs": args.graphs}, "stages": found})
    print(f"\nwritten to {saved.name}")


if __name__ == "__main__":
    main()
