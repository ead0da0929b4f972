"""Which trees of a query are compared: one of each family, and some others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.join_graph import as_streams
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.shapes import States, states_of, tree_of
from watersmeet.optimizer.strategies import Candidate
from watersmeet.plan.tree import Join, nodes_of, streams_of, tree_text

DEAREST_MAX = 5.0
"""The dearest tree that is measured costs so many times what the cheapest does, by the model: time is short."""
FAMILIES = ("mjoin", "bjtree", "hybrid")


@dataclass(frozen=True, slots=True)
class Compared:
    """A tree with the probe orders of its nodes, children first, and what it is there for."""

    states: States
    tree: Join
    orders: tuple[tuple[tuple[int, ...], ...], ...]
    label: str = field(compare=False)

    @property
    def orders_by_node(self) -> dict[Join, tuple[tuple[int, ...], ...]]:
        return dict(zip(nodes_of(self.tree), self.orders, strict=True))

    def text(self, names: list[str]) -> str:
        return tree_text(self.tree, names)


def family_of(states: States, streams: int) -> str:
    if not states:
        return "mjoin"
    return "bjtree" if len(states) == streams - 2 else "hybrid"


def compared(model: CostModel, label: str, states: States) -> Compared:
    tree = tree_of(states, model.graph.everyone)
    inputs = [tuple(as_streams(streams_of(child)) for child in node.inputs) for node in nodes_of(tree)]
    return Compared(states, tree, tuple(model.node(mine).orders for mine in inputs), label)


def picked(winner: Candidate) -> Compared:
    """What the optimiser has chosen."""
    return Compared(states_of(winner.tree), winner.tree, winner.orders, "picked")


def trees_to_compare(model: CostModel, seed: int) -> list[Compared]:
    """The mjoin, the binary tree of min-state, the cheapest hybrid that is neither (with four streams or more); the
    dearest there is time for, and trees drawn at random."""
    streams = len(model.graph.streams)
    chosen: dict[States, str] = {frozenset(): "mjoin", min_state(model, cartesian=False): "bjtree"}
    plans = sorted((model.plan(states) for states in connected_trees(model)), key=lambda plan: plan.cpu_s)
    hybrids = [plan for plan in plans if family_of(plan.states, streams) == "hybrid"]
    if hybrids:
        chosen[hybrids[0].states] = "hybrid"
    affordable = [plan for plan in plans if plan.cpu_s <= DEAREST_MAX * plans[0].cpu_s]
    _add(chosen, "dearest", list(reversed(affordable)))
    rng = np.random.default_rng([seed, 2])
    _add(chosen, "random", [affordable[i] for i in rng.permutation(len(affordable))])
    return [compared(model, label, states) for states, label in chosen.items()]


def _add(chosen: dict[States, str], label: str, plans: list[Plan]) -> None:
    """The first of some plans that is not chosen yet."""
    for plan in plans:
        if plan.states not in chosen:
            chosen[plan.states] = label
            return


def connected_trees(model: CostModel) -> list[States]:
    """All trees without Cartesian products between nodes, by their states."""
    return list(_trees(model, model.graph.everyone))


def _trees(model: CostModel, streams: int) -> Iterator[States]:
    """The states inside a node over some streams, in all ways."""
    if streams.bit_count() == 1:
        yield frozenset()
        return
    for parts in _divisions(streams):
        if len(parts) > 1 and all(model.graph.connected(part) for part in parts):
            inner = frozenset(part for part in parts if part.bit_count() > 1)
            yield from (inner | below for below in _combined(model, parts))


def _combined(model: CostModel, parts: tuple[int, ...]) -> Iterator[States]:
    if not parts:
        yield frozenset()
        return
    for one in _trees(model, parts[0]):
        yield from (one | others for others in _combined(model, parts[1:]))


def _divisions(streams: int) -> Iterator[tuple[int, ...]]:
    if not streams:
        yield ()
        return
    low = streams & -streams
    rest = some = streams ^ low
    while True:
        for others in _divisions(rest ^ some):
            yield (low | some, *others)
        if not some:
            return
        some = (some - 1) & rest
