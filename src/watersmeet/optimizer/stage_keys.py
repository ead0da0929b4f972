"""The keys under which the work of a node is distributed: which rows are exchanged, and what runs on one slot.

The rules are those by which a tree is cut into stages (`plan/stages.py`, `plan/hops.py`), applied to sets of streams:

| inputs of a node                       | it runs                                                                   |
|----------------------------------------|---------------------------------------------------------------------------|
| all share some key classes             | under these, in one stage, with every neighbour that has the same key     |
| some share classes, but not all (mixed)| hop by hop: every input walks from key to key, rows are exchanged between |
| none share any                         | under no key: on one slot                                                 |

A walk follows its probe order, whatever keys that meets; the engine's own orders, where none are given, are in
`hop_orders.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from watersmeet.optimizer.join_graph import JoinGraph, Streams
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.hop_schedule import few_stages
from watersmeet.plan.probe_orders import ProbeOrder

Key = int
"""Key classes as bits; 0 is no key."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """The key that all inputs share. A mixed node has none; its hops have keys."""

    key: Key
    is_mixed: bool

    def fuses_with(self, other: NodeKey) -> bool:
        """Whether a node and its parent are one stage."""
        return self.key == other.key and not self.is_mixed and not other.is_mixed


class Hop(NamedTuple):
    """A probe in a mixed node, by rows that have bound the same streams, whichever inputs they started at."""

    origins: Streams
    """The inputs at which the rows started."""
    held: Streams
    """The streams that the rows have bound before the probe."""
    key: Key
    target: int
    """The number of the input that they probe."""
    is_sent: bool
    """Whether the rows are exchanged before the probe. If not, the previous hop was theirs, too."""
    is_new: bool
    """Whether this is the first hop of the rows."""


@dataclass(frozen=True, slots=True)
class Walks:
    """The hops of all inputs through a mixed node, the number of stages, and the probe orders."""

    hops: Sequence[Hop]
    """Those of one input in the order in which it takes them."""
    stages: int
    orders: tuple[ProbeOrder, ...]


def node_key(graph: JoinGraph, inputs: Inputs) -> NodeKey:
    touched = touched_twice = 0
    key = graph.classes_of(inputs[0])
    for streams in inputs:
        mine = graph.classes_of(streams)
        touched_twice |= touched & mine
        touched |= mine
        key &= mine
    return NodeKey(key, is_mixed=bool(touched_twice) and not key)


def walks_along(graph: JoinGraph, inputs: Inputs, orders: Sequence[ProbeOrder]) -> Walks:
    """The walks of all inputs along given orders."""
    walks = [_walk(graph, inputs, i, order) for i, order in enumerate(orders)]
    stages = few_stages([[hop.key for hop in walk if hop.is_sent] for walk in walks])
    return Walks([hop for walk in walks for hop in walk], len(stages), tuple(orders))


def _walk(graph: JoinGraph, inputs: Inputs, origin: int, order: ProbeOrder) -> list[Hop]:
    """The hops of one input. Rows stay under a key as long as the next probed input has it as well."""
    streams = held = inputs[origin]
    found: list[Hop] = []
    sent = key = 0
    for j in order:
        mine = graph.classes_of(inputs[j])
        stays = bool(key) and sent & mine == key
        if not stays:
            sent = graph.classes_of(held)
            key = sent & mine
        found.append(Hop(streams, held, key, j, is_sent=not stays, is_new=not found))
        held |= inputs[j]
    return found
