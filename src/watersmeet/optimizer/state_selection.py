"""From one node over all streams to a tree with some intermediate states: keep what is made often and is small.

O3; Zhu 2006, 5.2. An *edge* is a pair of inputs X, Y of the topmost node. Its frequency is the number of probe orders
of that node in which X and Y stand next to each other, its weight the bytes that a state XY would take. The edge with
the largest ratio of frequency to weight is tried first: X and Y become inputs of a node of their own, all probe orders
are found anew, and if the tree then takes less CPU it is kept.

All new nodes are binary. So each of them is then merged with a node below it if that saves both memory and CPU (5.2,
operator merging).

The trees are generated one by one. The caller may stop at any.

Deviations from the paper:

- Frequency. The paper counts how often an edge of the join graph appears in the join sequences: A-B appears in
  A-C-B, since B is joined with A. Here that counts for C-B: a state saves work where its two parts are met one right
  after the other, whether a predicate links them or not.
- Weight. The paper's is rate_X rate_Y s_XY, which is proportional to rows. Here it is bytes, and for as long as the
  engine keeps them.
- If none of the first EDGES_TRIED / k edges of a node of k inputs helps, that is the end. The paper tries all; with 20
  streams there are 190, and finding orders anew is what takes time.
- The paper stops at the first tree that is qualified, or before the memory budget is exceeded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise

from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.join_graph import Streams
from watersmeet.optimizer.shapes import Inputs, Nodes, nodes_in, with_state, without_state

EDGES_TRIED = 80


def select_states(model: CostModel) -> Iterator[Plan]:
    """The single node, then the trees after each state that is added."""
    everyone = model.graph.everyone
    nodes: Nodes = nodes_in(frozenset(), everyone)
    plan: Plan | None = model.plan_of(nodes)
    while plan is not None:
        yield plan
        nodes, plan = _with_next_state(model, nodes, plan)


def _with_next_state(model: CostModel, nodes: Nodes, plan: Plan) -> tuple[Nodes, Plan | None]:
    for state in edges_by_worth(model, nodes):
        larger = with_state(nodes, model.graph.everyone, state)
        found = model.plan_of(larger)
        if found.cpu_s < plan.cpu_s:
            return _merged(model, larger, found, state)
    return nodes, None


def edge_frequencies(model: CostModel, inputs: Inputs) -> Counter[Streams]:
    """The number of probe orders that contain an edge, by the state that the edge would make."""
    frequency: Counter[Streams] = Counter()
    for i, order in enumerate(model.node(inputs).orders):
        for one, other in pairwise((i, *order)):
            frequency[inputs[one] | inputs[other]] += 1
    return frequency


def edges_by_worth(model: CostModel, nodes: Nodes) -> list[Streams]:
    """The states that edges of the topmost node would make, the most promising first."""
    inputs = nodes[model.graph.everyone]
    if len(inputs) < 3:
        return []
    frequency = edge_frequencies(model, inputs)
    states = [one | other for one, other in combinations(inputs, 2) if model.allows(one | other)]
    worth = {state: frequency[state] / max(model.kept_bytes(state), 1e-300) for state in states}
    return sorted(states, key=lambda state: (-worth[state], state))[: EDGES_TRIED // len(inputs)]


def _merged(model: CostModel, nodes: Nodes, plan: Plan, state: Streams) -> tuple[Nodes, Plan]:
    """The tree with the node of a state merged with nodes below it, as far as that saves memory and CPU."""
    for child in nodes[state]:
        if child in nodes:
            merged = without_state(nodes, child)
            found = model.plan_of(merged)
            if found.cpu_s < plan.cpu_s and found.memory_bytes < plan.memory_bytes:
                nodes, plan = merged, found
    return nodes, plan
