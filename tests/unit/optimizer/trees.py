"""All join trees over some streams, and their costs, written down a second time: slow and obvious."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import prod

from watersmeet.optimizer.cost import Prices
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import States, states_of
from watersmeet.plan.tree import Join, Leaf, Tree, nodes_of, streams_of


def all_trees(streams: tuple[int, ...]) -> Iterator[Tree]:
    """Every hybrid tree, once: 1, 4, 26, 236 for 2, 3, 4, 5 streams."""
    if len(streams) == 1:
        yield Leaf(streams[0])
        return
    for parts in set_partitions(streams):
        if len(parts) > 1:
            for inputs in _choices([list(all_trees(part)) for part in parts]):
                yield Join(inputs)


def binary_trees(count: int) -> Iterator[States]:
    """Every tree all of whose nodes have two inputs, by its states: 1, 3, 15, 105 for 2, 3, 4, 5 streams."""
    for tree in all_trees(tuple(range(count))):
        if isinstance(tree, Join) and is_binary(tree):
            yield states_of(tree)


def is_binary(tree: Join) -> bool:
    return all(len(node.inputs) == 2 for node in nodes_of(tree))


def set_partitions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for parts in set_partitions(rest):
        yield [(first,), *parts]
        for i, part in enumerate(parts):
            yield [*parts[:i], (first, *part), *parts[i + 1 :]]


def _choices(options: list[list[Tree]]) -> Iterator[tuple[Tree, ...]]:
    if not options:
        yield ()
        return
    for one in options[0]:
        for others in _choices(options[1:]):
            yield (one, *others)


def paper_cost(graph: JoinGraph, prices: Prices, tree: Join) -> tuple[float, float]:
    """CPU and memory by chapter 4, the best probe orders by trying all."""
    cpu = memory = 0.0
    for node in nodes_of(tree):
        inputs = [streams_of(child) for child in node.inputs]
        for i, mine in enumerate(inputs):
            others = [inputs[j] for j in range(len(inputs)) if j != i]
            cpu += rows_per_second(graph, mine) * (prices.insert_s + prices.delete_s)
            cpu += min(_visited(graph, prices, mine, order) for order in permutations(others))
            memory += live(graph, mine) * sum(graph.streams[s].row_bytes for s in mine)
    return cpu, memory


def _visited(graph: JoinGraph, prices: Prices, mine: frozenset[int], order: tuple[frozenset[int], ...]) -> float:
    bound, cost = mine, 0.0
    for other in order:
        cost += rows_per_second(graph, bound, mine) * prices.probe_s
        bound |= other
        cost += rows_per_second(graph, bound, mine) * prices.join_s
    return cost


def rows_per_second(graph: JoinGraph, streams: frozenset[int], origin: frozenset[int] | None = None) -> float:
    """Each row of an origin meets what the other streams hold of their windows."""
    return sum(
        graph.streams[i].rate
        * prod(graph.streams[j].rate * graph.streams[j].window_s for j in streams - {i})
        * selectivity(graph, streams)
        for i in (streams if origin is None else origin)
    )


def live(graph: JoinGraph, streams: frozenset[int]) -> float:
    return prod(graph.streams[i].rate * graph.streams[i].window_s for i in streams) * selectivity(graph, streams)


def selectivity(graph: JoinGraph, streams: frozenset[int]) -> float:
    share = 1.0
    for each in graph.classes:
        members = [i for i in streams if each.streams >> i & 1]
        share *= each.selectivity ** max(len(members) - 1, 0)
    for other in graph.others:
        if all(i in streams for i in range(len(graph.streams)) if other.streams >> i & 1):
            share *= other.selectivity
    return share
