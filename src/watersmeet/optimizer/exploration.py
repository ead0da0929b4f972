"""Local search: plans in the neighbourhood of known ones, the most promising first (O6; Zhu 2006, 6.3).

Two trees are neighbours if one has one more state than the other, or if they differ in one state:

    (A B C D)  -  ((A B) C D)  -  (((A B) C) D)        a state is added or removed
    ((A B) C D)  -  (A (B C) D)                        a state is replaced by another of the same node

The plan with the best rating (`dominating.py`) is expanded first: its neighbours with one state more or fewer, and if
none of these is better, those with another state. Every plan is visited once. The search would end when all trees have
been seen, so the caller stops it at a good plan, or after some number of plans.

Ours: the dissertation leaves open how its exploration time is spent. With budgets between those of undominated plans,
its two strategies alone find a qualified plan in two thirds to four fifths of the cases where there is one. With a few
hundred of these plans they nearly always do (`benchmarks/optimizer_quality.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import combinations

from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.dominating import Budget, Preference, rating
from watersmeet.optimizer.join_graph import Streams
from watersmeet.optimizer.shapes import Nodes, States, nodes_in, parent_of, with_state, without_state


def explore(model: CostModel, known: Iterable[Plan], budget: Budget, preference: Preference = "cpu") -> Iterator[Plan]:
    """Plans that are not known yet, one at a time."""
    everyone = model.graph.everyone
    seen: set[States] = set()
    ahead: list[tuple[tuple[float, ...], bool, int, Nodes]] = []
    for plan in known:
        if plan.states not in seen:
            seen.add(plan.states)
            heapq.heappush(ahead, (rating(plan, budget, preference), False, len(seen), nodes_in(plan.states, everyone)))
    while ahead:
        rated, swaps, number, nodes = heapq.heappop(ahead)
        if not swaps:
            heapq.heappush(ahead, (rated, True, number, nodes))
        for found in _one_instead(model, nodes) if swaps else _one_more_or_fewer(model, nodes):
            states = frozenset(found) - {everyone}
            if states not in seen:
                seen.add(states)
                plan = model.plan_of(found)
                heapq.heappush(ahead, (rating(plan, budget, preference), False, len(seen), found))
                yield plan


def _one_more_or_fewer(model: CostModel, nodes: Nodes) -> Iterator[Nodes]:
    for node in nodes:
        yield from _with_a_pair(model, nodes, node)
    for state in nodes:
        if state != model.graph.everyone:
            yield without_state(nodes, state)


def _one_instead(model: CostModel, nodes: Nodes) -> Iterator[Nodes]:
    for state in nodes:
        if state != model.graph.everyone:
            yield from _with_a_pair(model, without_state(nodes, state), parent_of(nodes, state))


def _with_a_pair(model: CostModel, nodes: Nodes, node: Streams) -> Iterator[Nodes]:
    if len(nodes[node]) > 2:
        for one, other in combinations(nodes[node], 2):
            if model.allows(one | other):
                yield with_state(nodes, node, one | other)
