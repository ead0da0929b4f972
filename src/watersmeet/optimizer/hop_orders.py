"""In which order the inputs of a mixed node probe each other: the engine's own rule, said of sets of streams.

A node over several keys is probed hop by hop, and its hops follow from its keys (`plan/hops.py`): each stage has the
key under which most inputs can go on, and each of these takes all the probes that this key allows. So there is nothing
to choose, and a cost by any other order would be of a plan that does not run.
"""

from __future__ import annotations

from collections import Counter

from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.probe_orders import ProbeOrder


def hop_orders(graph: JoinGraph, inputs: Inputs) -> tuple[ProbeOrder, ...]:
    """By input, the others in the order in which its rows meet them."""
    everyone = range(len(inputs))
    bound = list(inputs)
    left = [[j for j in everyone if j != i] for i in everyone]
    orders: list[list[int]] = [[] for _ in everyone]
    while any(left):
        keys = [{j: graph.shared_classes(bound[i], inputs[j]) for j in left[i]} for i in everyone]
        possible = Counter(key for mine in keys for key in set(mine.values()) if key)
        key = max(sorted(possible), key=lambda each: possible[each]) if possible else 0
        for i, mine in enumerate(keys):
            targets = [j for j in mine if mine[j] == key][: None if key else 1]
            for j in targets:
                left[i].remove(j)
                orders[i].append(j)
                bound[i] |= inputs[j]
    return tuple(map(tuple, orders))
