"""All hybrid trees at once, by bottom-up dynamic programming (O5; Zhu 2006, chapter 7).

The paper grows a table of all plans over all sets of streams, and drops a plan early if both its costs exceed their
budgets. Here the table has, for every set S of streams, only the undominated plans over S. That is exact:

    The cost of a node depends on the streams of its inputs, not on how they were joined, and the cost of a tree is the
    sum over its nodes (`cost.py`). If the part of a tree that joins S is replaced by a part that dominates it, the
    whole tree costs no more than before. So for every tree there is one that costs no more and has undominated parts
    only. Where keys affect the cost, a node and its parent may share a stage, which depends on the key of the part's
    topmost node. Then plans are compared only with plans of the same topmost key, which look the same to the parent.

Early filtering is stricter than the paper's for the same reason: no tree costs less than a part of it, so a part beyond
*either* budget is useless. But if no plan qualifies, the least bad plan is wanted, and so all plans are kept.

There are Bell(n + 1) - 1 nodes for n streams: 876 for 6, 4,139 for 7, 21,146 for 8. Probe orders are those that meet
fewest combinations (`exact_ordering.py`); in a mixed node, the engine's own (`hop_orders.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from watersmeet.optimizer.cost import CostModel, NodeCost, Plan
from watersmeet.optimizer.dominating import Budget, dominating
from watersmeet.optimizer.join_graph import Streams
from watersmeet.optimizer.shapes import Inputs, States, partitions
from watersmeet.optimizer.stage_keys import NodeKey


@dataclass(frozen=True, slots=True)
class _Part:
    """A plan over some of the streams; a stream by itself has no node and costs nothing."""

    node: NodeCost | None
    states: States
    cpu_s: float
    memory_bytes: float


def undominated_plans(model: CostModel, budget: Budget | None = None) -> list[Plan]:
    """The undominated plans, by ascending memory; with a budget, only the qualified ones, if there are any.

    Takes exponential time: seconds from 8 streams on.
    """
    model = replace(model, exact_inputs_max=len(model.graph.streams))
    everyone = model.graph.everyone
    table: dict[Streams, list[_Part]] = {
        1 << i: [_Part(None, frozenset(), 0.0, 0.0)] for i in range(len(model.graph.streams))
    }
    for streams in sorted(range(1, everyone + 1), key=int.bit_count):
        if streams.bit_count() > 1 and model.allows(streams):
            parts = (part for inputs in partitions(streams) for part in _joined(model, inputs, table, budget))
            table[streams] = _undominated(parts)
    whole = [(part, part.node) for part in table[everyone]]
    plans = [
        Plan(part.states - {everyone}, part.cpu_s + model.joint_cpu_s(node, None), part.memory_bytes)
        for part, node in whole
        if node is not None
    ]
    return dominating(plan for plan in plans if budget is None or budget.admits(plan))


def _joined(
    model: CostModel, inputs: Inputs, table: dict[Streams, list[_Part]], budget: Budget | None
) -> Iterator[_Part]:
    """The plans whose topmost node has these inputs."""
    parts = [table.get(each) for each in inputs]
    if not all(parts):
        return
    node = model.node(inputs)
    for chosen in product(*(_seen_from(model, node, each) for each in parts if each)):
        cpu_s, memory = node.cpu_s, node.memory_bytes
        for part, joint_cpu_s in chosen:
            cpu_s += part.cpu_s + joint_cpu_s
            memory += part.memory_bytes
        if budget is None or (cpu_s <= budget.cpu_s and memory <= budget.memory_bytes):
            states = frozenset([node.streams]).union(*(part.states for part, _ in chosen))
            yield _Part(node, states, cpu_s, memory)


def _seen_from(model: CostModel, parent: NodeCost, parts: Sequence[_Part]) -> list[tuple[_Part, float]]:
    """The parts with their cost under this parent."""
    return [
        (part, 0.0 if part.node is None or not model.is_distributed else model.joint_cpu_s(part.node, parent))
        for part in parts
    ]


def _undominated(parts: Iterable[_Part]) -> list[_Part]:
    by_key: dict[NodeKey | None, list[_Part]] = {}
    for part in parts:
        by_key.setdefault(part.node.key if part.node else None, []).append(part)
    found: list[_Part] = []
    for same_key in by_key.values():
        least = float("inf")
        for part in sorted(same_key, key=lambda each: (each.memory_bytes, each.cpu_s)):
            if part.cpu_s < least:
                least = part.cpu_s
                found.append(part)
    return found
