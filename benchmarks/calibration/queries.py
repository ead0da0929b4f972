"""Random join queries with data to run them on, each made from one seed.

| kind    | key classes                                                        |
|---------|--------------------------------------------------------------------|
| one-key | one over all streams                                               |
| chain   | each shares a stream with the one before it: a.x = b.x, b.y = c.y  |
| star    | all share the first stream: a.x = b.x, a.y = c.y                   |

Every kind has 3 to 5 streams; rates differ by up to 20 times, windows by up to 3 times in every second query, and every
third query has a residual predicate, a.u < b.u. Keys are uniform, event times spread evenly, and a micro-batch is a
second of them. Queries are drawn until the model says that there are some results and not too many, and not too many
pairs to join for the mjoin and the binary tree: nothing else is asked of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

import numpy as np
import pyarrow as pa

from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.cost import CostModel
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.min_state import min_state
from watersmeet.query.logical import JoinQuery, Stream, build_query

START_US = 1_700_000_000_000_000
ROWS_PER_S = (5_000, 50_000)
RATE_RATIO_MAX = 20
FAN_OUT = (0.4, 10.0)
"""Rows within a window that have a row's key, for a stream of the middling rate."""
RESULTS_PER_S = (500, 120_000)
INTERMEDIATE_PER_S_MAX = 250_000
MET_PER_S_MAX = 800_000
PASSING = (0.1, 0.5)

Members = tuple[int, ...]
SHAPES: dict[str, dict[int, list[tuple[Members, ...]]]] = {
    "one-key": {3: [((0, 1, 2),)], 4: [((0, 1, 2, 3),)], 5: [((0, 1, 2, 3, 4),)]},
    "chain": {
        3: [((0, 1), (1, 2))],
        4: [((0, 1), (1, 2), (2, 3)), ((0, 1, 2), (2, 3)), ((0, 1), (1, 2, 3))],
        5: [((0, 1, 2), (2, 3, 4)), ((0, 1), (1, 2, 3), (3, 4)), ((0, 1, 2), (2, 3), (3, 4))],
    },
    "star": {
        3: [((0, 1), (0, 2))],
        4: [((0, 1), (0, 2), (0, 3)), ((0, 1, 2), (0, 3))],
        5: [((0, 1, 2), (0, 3, 4)), ((0, 1, 2), (0, 3), (0, 4))],
    },
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A query by its figures: what the data is made from, and what nothing but the judge may know."""

    name: str
    kind: str
    seed: int
    rates: tuple[int, ...]
    windows_s: tuple[int, ...]
    classes: tuple[Members, ...]
    values: tuple[int, ...]
    """How many values the keys of each class have."""
    passing: float | None
    """The share of pairs of the first two streams that a.u < b.u, if that is asked for."""

    @property
    def names(self) -> list[str]:
        return list("abcde"[: len(self.rates)])

    @property
    def window_s_max(self) -> int:
        return max(self.windows_s)

    def columns(self, stream: int) -> list[str]:
        return ["xyzw"[i] for i, members in enumerate(self.classes) if stream in members]

    def query(self) -> JoinQuery:
        names = self.names
        where = [
            f"{names[one]}.{'xyzw'[i]} = {names[other]}.{'xyzw'[i]}"
            for i, members in enumerate(self.classes)
            for one, other in pairwise(members)
        ]
        if self.passing is not None:
            where.append("a.u < b.u")
        return build_query(
            [Stream(name, self._schema(i), event_time="ts") for i, name in enumerate(names)],
            where=where,
            within=None,
            windows={name: f"{window} seconds" for name, window in zip(names, self.windows_s, strict=True)},
            select=[f"{name}.n AS {name}n" for name in names],
        )

    def true_graph(self) -> JoinGraph:
        """The figures that the data is made from."""
        query = self.query()
        columns = [next(filter(None, each.columns)) for each in query.classes]
        given = Assumptions(
            rates=dict(zip(self.names, map(float, self.rates), strict=True)),
            keys={i: 1 / self.values["xyzw".index(column)] for i, column in enumerate(columns)},
            residuals={} if self.passing is None else {0: self.passing},
        )
        return graph_of(query, given)

    def batches(self, count: int) -> Iterator[dict[str, pa.Table]]:
        """One micro-batch per second of event time; n numbers the rows of a stream."""
        rng = np.random.default_rng([self.seed, 1])
        for second in range(count):
            yield {name: self._rows(i, second, rng) for i, name in enumerate(self.names)}

    def _rows(self, stream: int, second: int, rng: np.random.Generator) -> pa.Table:
        rows = self.rates[stream]
        ts = np.sort(rng.integers(0, 1_000_000, rows)) + START_US + second * 1_000_000
        u = rng.random(rows)
        if stream == 1 and self.passing is not None:
            u *= 2 * self.passing  # a.u is in [0, 1), so P(a.u < b.u) is `passing`, up to a half
        keys = [rng.integers(0, self.values["xyzw".index(column)], rows) for column in self.columns(stream)]
        columns = [*keys, ts, np.arange(second * rows, (second + 1) * rows), u]
        schema = self._schema(stream)
        return pa.table([pa.array(c).cast(t.type) for c, t in zip(columns, schema, strict=True)], schema)

    def _schema(self, stream: int) -> pa.Schema:
        keys = [(column, pa.int64()) for column in self.columns(stream)]
        return pa.schema([*keys, ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("u", pa.float64())])


def workloads(count: int, seed: int) -> list[Workload]:
    """Kinds and numbers of streams in turn."""
    kinds = list(SHAPES)
    return [_drawn(number, kinds[number % 3], 3 + number // 3 % 3, seed * 1000 + number) for number in range(count)]


def _drawn(number: int, kind: str, streams: int, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    while True:
        found = _draw(number, kind, streams, seed, rng)
        if _is_sensible(found):
            return found


def _draw(number: int, kind: str, streams: int, seed: int, rng: np.random.Generator) -> Workload:
    weights = np.exp(rng.uniform(0, log(RATE_RATIO_MAX), streams))
    total = exp(rng.uniform(*map(log, ROWS_PER_S)))
    rates = [max(50, round(each)) for each in weights / weights.sum() * total]
    longest = int(rng.integers(4, 7))
    windows = [longest] * streams
    if number % 2:
        windows = [int(rng.integers(max(2, longest * 2 // 5), longest + 1)) for _ in range(streams)]
    shapes = SHAPES[kind][streams]
    classes = shapes[rng.integers(len(shapes))]
    values = []
    for members in classes:
        middling = exp(sum(log(rates[i] * windows[i]) for i in members) / len(members))
        values.append(max(2, round(middling / exp(rng.uniform(*map(log, FAN_OUT))))))
    passing = float(rng.uniform(*PASSING)) if number % 3 == number // 9 % 3 else None
    name = f"q{number:02d}"
    return Workload(name, kind, seed, tuple(rates), tuple(windows), classes, tuple(values), passing)


def _is_sensible(workload: Workload) -> bool:
    graph = workload.true_graph()
    low, high = RESULTS_PER_S
    if not low <= graph.found(graph.everyone) <= high:
        return False
    model = CostModel(graph, cartesian=False)
    states = min_state(model, cartesian=False)
    mjoin = model.node(tuple(1 << i for i in range(len(graph.streams))))
    met = 0.0
    for i, order in enumerate(mjoin.orders):
        bound = 1 << i
        for j in order:
            bound |= 1 << j
            met += graph.found(bound, 1 << i)
    return sum(map(graph.found, states)) <= INTERMEDIATE_PER_S_MAX and met <= MET_PER_S_MAX
