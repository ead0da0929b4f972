"""A join tree as the set of its intermediate states.

Every node but the topmost keeps its results in a store of its parent: an *intermediate state*, named by its streams.
Two states of a tree are disjoint, or one contains the other. So the set of states identifies the tree:

    (A B C D)       {}
    ((A B) C D)     {AB}
    (((A B) C) D)   {AB, ABC}

State selection adds a state, state removal removes one. Only the node above that state changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from watersmeet.optimizer.join_graph import Streams, as_streams, bits
from watersmeet.plan.tree import Join, Leaf, nodes_of, streams_of

States: TypeAlias = frozenset[Streams]
Inputs: TypeAlias = tuple[Streams, ...]
"""The inputs of a node as sets of streams, ordered by their lowest stream."""
Nodes: TypeAlias = Mapping[Streams, Inputs]
"""All nodes of a tree: the inputs of each, by the streams that it joins."""


def states_of(tree: Join) -> States:
    """The intermediate states of a tree."""
    everyone = as_streams(streams_of(tree))
    return frozenset(as_streams(streams_of(node)) for node in nodes_of(tree)) - {everyone}


def nodes_in(states: States, everyone: Streams) -> dict[Streams, Inputs]:
    """The nodes of a tree, children first, each with the largest states inside it and single streams."""
    found: dict[Streams, Inputs] = {}
    left = [1 << i for i in bits(everyone)]
    for node in sorted((*states, everyone), key=int.bit_count):
        found[node] = _in_order([each for each in left if each & node])
        left = [*(each for each in left if not each & node), node]
    return found


def parent_of(nodes: Nodes, state: Streams) -> Streams:
    """The node that keeps a state."""
    return min((node for node in nodes if node & state == state and node != state), key=int.bit_count)


def with_state(nodes: Nodes, node: Streams, state: Streams) -> Nodes:
    """The tree with one more state: some inputs of a node are joined first, and the node takes their results."""
    inside = tuple(each for each in nodes[node] if each & state)
    above = [each for each in nodes[node] if not each & state]
    return {**nodes, state: inside, node: _in_order([*above, state])}


def without_state(nodes: Nodes, state: Streams) -> Nodes:
    """The tree without a state: the nodes below and above it become one."""
    parent = parent_of(nodes, state)
    found = {**nodes, parent: _in_order([*(each for each in nodes[parent] if each != state), *nodes[state]])}
    del found[state]
    return found


def tree_of(states: States, everyone: Streams) -> Join:
    """The tree of these states, with inputs ordered by their lowest stream."""
    return tree_and_inputs(states, everyone)[0]


def tree_and_inputs(states: States, everyone: Streams) -> tuple[Join, list[Inputs]]:
    """The same, with the inputs of its nodes, children first, as `nodes_of` has them."""
    nodes = nodes_in(states, everyone)
    found: list[Inputs] = []

    def built(node: Streams) -> Join:
        below = [built(each) if each in nodes else Leaf(each.bit_length() - 1) for each in nodes[node]]
        found.append(nodes[node])
        return Join(tuple(below))

    return built(everyone), found


def partitions(streams: Streams) -> Iterator[Inputs]:
    """All partitions of some streams into two or more sets, each ordered by lowest stream."""
    for parts in _divisions(streams):
        if len(parts) > 1:
            yield parts


def _divisions(streams: Streams) -> Iterator[Inputs]:
    if not streams:
        yield ()
        return
    low = streams & -streams
    others = streams ^ low
    some = others
    while True:
        for rest in _divisions(others ^ some):
            yield (low | some, *rest)
        if not some:
            return
        some = (some - 1) & others


def _in_order(inputs: Iterable[Streams]) -> Inputs:
    return tuple(sorted(inputs, key=lambda streams: streams & -streams))
