"""A binary tree with little intermediate state: always join the two that make the smallest (O4; Zhu 2006, 6.1).

Starting from the streams, the two vertices whose join would take fewest bytes of state become one vertex, and so on
until one is left. The trees are linear or bushy as it comes. For a star the result is the smallest of all connected
trees, if all streams have the same window and rows of the same size: every join is with the centre, so the order by
bytes is the best one. For other graphs it is a good guess.

Cartesian edges (6.1.1) let it join what nothing links. The paper has them always. They make trees smaller (157 of 200
random stars with selectivities even in (0, 1)) or larger (37 of 200 chains), and do not find the smallest of all trees
(missed in 127 of those stars; `benchmarks/optimizer_quality.py`). So the caller can have both, and take the smaller.

Deviation: the weight of an edge is the bytes that the state would take, for as long as the engine keeps its rows. The
paper's is rate_X rate_Y s_XY. Both order edges the same way if all windows and all rows are alike; otherwise the tree
with least bytes may have more rows.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import combinations

from watersmeet.optimizer.cost import CostModel
from watersmeet.optimizer.join_graph import Streams
from watersmeet.optimizer.shapes import States


def min_state(model: CostModel, *, cartesian: bool) -> States:
    """The states of a small binary tree; without `cartesian`, of joins that predicates link if there are any."""
    graph = model.graph
    vertices: set[Streams] = {1 << i for i in range(len(graph.streams))}

    def edge(one: Streams, other: Streams) -> tuple[bool, float, Streams, Streams]:
        apart = not cartesian and not graph.linked(one, other)
        return apart, model.kept_bytes(one | other), max(one, other), min(one, other)

    edges = [edge(one, other) for one, other in combinations(vertices, 2)]
    heapify(edges)
    states: set[Streams] = set()
    while len(vertices) > 2:
        _, _, one, other = heappop(edges)
        if one in vertices and other in vertices:
            vertices -= {one, other}
            for each in vertices:
                heappush(edges, edge(one | other, each))
            vertices.add(one | other)
            states.add(one | other)
    return frozenset(states)
