"""Probe orders for all inputs of a node at once: always the next input that makes fewest combinations.

Ours, as a rival of the orders by rank (`mjoin_ordering.py`): it sees all selectivities of a cyclic graph, where a
spanning tree forgets some. One step of all inputs is a few array operations.

Known limitation. Predicates over three or more inputs beside the keys are not looked at.
"""

from __future__ import annotations

import math

import numpy as np

from watersmeet.optimizer.combinations_met import Floats, log_selectivities, members, within
from watersmeet.optimizer.join_graph import LEAST, JoinGraph, Streams
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.probe_orders import ProbeOrder

APART = 1e6
"""More than the logarithm of anything: what is not linked yet comes after all that is."""


def greedy_orders(graph: JoinGraph, inputs: Inputs, *, cartesian: bool) -> tuple[ProbeOrder, ...]:
    """By input. Without `cartesian`, of those that a pair or class links to what is bound."""
    count, rows = len(inputs), np.arange(len(inputs))
    held = within(graph, inputs)
    pairs, linked = held @ graph.log_shares @ held.T, held @ _adjacent(graph) @ held.T > 0
    classes = (held @ members(graph, graph.wide_classes).T > 0).astype(np.float64)
    shares = (classes * log_selectivities(graph.wide_classes)).T
    live = np.array([math.log(max(_filtered(graph, each), LEAST)) for each in inputs])
    factors = np.tile(live if cartesian else live + APART, (count, 1))
    apart = np.full((count, count), not cartesian)
    unbound = np.ones((count, len(shares)))
    walks = np.empty((count, count), dtype=np.int64)
    walks[:, 0] = last = rows
    for place in range(count):
        if place:
            walks[:, place] = last = np.argmin(factors, axis=1)
        factors[rows, last] = np.inf
        factors += pairs[last]
        near = linked[last]
        if len(shares):
            fresh = classes[last] * unbound
            unbound -= fresh
            factors += fresh @ shares
            near = near | (fresh @ classes.T > 0)
        if not cartesian:
            reached = apart & near
            factors -= APART * reached
            apart &= ~reached
    return tuple(tuple(walk[1:]) for walk in walks.tolist())


def _adjacent(graph: JoinGraph) -> Floats:
    """By two streams: 1 where a predicate is over just these, whatever it lets pass."""
    found = np.zeros((len(graph.streams), len(graph.streams)))
    for _, i, j, _ in graph.pairs:
        found[i, j] = found[j, i] = 1.0
    return found


def _filtered(graph: JoinGraph, streams: Streams) -> float:
    """Live rows as they count in a join: predicates over a single stream apply from the first one on."""
    live = graph.live(streams)
    if streams.bit_count() == 1:
        for each in graph.wide_others:
            if each.streams == streams:
                live *= each.selectivity
    return live
