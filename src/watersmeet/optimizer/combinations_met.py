"""How many combinations the rows of every input meet on their way, for all inputs of a node at once.

Along an order Y1, Y2, ... from X these are live(X u Y1) + live(X u Y1 u Y2) + ..., and each further input multiplies
them by its live rows and by the selectivities that it adds. Computed with logarithms over arrays of
(input that probes, place in its order, link), so that a node of 20 inputs takes a few array operations, not thousands
of products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watersmeet.optimizer.exact_ordering import Order
from watersmeet.optimizer.links import InputGraph
from watersmeet.optimizer.rank_ordering import Link

Floats = npt.NDArray[np.float64]
LEAST = 1e-300
"""Stands for a rate or selectivity of 0, which has no logarithm."""
LOG_MAX = 700.0
"""More than this many combinations are all the same: too many."""


class Meetings:
    """The inputs of a node, ready for such counts."""

    def __init__(self, node: InputGraph) -> None:
        self._count = len(node.live)
        self._live = np.log(np.maximum(node.live, LEAST))
        self._links, self._shares = self._members(node.links)
        self._others, self._other_shares = self._members(node.others)
        self._other_sizes = self._others.sum(axis=0)

    def met(self, orders: Sequence[Order]) -> Floats:
        """By input: the combinations that its rows meet, for every second's worth of it."""
        walks = np.array([(i, *order) for i, order in enumerate(orders)])
        members = self._links[walks]
        bound = np.cumsum(members, axis=1) > members
        added = self._live[walks] + (members.astype(bool) & bound) @ self._shares
        if len(self._other_shares):
            complete = np.cumsum(self._others[walks], axis=1) == self._other_sizes
            first = complete & ~np.roll(complete, 1, axis=1)
            first[:, 0] = False
            added += first @ self._other_shares
        return np.exp(np.minimum(np.cumsum(added, axis=1)[:, 1:], LOG_MAX)).sum(axis=1)

    def greedy_orders(self, *, cartesian: bool) -> list[Order]:
        """For every input, always the next one that makes fewest combinations."""
        count, rows = self._count, np.arange(self._count)
        factors = np.tile(self._live, (count, 1))
        reached = np.zeros((count, count), dtype=bool)
        bound = np.zeros((count, len(self._shares)), dtype=bool)
        shares = (self._links * self._shares).T
        walks = np.empty((count, count), dtype=np.int64)
        walks[:, 0] = last = rows
        for place in range(count):
            if place:
                blocked = factors if cartesian else np.where(reached, factors, factors + 1e6)
                walks[:, place] = last = np.argmin(blocked, axis=1)
            factors[rows, last] = np.inf
            fresh = self._links[last].astype(bool) & ~bound
            bound |= fresh
            factors += fresh @ shares
            reached |= fresh @ self._links.T > 0
        return [tuple(int(j) for j in walk[1:]) for walk in walks]

    def _members(self, links: Sequence[Link]) -> tuple[npt.NDArray[np.int64], Floats]:
        """Which input is in which link, and the logarithms of their selectivities."""
        members = np.zeros((self._count, len(links)), dtype=np.int64)
        for number, link in enumerate(links):
            members[list(link.inputs), number] = 1
        return members, np.log(np.maximum([link.selectivity for link in links], LEAST))
