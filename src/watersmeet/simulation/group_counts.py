"""The rows of one stage as numbers per partition group: what arrives, what matches it, what expires and what spills.

Of a node whose input i has S_i rows in a group, to which D_i come, the expected new results in the group are

    [product of (S_i + D_i) - product of S_i] x f_g

where f_g is the share of combinations within the group that match (004, IV, for any number of inputs). It follows from
the selectivities of the join graph, since only rows of one group can match: with shares s_g of the groups and m
streams, `f_g = sel x w_g^(m-1) / sum of (s^m x w^(m-1))`.

Numbers are expectations, so they are not whole. Known limitations: the rows of a key are spread alike for all streams;
closed rows stay on disk until they expire or the run ends, also where the real engine would take them back; results
that they owe are not counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.optimizer.join_graph import JoinGraph, as_streams
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import Tree, streams_of
from watersmeet.simulation.clock import Floats

KEY_BYTES = 24.0
"""Of a key in a run: value, hash and start."""
RUNS, BUCKETS = 2, 8
"""In how many runs the keys of a group are, without windows and with them: a store is merged in tiers, and a bucket is
an eighth of the window."""


@dataclass(slots=True)
class Stored:
    """The rows of one store, by group."""

    active: Floats
    closed: Floats
    windows_s: tuple[float, ...]
    """Of the streams whose rows are parts of a row; none: it is kept for ever."""
    arrived: deque[tuple[float, Floats, Floats]]
    """Per epoch: when its rows arrived, and its active and closed rows."""

    @staticmethod
    def empty(partitions: int, windows_s: tuple[float, ...]) -> Stored:
        return Stored(np.zeros(partitions), np.zeros(partitions), windows_s, deque())

    def add(self, rows: Floats, at_s: float) -> None:
        self.active += rows
        if self.windows_s:
            self.arrived.append((at_s, rows.copy(), np.zeros_like(rows)))

    def live(self, now_s: float, span_s: float) -> Floats:
        """The active rows that rows arriving in a span around a time can match. A result ends with the first of its
        parts, whose ages are even."""
        found = self.active.copy()
        for at_s, active, _ in self.arrived:
            age_s = now_s - at_s
            if len(self.windows_s) > 1:
                found -= active * (1 - _not_ended(self.windows_s, age_s))
            elif age_s > self.windows_s[0] - span_s:
                found -= active * (1 - _in_time(self.windows_s[0] - age_s, span_s))
            else:
                break
        return np.maximum(0.0, found)

    def expire(self, before_s: float) -> None:
        """Let rows go whose window ended before."""
        while self.windows_s and self.arrived and self.arrived[0][0] <= before_s - min(self.windows_s):
            _, active, closed = self.arrived.popleft()
            self.active = np.maximum(0.0, self.active - active)
            self.closed = np.maximum(0.0, self.closed - closed)

    def close(self, groups: Sequence[int]) -> None:
        """Spill groups: their rows are on disk, and no later row meets them."""
        at = list(groups)
        for _, active, closed in self.arrived:
            closed[at] += active[at]
            active[at] = 0.0
        self.closed[at] += self.active[at]
        self.active[at] = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """What a stage did with the rows of an epoch, by group."""

    arrived: Sequence[Floats]
    """By store."""
    looked_up: Floats
    met: Floats
    results: Sequence[Floats]
    """By node; the last is the topmost."""


class StageCounts:
    """One stage of a plan."""

    def __init__(self, plan: JoinPlan, number: int, graph: JoinGraph, shares: Floats, weights: Floats) -> None:
        """`shares` are those by which the selectivities hold; `weights` as in `Load`."""
        self.plan, self.number, self.graph = plan, number, graph
        self.nodes = plan.stages[number].shape(0)
        self.layouts = plan.stages[number].stores(number, 0)
        self.stores = [Stored.empty(plan.partitions, self._windows_s(layout.tree)) for layout in self.layouts]
        self._shares, self._weights = shares, weights
        self._widths = [graph.row_bytes(as_streams(streams_of(layout.tree))) for layout in self.layouts]
        pairs = ((node, i) for node in self.nodes for i in range(len(node.inputs)))
        self._keys = [1 / np.maximum(1e-300, self._factor(node, (i, (i + 1) % len(node.inputs)))) for node, i in pairs]
        """By store: how many keys a group has, if rows of two inputs match as often as they do."""

    def run(self, inputs: Sequence[Floats], since_s: float, until_s: float) -> Joined:
        """Join what arrives at the inputs of the stage in a span of time."""
        at_s, span_s = (since_s + until_s) / 2, until_s - since_s
        for stored in self.stores:
            stored.expire(at_s - span_s)
        self._live = [stored.live(at_s, span_s) for stored in self.stores]
        arrived = [np.zeros(self.plan.partitions) for _ in self.stores]
        looked_up, met = np.zeros(self.plan.partitions), np.zeros(self.plan.partitions)
        results: list[Floats] = []
        for node in self.nodes:
            new = [self._new(node, i, inputs, results) for i in range(len(node.inputs))]
            found, met_here = self._joined(node, new)
            results.append(found)
            met += met_here
            looked_up += (len(node.inputs) - 1) * np.sum(new, axis=0)
            for i, rows in enumerate(new):
                arrived[node.first_store + i] = rows
        for store, rows in enumerate(arrived):
            self.stores[store].add(rows, at_s)
        return Joined(arrived, looked_up, met, results)

    def close(self, groups: Sequence[int]) -> Floats:
        """Spill groups of the stage: the bytes of each."""
        before = self.bytes_by_group(closed=True)
        for stored in self.stores:
            stored.close(groups)
        return self.bytes_by_group(closed=True) - before

    def bytes_by_group(self, *, closed: bool = False) -> Floats:
        """Active or closed bytes."""
        held = (stored.closed if closed else stored.active for stored in self.stores)
        return np.sum([self.bytes_of(store, rows) for store, rows in enumerate(held)], axis=0)

    def bytes_of(self, store: int, rows: Floats) -> Floats:
        """The bytes of rows of a store: their kept columns, and the distinct keys of every run. Rows with a window are
        kept for one more bucket."""
        keys = self._keys[store] * (BUCKETS if self.plan.windowed else RUNS)
        late = 1 + 1 / BUCKETS if self.plan.windowed else 1.0
        return late * (rows * self._widths[store] + KEY_BYTES * keys * -np.expm1(-rows / keys))

    def _new(self, node: NodePlan, i: int, inputs: Sequence[Floats], results: Sequence[Floats]) -> Floats:
        child, place = node.children[i], node.stage_inputs[i]
        if child is not None:
            return results[child]
        assert place is not None
        return inputs[place]

    def _joined(self, node: NodePlan, new: Sequence[Floats]) -> tuple[Floats, Floats]:
        """The results of a node, and the combinations that its probes meet: hop by hop, along its probe orders."""
        held = [self._live[node.first_store + i] for i in range(len(node.inputs))]
        met = np.zeros(self.plan.partitions)
        done: list[Floats] = list(held)
        for i, order in enumerate(node.probe_orders):
            partial, bound = new[i], [i]
            for j in order:
                before = self._factor(node, bound)
                bound.append(j)
                there = done[j] if j < i else held[j]
                partial = partial * there * (self._factor(node, bound) / before)
                met += partial
            done[i] = held[i] + new[i]
        results = (np.prod(done, axis=0) - np.prod(held, axis=0)) * self._factor(node, range(len(node.inputs)))
        return np.maximum(0.0, results), met

    def _factor(self, node: NodePlan, bound: Sequence[int]) -> Floats:
        """f_g of some inputs of a node: of the combinations of their stored rows within a group, the share that
        matches."""
        inputs = [node.inputs[i].tree for i in bound]
        together = as_streams({stream for tree in inputs for stream in streams_of(tree)})
        share = self.graph.selectivity(together)
        parts = 0
        scale = np.ones(self.plan.partitions)
        for tree in inputs:
            share /= max(1e-300, self.graph.selectivity(as_streams(streams_of(tree))))
            here = self._streams_here(tree)
            parts += here
            scale = scale / self._density(here)
        found: Floats = share * scale * self._density(parts)
        return found

    def _density(self, streams: int) -> Floats:
        """How much more likely rows of so many streams match if they are of one group than if they are any."""
        weight = self._weights ** (streams - 1)
        return weight / float(np.sum(self._shares**streams * weight))

    def _streams_here(self, tree: Tree) -> int:
        """Of how many inputs of the stage the rows of a store are joined: results of another stage count once."""
        for node in self.nodes:
            if node.tree == tree:
                return sum(self._streams_here(child) for child in node.tree.inputs)
        return 1

    def _windows_s(self, tree: Tree) -> tuple[float, ...]:
        if not self.plan.windowed:
            return ()
        ends = (i for i in sorted(streams_of(tree)) if not self.graph.endless >> i & 1)
        return tuple(self.graph.windows_s[i] + self.graph.delay_s for i in ends)


def _in_time(left_s: float, span_s: float) -> float:
    """The share of pairs of rows, of two spans, that are in time: at the middle of the spans the window has so much
    left."""
    part = float(np.clip(left_s / span_s, -1, 1))
    return 0.5 + part - part * abs(part) / 2


def _not_ended(windows_s: Sequence[float], age_s: float) -> float:
    """The share of results of an age that have not ended: the latest row of a result is of a stream as often as its
    window is short, and each of the others may be as old as its own."""
    inside = [max(0.0, 1 - age_s / window) for window in windows_s]
    chances = [1 / window for window in windows_s]
    shares = [
        chance * float(np.prod([part for j, part in enumerate(inside) if j != i])) for i, chance in enumerate(chances)
    ]
    return sum(shares) / sum(chances)
