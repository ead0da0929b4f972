"""Under which keys a node's work is distributed: what crosses an exchange, and what runs on one slot.

The rules are those by which a tree is cut into stages (`plan/stages.py`, `plan/hops.py`), applied to sets of streams:

| inputs of a node                       | it runs                                                                   |
|----------------------------------------|---------------------------------------------------------------------------|
| all share some key classes             | under these, in one stage, with every neighbour that has the same key     |
| some share classes, but not all (mixed)| hop by hop: every input walks from key to key, rows are exchanged between |
| none share any                         | under no key: on one slot                                                 |

Deviation: the engine lets every input of a mixed node take all probes that its present key allows before it goes on. A
walk here follows the probe order it is given, whatever keys that meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.optimizer.join_graph import JoinGraph, Streams
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.probe_orders import ProbeOrder

Key = int
"""Key classes as bits; 0 is no key."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """The key that all inputs share; a mixed node has none, but its hops do."""

    key: Key
    is_mixed: bool

    def fuses_with(self, other: NodeKey) -> bool:
        """Whether a node and its parent are one stage."""
        return self.key == other.key and not self.is_mixed and not other.is_mixed


@dataclass(frozen=True, slots=True)
class Hop:
    """Rows that hold `bound` probe the input `target` under a key."""

    bound: Streams
    target: int
    key: Key
    is_sent: bool
    """Whether the rows cross an exchange before this hop; at the start of a walk they always do."""


def node_key(graph: JoinGraph, inputs: Inputs) -> NodeKey:
    key, touched_twice = 0, False
    for number, each in enumerate(graph.classes):
        touched = sum(1 for streams in inputs if each.streams & streams)
        touched_twice |= touched > 1
        if touched == len(inputs):
            key |= 1 << number
    return NodeKey(key, is_mixed=touched_twice and not key)


def walk(graph: JoinGraph, inputs: Inputs, origin: int, order: ProbeOrder) -> list[Hop]:
    """The hops of an input's rows through a mixed node: they stay under a key as long as what was sent there shares it
    with what is probed next."""
    bound = sent = inputs[origin]
    key = 0
    hops: list[Hop] = []
    for j in order:
        stays = bool(key) and graph.shared_classes(sent, inputs[j]) == key
        if not stays:
            sent, key = bound, graph.shared_classes(bound, inputs[j])
        hops.append(Hop(bound, j, key, is_sent=not stays))
        bound |= inputs[j]
    return hops


def stage_count(walks: Sequence[Sequence[Hop]]) -> int:
    """Stages that serve all walks: the next one always has the key under which most of them can go on."""
    left = [[hop.key for hop in hops if hop.is_sent] for hops in walks]
    stages = 0
    while any(left):
        ahead = Counter(keys[0] for keys in left if keys)
        key = max(sorted(ahead), key=lambda each: (each > 0, ahead[each]))
        left = [keys[1:] if keys and keys[0] == key else keys for keys in left]
        stages += 1
    return stages
