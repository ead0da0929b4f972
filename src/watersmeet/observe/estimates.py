"""Estimated costs of a plan before it runs: rows and bytes in its stores, matches and results a second.

They follow from rates, windows and selectivities by the model of `optimizer/join_graph.py`. The rows of a store are the
optimiser's (`optimizer/kept_rows.py`): the maximum, over all slots. The matches of a node are those along its probe
orders, hop by hop. A stream without a window counts as if its window were as long as the query has run. The figures
compare plans; they leave out skew, bursts and correlation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from watersmeet.optimizer.assumptions import RESIDUAL_SELECTIVITY, Assumptions, graph_of
from watersmeet.optimizer.cost import CostModel
from watersmeet.optimizer.join_graph import JoinGraph, Streams, as_streams
from watersmeet.optimizer.kept_rows import INDEX_BYTES_MAX, STORE_FILE_BYTES, stored_bytes
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan, StagePlan
from watersmeet.plan.tree import Join, Tree, streams_of, tree_text
from watersmeet.query.logical import JoinQuery


@dataclass(frozen=True, slots=True)
class StoreEstimate:
    label: str
    stage: int
    rows: float
    row_bytes: float
    rows_per_second: float


@dataclass(frozen=True, slots=True)
class NodeEstimate:
    label: str
    stage: int
    matches_per_second: float
    results_per_second: float
    """Zero if the node continues in a later stage."""


@dataclass(frozen=True, slots=True)
class Estimates:
    stores: tuple[StoreEstimate, ...]
    nodes: tuple[NodeEstimate, ...]
    results_per_second: float

    @property
    def state_bytes(self) -> float:
        """The bytes of the rows in all stores."""
        return sum(store.rows * store.row_bytes for store in self.stores)

    def file_bytes_max(self, slots: int) -> float:
        """The bytes of their files, on all slots: an upper bound for the state in progress."""
        rows = sum(store.rows for store in self.stores)
        return self.state_bytes + rows * INDEX_BYTES_MAX + self.fixed_bytes(slots)

    def fixed_bytes(self, slots: int) -> int:
        """The part of these that does not depend on rows: the fixed size of files."""
        return STORE_FILE_BYTES * len(self.stores) * slots


def estimate(query: JoinQuery, plan: JoinPlan, given: Assumptions) -> Estimates:
    """The costs of the first shape of every stage."""
    graph = graph_of(query, given)
    model = CostModel(graph, batches_per_s=given.batches_per_s)
    stores, nodes = [], []
    for number, stage in enumerate(plan.stages):
        for layout, together in _stores(plan, number):
            streams = _streams(layout.tree)
            row_bytes = stored_bytes(graph, streams)
            rows = model.kept_bytes(streams, together) / row_bytes
            stores.append(StoreEstimate(layout.label, number, rows, row_bytes, graph.found(streams)))
        nodes += _nodes(stage, number, plan, graph)
    by_spark = prod(given.by_spark.get(i, RESIDUAL_SELECTIVITY) for i in range(len(query.spark_residuals)))
    return Estimates(tuple(stores), tuple(nodes), graph.found(graph.everyone) * by_spark)


def _stores(plan: JoinPlan, number: int) -> Iterator[tuple[StoreLayout, Streams]]:
    """The stores of a stage, each with the streams whose windows set its time buckets: those of its node, or all
    streams that a mixed node has indexed under that key."""
    stage = plan.stages[number]
    if not stage.hops:
        for node in stage.shape(0):
            for layout in node.inputs:
                yield layout, _streams(node.tree)
        return
    together = 0
    for i, other in enumerate(plan.stages):
        if (other.node, other.key) == (stage.node, stage.key):
            for layout in other.stores(i, 0):
                together |= _streams(layout.tree)
    for layout in stage.stores(number, 0):
        yield layout, together


def _streams(tree: Tree) -> Streams:
    return as_streams(streams_of(tree))


def _nodes(stage: StagePlan, number: int, plan: JoinPlan, graph: JoinGraph) -> list[NodeEstimate]:
    if stage.hops:
        matches = results = 0.0
        for hop in stage.hops:
            inputs = hop.node.inputs
            origin = _streams(_origin(inputs[0].tree, stage.node))
            matches += _visited([layout.tree for layout in inputs], origin, graph)
            if streams_of(hop.node.tree) == streams_of(stage.node):
                results += graph.found(_streams(stage.node), origin)
        return [NodeEstimate(tree_text(stage.node, plan.names), number, matches, results)]
    found = []
    for node in stage.shape(0):
        trees = [layout.tree for layout in node.inputs]
        matches = sum(
            _visited([trees[i], *(trees[j] for j in order)], _streams(trees[i]), graph)
            for i, order in enumerate(node.probe_orders)
        )
        found.append(NodeEstimate(tree_text(node.tree, plan.names), number, matches, graph.found(_streams(node.tree))))
    return found


def _visited(order: Sequence[Tree], origin: Streams, graph: JoinGraph) -> float:
    """Combinations per second that the rows of an input meet along its probe order."""
    bound, total = _streams(order[0]), 0.0
    for tree in order[1:]:
        bound |= _streams(tree)
        total += graph.found(bound, origin)
    return total


def _origin(rows: Tree, node: Join) -> Tree:
    """The input of a mixed node from which these rows come."""
    while rows not in node.inputs:
        assert isinstance(rows, Join)
        rows = rows.inputs[0]
    return rows
