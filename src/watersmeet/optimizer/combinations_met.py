"""How many combinations the rows of every input meet on their way, for all inputs of a node at once.

Along an order Y1, Y2, ... from X these are live(X u Y1) + live(X u Y1 u Y2) + ..., and each further input multiplies
them by its live rows and by the selectivities that it adds. Computed with logarithms over arrays of
(input that probes, place in its order), with a table of selectivities for pairs and a column for each key class over
more inputs; so a node of 20 inputs takes a few array operations, not thousands of products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watersmeet.optimizer.links import InputGraph
from watersmeet.optimizer.rank_ordering import Link
from watersmeet.plan.probe_orders import ProbeOrder

Floats = npt.NDArray[np.float64]
LEAST = 1e-300
"""Stands for a rate or selectivity of 0, which has no logarithm."""
APART = 1e6
"""More than the logarithm of anything: what is not linked yet comes after all that is."""
LOG_MAX = 700.0
"""More than this many combinations are all the same: too many."""


class Meetings:
    """The inputs of a node, ready for such counts."""

    def __init__(self, node: InputGraph) -> None:
        count = self._count = len(node.live)
        self._live = np.log(np.maximum(node.live, LEAST))
        pairs = [link for link in node.links if len(link.inputs) == 2]
        ends = np.array([link.inputs for link in pairs], dtype=np.int64).reshape(-1, 2)
        self._pairs = np.zeros((count, count))
        self._pairs[ends[:, 0], ends[:, 1]] = self._pairs[ends[:, 1], ends[:, 0]] = _logs(pairs)
        self._linked = np.zeros((count, count), dtype=bool)
        self._linked[ends[:, 0], ends[:, 1]] = self._linked[ends[:, 1], ends[:, 0]] = True
        classes = [link for link in node.links if len(link.inputs) > 2]
        self._classes, self._class_shares = self._members(classes), _logs(classes)
        self._others, self._other_shares = self._members(node.others), _logs(node.others)

    def met(self, orders: Sequence[ProbeOrder]) -> Floats:
        """By input: the combinations that its rows meet, for every second's worth of it."""
        walks = np.array([(i, *order) for i, order in enumerate(orders)])
        between = self._pairs[walks[:, :, None], walks[:, None, :]]
        added = self._live[walks] + np.tril(between, -1).sum(axis=2)
        if len(self._class_shares):
            members = self._classes[walks]
            added += (members * (np.cumsum(members, axis=1) > members)) @ self._class_shares
        if len(self._other_shares):
            members = self._others[walks]
            complete = np.cumsum(members, axis=1) == self._others.sum(axis=0)
            added += (members * complete) @ self._other_shares
        return np.exp(np.minimum(np.cumsum(added, axis=1)[:, 1:], LOG_MAX)).sum(axis=1)

    def greedy_orders(self, *, cartesian: bool) -> tuple[ProbeOrder, ...]:
        """For every input, always the next one that makes fewest combinations; without `cartesian`, of those that
        a pair or class links to what is bound. (Predicates over three or more inputs are not looked at.)"""
        count, rows = self._count, np.arange(self._count)
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
            fresh = self._classes[last] * unbound
            if len(shares):
                unbound -= fresh
                factors += fresh @ shares
            if not cartesian:
                reached = apart & (self._linked[last] | (fresh @ self._classes.T > 0))
                factors -= APART * reached
                apart &= ~reached
        return tuple(tuple(walk[1:]) for walk in walks.tolist())

    def _members(self, links: Sequence[Link]) -> Floats:
        """Which input is in which link: 1 where it is."""
        members = np.zeros((self._count, len(links)))
        for number, link in enumerate(links):
            members[list(link.inputs), number] = 1.0
        return members


def _logs(links: Sequence[Link]) -> Floats:
    return np.log(np.maximum([link.selectivity for link in links], LEAST))
