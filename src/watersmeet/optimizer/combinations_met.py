"""How many combinations the rows of every input meet on their way, for all inputs of a node at once.

Along an order Y1, Y2, ... from X these are live(X u Y1), live(X u Y1 u Y2), ..., and each further input multiplies
them by its live rows and by the selectivities that it adds. Computed with logarithms over arrays of
(input that probes, place in its order), with a table of selectivities for pairs and a column for each predicate over
more streams; so a node of 20 inputs takes a few array operations, not thousands of products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watersmeet.optimizer.join_graph import LEAST, JoinGraph, Predicate, Streams, bits
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.probe_orders import ProbeOrder

Floats = npt.NDArray[np.float64]
APART = 1e6
"""More than the logarithm of anything: what is not linked yet comes after all that is."""
LOG_MAX = 700.0
"""More than this many combinations are all the same: too many."""


class Meetings:
    """The inputs of a node, ready for such counts."""

    def __init__(self, graph: JoinGraph, inputs: Inputs) -> None:
        self._graph, self._count = graph, len(inputs)
        self._within = _within(graph, inputs)
        self._earlier = np.tri(len(inputs), k=-1)
        self._live = np.array([math.log(max(graph.filtered(each), LEAST)) for each in inputs])
        self._pairs = self._between(graph.log_shares)
        self._classes = (self._within @ _members(graph, graph.wide_classes).T > 0).astype(np.float64)
        self._class_shares = _logs(graph.wide_classes)
        self._others, self._other_shares = self._bound_here() if graph.wide_others else (self._within, np.zeros(0))

    def _bound_here(self) -> tuple[Floats, Floats]:
        """Which inputs are in which of the predicates over three or more that the node is the first to bind."""
        others = self._graph.wide_others
        inside = self._within @ _members(self._graph, others).T
        bound = (inside.sum(axis=0) == [each.streams.bit_count() for each in others]) & ((inside > 0).sum(axis=0) > 1)
        return (inside[:, bound] > 0).astype(np.float64), _logs(others)[bound]

    def along(self, orders: Sequence[ProbeOrder]) -> tuple[Floats, Floats]:
        """By input and place in its order: the combinations met, for every second's worth of its rows; and how many of
        them there are before the predicates beside the keys that the last of them is the first to bind. Orders are by
        input, and may be several times as many, for all inputs again."""
        walks = np.array([(i % self._count, *order) for i, order in enumerate(orders)])
        added = self._live[walks] + self._of_pairs(self._pairs, walks)
        if len(self._class_shares):
            members = self._classes[walks]
            added += (members * (np.cumsum(members, axis=1) > members)) @ self._class_shares
        if not self._graph.others:
            met = np.exp(np.minimum(np.cumsum(added, axis=1)[:, 1:], LOG_MAX))
            return met, met
        beside = self._of_pairs(self._between(self._graph.log_other_shares), walks)
        if len(self._other_shares):
            members = self._others[walks]
            complete = (members * (np.cumsum(members, axis=1) == self._others.sum(axis=0))) @ self._other_shares
            added += complete
            beside += complete
        logs = np.cumsum(added, axis=1)
        return np.exp(np.minimum(logs, LOG_MAX))[:, 1:], np.exp(np.minimum(logs - beside, LOG_MAX))[:, 1:]

    def met(self, orders: Sequence[ProbeOrder]) -> Floats:
        """By order: all combinations that the rows of its input meet, for every second's worth of it."""
        return self.along(orders)[0].sum(axis=1)

    def greedy_orders(self, *, cartesian: bool) -> tuple[ProbeOrder, ...]:
        """For every input, always the next one that makes fewest combinations; without `cartesian`, of those that
        a pair or class links to what is bound. (Predicates over three or more inputs are not looked at.)"""
        count, rows = self._count, np.arange(self._count)
        linked = self._between(self._graph.log_shares) < 0
        factors = np.tile(self._live if cartesian else self._live + APART, (count, 1))
        apart = np.full((count, count), not cartesian)
        unbound = np.ones((count, len(self._class_shares)))
        shares = (self._classes * self._class_shares).T
        walks = np.empty((count, count), dtype=np.int64)
        walks[:, 0] = last = rows
        for place in range(count):
            if place:
                walks[:, place] = last = np.argmin(factors, axis=1)
            factors[rows, last] = np.inf
            factors += self._pairs[last]
            near = linked[last]
            if len(shares):
                fresh = self._classes[last] * unbound
                unbound -= fresh
                factors += fresh @ shares
                near = near | (fresh @ self._classes.T > 0)
            if not cartesian:
                reached = apart & near
                factors -= APART * reached
                apart &= ~reached
        return tuple(tuple(walk[1:]) for walk in walks.tolist())

    def _between(self, by_streams: Floats) -> Floats:
        """By two inputs, the sum over the pairs of their streams."""
        return self._within @ by_streams @ self._within.T

    def _of_pairs(self, by_inputs: Floats, walks: npt.NDArray[np.int64]) -> Floats:
        """By input and place: the sum over the pairs that this place makes with those before it."""
        between = by_inputs[walks[:, :, None], walks[:, None, :]]
        found: Floats = np.einsum("wij,ij->wi", between, self._earlier)
        return found


def met_by_hops(graph: JoinGraph, held: Sequence[Streams], targets: Sequence[Streams]) -> tuple[Floats, Floats]:
    """By hop from what rows hold to another input: the live combinations that go there; and those that are met there,
    before the predicates beside the keys that this binds."""
    before, joined = _within(graph, held), _within(graph, targets)
    both = before + joined
    logs = _log_live(graph, both)
    if graph.others:
        logs -= ((before @ graph.log_other_shares) * joined).sum(axis=1)
        if graph.wide_others:
            members = _members(graph, graph.wide_others).T
            bound = both @ members == members.sum(axis=0)
            logs -= (bound & (before @ members > 0) & (joined @ members > 0)) @ _logs(graph.wide_others)
    return np.exp(np.minimum(_log_live(graph, before), LOG_MAX)), np.exp(np.minimum(logs, LOG_MAX))


def _log_live(graph: JoinGraph, within: Floats) -> Floats:
    """By set of streams: the logarithm of its live combinations."""
    logs: Floats = within @ graph.log_volumes + ((within @ graph.log_shares) * within).sum(axis=1) / 2
    if graph.wide_classes:
        members = within @ _members(graph, graph.wide_classes).T
        logs += np.maximum(members - 1, 0) @ _logs(graph.wide_classes)
    if graph.wide_others:
        members = _members(graph, graph.wide_others).T
        is_several = within.sum(axis=1, keepdims=True) > 1
        logs += (is_several & (within @ members == members.sum(axis=0))) @ _logs(graph.wide_others)
    return logs


def _within(graph: JoinGraph, sets: Sequence[Streams]) -> Floats:
    """By set and stream: 1 where it holds the stream."""
    return (np.array(sets)[:, None] >> np.arange(len(graph.streams)) & 1).astype(np.float64)


def _members(graph: JoinGraph, predicates: Sequence[Predicate]) -> Floats:
    """By predicate and stream: 1 where it is over the stream."""
    members = np.zeros((len(predicates), len(graph.streams)))
    for number, each in enumerate(predicates):
        members[number, list(bits(each.streams))] = 1.0
    return members


def _logs(predicates: Sequence[Predicate]) -> Floats:
    return np.log(np.maximum([each.selectivity for each in predicates], LEAST))
