"""How many combinations rows meet along their probe orders, for all hops of a node at once.

A hop leads from a set of bound streams to another input. A set S has live(S) combinations, whatever the order in which
it was bound. So the hops of all inputs are counted together, by their sets alone. The computation uses logarithms over
arrays of (set, stream): a table of selectivities for pairs, and a column for each predicate over more streams. So a
node of 20 inputs takes a few array operations, not thousands of products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watersmeet.optimizer.join_graph import LEAST, JoinGraph, Predicate, Streams, bits
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.probe_orders import ProbeOrder

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Sets = Sequence[Streams] | Integers
LOG_MAX = 700.0
"""A bound for the number of combinations: more than this is simply too many."""


def met_along(graph: JoinGraph, inputs: Inputs, orders: Sequence[ProbeOrder]) -> Floats:
    """The combinations met, by order and position, for each second of the probing stream. There is one order for each
    input, or a multiple of that: several for each input."""
    _, held = _sets_along(inputs, orders)
    return _combinations(_log_live(graph, within(graph, held[:, 1:].ravel()))).reshape(len(orders), -1)


def tested_along(graph: JoinGraph, inputs: Inputs, orders: Sequence[ProbeOrder]) -> Floats:
    """The same, before the non-key predicates that the last input binds are applied."""
    parts, held = _sets_along(inputs, orders)
    _, tested = met_by_hops(graph, held[:, :-1].ravel(), parts[:, 1:].ravel())
    return tested.reshape(len(orders), -1)


def met_by_hops(graph: JoinGraph, held: Sets, targets: Sets) -> tuple[Floats, Floats]:
    """By hop, from a set of bound streams to another input: the combinations that probe, and the combinations that are
    met, before the non-key predicates that the hop binds are applied."""
    before, joined = within(graph, held), within(graph, targets)
    both = before + joined
    logs = _log_live(graph, both)
    if graph.others:
        logs -= ((before @ graph.log_other_shares) * joined).sum(axis=1)
        if graph.wide_others:
            of = members(graph, graph.wide_others).T
            bound = (both @ of == of.sum(axis=0)) & (before @ of > 0) & (joined @ of > 0)
            logs -= bound @ log_selectivities(graph.wide_others)
    return _combinations(_log_live(graph, before)), _combinations(logs)


def _sets_along(inputs: Inputs, orders: Sequence[ProbeOrder]) -> tuple[Integers, Integers]:
    """By order and position, starting with the probing input: the input there, and the set of all inputs up to it."""
    walks = np.array([(i % len(inputs), *order) for i, order in enumerate(orders)])
    parts = np.array(inputs)[walks]
    return parts, np.bitwise_or.accumulate(parts, axis=1)


def _combinations(logs: Floats) -> Floats:
    return np.exp(np.minimum(logs, LOG_MAX))


def _log_live(graph: JoinGraph, sets: Floats) -> Floats:
    """By set of streams: the logarithm of its live combinations."""
    logs: Floats = sets @ graph.log_volumes + ((sets @ graph.log_shares) * sets).sum(axis=1) / 2
    if graph.wide_classes:
        inside = sets @ members(graph, graph.wide_classes).T
        logs += np.maximum(inside - 1, 0) @ log_selectivities(graph.wide_classes)
    if graph.wide_others:
        of = members(graph, graph.wide_others).T
        is_joined = sets.sum(axis=1, keepdims=True) > 1
        logs += (is_joined & (sets @ of == of.sum(axis=0))) @ log_selectivities(graph.wide_others)
    return logs


def within(graph: JoinGraph, sets: Sets) -> Floats:
    """By set and stream: 1 where the set contains the stream."""
    return (np.array(sets)[:, None] >> np.arange(len(graph.streams)) & 1).astype(np.float64)


def members(graph: JoinGraph, predicates: Sequence[Predicate]) -> Floats:
    """By predicate and stream: 1 where it is over the stream."""
    found = np.zeros((len(predicates), len(graph.streams)))
    for number, each in enumerate(predicates):
        found[number, list(bits(each.streams))] = 1.0
    return found


def log_selectivities(predicates: Sequence[Predicate]) -> Floats:
    return np.log(np.maximum([each.selectivity for each in predicates], LEAST))
