"""What a plan may cost before it has run: rows and bytes in its stores, matches and results a second.

From the arrival rate r of every stream, its window W and a selectivity for every predicate, all taken to be independent
and steady. Let sel(S) be the product of the selectivities that a set S of streams binds (a key class counts once less
than it has columns in S). Then, for the windows of this engine, where max(t) - t_i < W_i:

    live(S)     = sel(S) x product of r_i W_i            combinations that are within their windows at any moment
    found(S, O) = live(S) x sum over i in O of 1 / W_i   combinations a second whose latest row came in by O
    stored(S)   = found(S, S) x (longest window of S + largest delay)

A node finds what its probe orders visit, hop by hop. A stream without a window counts as one with a window as long as
the query has run. These are figures to compare plans by, not promises: skew, bursts and correlation are not in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import pyarrow as pa

from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan, StagePlan
from watersmeet.plan.tree import Join, Tree, streams_of, tree_text
from watersmeet.query.expressions import columns_of
from watersmeet.query.logical import JoinQuery

KEY_SELECTIVITY = 1 / 1000
"""Of a key class nobody has said anything about: as of 1000 values that are equally frequent."""
RESIDUAL_SELECTIVITY = 1 / 3
"""Of another predicate between streams (Selinger et al. 1979)."""
HOUR_US = 3_600_000_000
TEXT_BYTES = 16
CODE_BYTES = 8
"""Key rank and event time of a stored row."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Rows a second by stream, and shares by number of filter, key class, residual and predicate left to Spark."""

    rates: Mapping[str, float]
    filters: Mapping[int, float] = field(default_factory=dict)
    keys: Mapping[int, float] = field(default_factory=dict)
    residuals: Mapping[int, float] = field(default_factory=dict)
    by_spark: Mapping[int, float] = field(default_factory=dict)
    running_us: int = HOUR_US


@dataclass(frozen=True, slots=True)
class StoreEstimate:
    label: str
    stage: int
    rows: float
    row_bytes: int
    rows_per_second: float


@dataclass(frozen=True, slots=True)
class NodeEstimate:
    label: str
    stage: int
    matches_per_second: float
    results_per_second: float
    """Zero where the node goes on in a later stage."""


@dataclass(frozen=True, slots=True)
class Estimates:
    stores: tuple[StoreEstimate, ...]
    nodes: tuple[NodeEstimate, ...]
    results_per_second: float

    @property
    def state_bytes(self) -> float:
        return sum(store.rows * store.row_bytes for store in self.stores)


def estimate(query: JoinQuery, plan: JoinPlan, given: Assumptions) -> Estimates:
    """The costs of the first shape of every stage."""
    model = _Model(query, given)
    stores, nodes = [], []
    for number, stage in enumerate(plan.stages):
        for layout in stage.stores(number, 0):
            rate = model.found(streams_of(layout.tree))
            rows = rate * model.kept_seconds(layout)
            stores.append(StoreEstimate(layout.label, number, rows, row_bytes(layout, query.windowed), rate))
        nodes += _nodes(stage, number, plan, model)
    by_spark = prod(given.by_spark.get(i, RESIDUAL_SELECTIVITY) for i in range(len(query.spark_residuals)))
    everyone = frozenset(range(len(query.streams)))
    return Estimates(tuple(stores), tuple(nodes), model.found(everyone) * by_spark)


def row_bytes(layout: StoreLayout, windowed: bool) -> int:
    """Bytes of one stored row: its code and its payload; keys are stored once per value and left out."""
    return (CODE_BYTES if windowed else 0) + sum(_width(column.type) for column in layout.payload)


class _Model:
    def __init__(self, query: JoinQuery, given: Assumptions) -> None:
        self._query, self._given = query, given
        self._running = given.running_us / 1e6
        self._delay = max(stream.delay_us for stream in query.streams) / 1e6
        windows = [self._running if window is None else window / 1e6 for window in query.windows_us]
        self._windows = [min(window, self._running) for window in windows]
        self._rates = [
            given.rates[stream.name]
            * prod(given.filters.get(i, 1.0) for i, item in enumerate(query.filters) if item.stream == stream.name)
            for stream in query.streams
        ]
        ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
        self._bound = [{ordinal[column.stream] for column in columns_of(item)} for item in query.residuals]

    def selectivity(self, streams: frozenset[int]) -> float:
        share = 1.0
        for number, key_class in enumerate(self._query.classes):
            members = len(key_class.streams & streams)
            share *= self._given.keys.get(number, KEY_SELECTIVITY) ** max(members - 1, 0)
        for number, bound in enumerate(self._bound):
            if bound <= streams:
                share *= self._given.residuals.get(number, RESIDUAL_SELECTIVITY)
        return share

    def live(self, streams: frozenset[int]) -> float:
        return self.selectivity(streams) * prod(self._rates[i] * self._windows[i] for i in streams)

    def found(self, streams: frozenset[int], origin: Iterable[int] | None = None) -> float:
        """Combinations a second; with an origin, those whose latest row came in by one of its streams."""
        if len(streams) == 1:
            return self._rates[next(iter(streams))]  # also where a predicate over one stream is left to the node
        return self.live(streams) * sum(1 / self._windows[i] for i in (streams if origin is None else origin))

    def kept_seconds(self, layout: StoreLayout) -> float:
        if layout.span_us is None:
            return self._running
        return min(layout.span_us / 1e6 + self._delay, self._running)


def _nodes(stage: StagePlan, number: int, plan: JoinPlan, model: _Model) -> list[NodeEstimate]:
    if stage.hops:
        matches = results = 0.0
        for hop in stage.hops:
            inputs = hop.node.inputs
            origin = streams_of(_origin(inputs[0].tree, stage.node))
            matches += _visited([layout.tree for layout in inputs], origin, model)
            if streams_of(hop.node.tree) == streams_of(stage.node):
                results += model.found(streams_of(stage.node), origin)
        return [NodeEstimate(tree_text(stage.node, plan.names), number, matches, results)]
    found = []
    for node in stage.shape(0):
        trees = [layout.tree for layout in node.inputs]
        matches = sum(
            _visited([trees[i], *(trees[j] for j in order)], streams_of(trees[i]), model)
            for i, order in enumerate(node.probe_orders)
        )
        found.append(
            NodeEstimate(tree_text(node.tree, plan.names), number, matches, model.found(streams_of(node.tree)))
        )
    return found


def _visited(order: Sequence[Tree], origin: frozenset[int], model: _Model) -> float:
    """Combinations a second that the rows of an input meet on their way through the others."""
    bound, total = streams_of(order[0]), 0.0
    for tree in order[1:]:
        bound |= streams_of(tree)
        total += model.found(bound, origin)
    return total


def _origin(rows: Tree, node: Join) -> Tree:
    """The input of a mixed node whose rows these once were."""
    while rows not in node.inputs:
        assert isinstance(rows, Join)
        rows = rows.inputs[0]
    return rows


def _width(kind: pa.DataType) -> int:
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return TEXT_BYTES + 4
    if pa.types.is_struct(kind):
        return sum(_width(kind.field(i).type) for i in range(kind.num_fields))
    try:
        return kind.bit_width // 8
    except ValueError:
        return TEXT_BYTES + 4
