"""Rows that a store lacks, made when arriving rows ask for them (just-in-time; `plan/completion.py`).

A row that probes a store that lacks rows would miss the results of the rows that were stored when the plan changed.
They are made here, from the pinned stores and only for the keys of the probing rows, and forgotten after the probe.
Meanwhile epochs without rows complete the store group by group. The pinned rows of complete groups are not read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from watersmeet.engine.emission import runs_of
from watersmeet.engine.kernels import match_keys
from watersmeet.engine.mjoin import probe
from watersmeet.plan.completion import node_below
from watersmeet.plan.nodes import NodePlan
from watersmeet.state.run import Run, merge_runs, select_keys


class Missing:
    """The rows that the stores of a slot lack in a stage."""

    def __init__(
        self, nodes: Sequence[NodePlan], lacking: Sequence[int], pinned: Mapping[int, Sequence[Run]], partitions: int
    ) -> None:
        """`pinned`: the runs of the pinned stores, by number."""
        self._nodes, self._lacking, self._pinned, self._partitions = nodes, frozenset(lacking), pinned, partitions

    def with_missing(self, stores: Sequence[Sequence[Run]], first: int, origin: int, delta: Run) -> list[list[Run]]:
        """The stores of a node, the first of which has the number `first`, with the rows that some lack and that may
        join a delta of input `origin`."""
        found = [list(runs) for runs in stores]
        for i, runs in enumerate(found):
            if i != origin and first + i in self._lacking:
                runs += self._rows(first + i, delta)
        return found

    def _rows(self, store: int, delta: Run) -> list[Run]:
        """The rows that a store lacks, for the keys of a delta. Those of one input probe the others."""
        node = node_below(self._nodes, store)
        stores = range(node.first_store, node.first_store + len(node.inputs))
        incomplete = [i for i, number in enumerate(stores) if number in self._lacking]
        held = [[] if i in incomplete else list(self._pinned[number]) for i, number in enumerate(stores)]
        for i in incomplete:
            held[i] = self._rows(stores[i], delta)
        origin = min(incomplete or range(len(held)), key=lambda i: sum(run.rows for run in held[i]))
        asked = held[origin] if incomplete else few_runs([_of_keys(run, delta) for run in held[origin]])
        above = next(n for n in self._nodes if n.first_store <= store < n.first_store + len(n.inputs))
        layout = above.inputs[store - above.first_store]
        targets = [[] if i == origin else runs for i, runs in enumerate(held)]
        joined = (joined for run in asked for joined in probe(node, origin, run, targets))
        return few_runs([run for one in joined for run in runs_of(one, layout, self._partitions)])


def few_runs(runs: Sequence[Run]) -> list[Run]:
    """The same rows in few runs, because each run probes, or is probed by, all others."""
    found = [run for run in runs if run.rows]
    return merge_runs(found) if len(found) > 1 else found


def _of_keys(run: Run, delta: Run) -> Run:
    """The rows of a run that have a key of the delta."""
    return select_keys(run, np.unique(match_keys(delta, run).positions))
