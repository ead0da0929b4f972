"""From a tree with many intermediate states to one with few: give up the one that is cheapest to make anew, repeatedly.

O4; Zhu 2006, 6.2. Without a state, the node that made it and the node that kept it are one, which makes it anew for
every row that needs it. The state to go is the one with the least *quality*: CPU saved per byte kept. It may be
negative, where keeping a state costs more than it saves.

The trees come one by one, from the first to the single node over all streams, and whoever asked for them may stop at
any. (The paper stops at the first that is qualified.)
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.join_graph import Streams
from watersmeet.optimizer.shapes import Nodes, States, nodes_in, without_state

LEAST_BYTES = 1e-300
"""Stands for a state of no bytes in a quality."""


def remove_states(model: CostModel, start: States) -> Iterator[Plan]:
    """A tree, and what becomes of it as state after state is removed."""
    everyone = model.graph.everyone
    nodes: Nodes = nodes_in(start, everyone)
    plan = model.plan_of(nodes)
    yield plan
    while len(nodes) > 1:
        tried: list[tuple[float, Streams, Plan, Nodes]] = []
        for state in nodes:
            if state != everyone:
                smaller = without_state(nodes, state)
                found = model.plan_of(smaller)
                quality = (found.cpu_s - plan.cpu_s) / max(model.kept_bytes(state), LEAST_BYTES)
                tried.append((quality, state, found, smaller))
        _, _, plan, nodes = min(tried, key=lambda each: each[:2])
        yield plan
