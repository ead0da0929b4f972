"""Under which keys a node's work is distributed: what crosses an exchange, and what runs on one slot.

The rules are those by which a tree is cut into stages (`plan/stages.py`, `plan/hops.py`), applied to sets of streams:

| inputs of a node                       | it runs                                                                   |
|----------------------------------------|---------------------------------------------------------------------------|
| all share some key classes             | under these, in one stage, with every neighbour that has the same key     |
| some share classes, but not all (mixed)| hop by hop: every input walks from key to key, rows are exchanged between |
| none share any                         | under no key: on one slot                                                 |

The engine lets every input of a mixed node take all probes that its present key allows before it goes on
(`hop_orders.py`). A walk by a given order follows it, whatever keys that meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.optimizer.join_graph import JoinGraph
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
class Walk:
    """The way of an input's rows through a mixed node, hop by hop: which input they probe, under which key, and whether
    they cross an exchange before it; at the start they always do."""

    targets: list[int]
    keys: list[Key]
    is_sent: list[bool]

    def add(self, key: Key, targets: Sequence[int]) -> None:
        """Probes under one key, one exchange before them."""
        self.targets.extend(targets)
        self.keys.extend([key] * len(targets))
        self.is_sent.append(True)
        self.is_sent.extend([False] * (len(targets) - 1))

    def followed_by(self, other: Walk, start: int) -> Walk:
        """This way, and another one from some probe on."""
        return Walk(
            self.targets + other.targets[start:], self.keys + other.keys[start:], self.is_sent + other.is_sent[start:]
        )


@dataclass(frozen=True, slots=True)
class Walks:
    """The ways of all inputs of a mixed node, and in how many stages they are walked."""

    of_input: tuple[Walk, ...]
    stages: int

    @property
    def orders(self) -> tuple[ProbeOrder, ...]:
        return tuple(tuple(each.targets) for each in self.of_input)


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
    """The ways of all inputs by given orders."""
    walks = tuple(_walk(graph, inputs, i, order) for i, order in enumerate(orders))
    return Walks(walks, _stage_count(walks))


def _walk(graph: JoinGraph, inputs: Inputs, origin: int, order: ProbeOrder) -> Walk:
    """Rows stay under a key as long as what was sent there shares it with what is probed next."""
    bound = sent = graph.classes_of(inputs[origin])
    found = Walk([], [], [])
    for j in order:
        mine = graph.classes_of(inputs[j])
        key = found.keys[-1] if found.keys else 0
        stays = bool(key) and sent & mine == key
        if not stays:
            sent, key = bound, bound & mine
        found.targets.append(j)
        found.keys.append(key)
        found.is_sent.append(not stays)
        bound |= mine
    return found


def _stage_count(walks: Sequence[Walk]) -> int:
    """Stages that serve all walks: the next one always has the key under which most of them can go on."""
    left = [[key for key, sent in zip(each.keys, each.is_sent, strict=True) if sent] for each in walks]
    stages = 0
    while any(left):
        ahead = Counter(keys[0] for keys in left if keys)
        key = max(sorted(ahead), key=lambda each: (each > 0, ahead[each]))
        left = [keys[1:] if keys and keys[0] == key else keys for keys in left]
        stages += 1
    return stages
