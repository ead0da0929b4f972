"""State removal: from a tree with many intermediate states to one with few, one state at a time.

O4; Zhu 2006, 6.2. Without a state, the node that made it and the node that kept it become one, which computes it again
for every row that needs it. The state with the least *quality* is removed: CPU saved per byte kept. The quality is
negative where keeping a state costs more than it saves.

The trees are generated one by one, from the given tree to the single node over all streams. The caller may stop at any.
(The paper stops at the first that is qualified.)
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.join_graph import Streams
from watersmeet.optimizer.shapes import Nodes, States, nodes_in, without_state

LEAST_BYTES = 1e-300
"""Used in place of zero bytes in a quality."""


def remove_states(model: CostModel, start: States) -> Iterator[Plan]:
    """The given tree, then the trees after each removal."""
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
