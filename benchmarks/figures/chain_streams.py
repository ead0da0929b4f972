"""Streams joined in a chain within a window (O7; dissertation 8.1, Table 8.1), and the whole join counted by NumPy.

Arrivals are Poisson, as in the dissertation. Streams share a key of few values, and neighbours have a further
predicate, such as a.u < b.v: the selectivity of two neighbours is the share of equal keys times the share of pairs that
pass. So every tree is one stage of nodes with a key, which can spill. Several copies of the experiment run side by
side, told apart by the key: counts per row stay as they are, and rows and results of a second are as many times more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.query.logical import JoinQuery, Stream, build_query

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("u", pa.float64()),
        ("v", pa.float64()),
    ]
)
START_US = 1_700_000_000_000_000

Sums = npt.NDArray[np.uint64]
"""A number of results, and a checksum of them."""


@dataclass(frozen=True)
class Chain:
    """A row of Table 8.1: rates of each stream and copy, selectivities of neighbours, one window."""

    rates: tuple[float, ...]
    selectivities: tuple[float, ...]
    window_s: int
    keys: int
    """Values of the key in a copy: no selectivity is above 1 / keys."""
    copies: int
    seconds: int
    """How long the streams last."""

    @property
    def names(self) -> list[str]:
        return list("abcd"[: len(self.rates)])

    @property
    def passing(self) -> list[float]:
        """The share of pairs with equal keys that neighbours let pass."""
        return [selectivity * self.keys for selectivity in self.selectivities]

    def passing_in(self, second: int) -> Sequence[float]:
        """The share for rows that arrive in a second."""
        return self.passing

    @cached_property
    def query(self) -> JoinQuery:
        neighbours = zip(pairwise(self.names), self.passing, strict=True)
        return build_query(
            [Stream(name, SCHEMA, event_time="ts") for name in self.names],
            where=[
                *(f"{one}.k = {other}.k" for one, other in pairwise(self.names)),
                *(f"{one}.u < {other}.v" for (one, other), share in neighbours if share < 1),
            ],
            within=f"{self.window_s} seconds",
            windows={},
            select=[f"{name}.n AS {name}n" for name in self.names],
        )

    @property
    def graph(self) -> JoinGraph:
        """The figures that the data is made from."""
        given = Assumptions(
            rates={name: rate * self.copies for name, rate in zip(self.names, self.rates, strict=True)},
            keys={0: 1 / (self.keys * self.copies)},
            residuals=dict(enumerate(share for share in self.passing if share < 1)),
        )
        return graph_of(self.query, given)

    def batches(self, seed: int) -> list[dict[str, pa.Table]]:
        """A micro-batch per second; n numbers the rows of a stream."""
        rng = np.random.default_rng(seed)
        streams = {name: list(self._rows(i, rng)) for i, name in enumerate(self.names)}
        return [{name: rows[second] for name, rows in streams.items()} for second in range(self.seconds)]

    def _rows(self, stream: int, rng: np.random.Generator) -> Iterator[pa.Table]:
        seen = 0
        for second in range(self.seconds):
            v_max = _v_max(self.passing_in(second)[stream - 1]) if stream else 1.0
            rows = int(rng.poisson(self.rates[stream] * self.copies))
            ts = np.sort(rng.integers(0, 1_000_000, rows)) + START_US + second * 1_000_000
            keys = rng.integers(0, self.keys * self.copies, rows)
            columns = [keys, ts, np.arange(seen, seen + rows), rng.random(rows), rng.random(rows) * v_max]
            yield pa.table([pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
            seen += rows


def _v_max(passing: float) -> float:
    """u is even in [0, 1): below which v is even if P(u < v) is `passing`."""
    return 2 * passing if passing <= 0.5 else 1 / (2 * (1 - passing)) if passing < 1 else np.inf


def sums_of(results: pa.Table) -> Sums:
    """Count and checksum of some results, whatever their order."""
    product = np.ones(results.num_rows, dtype=np.uint64)
    for column in results.columns:
        product *= _weights(column.to_numpy())
    return np.array([results.num_rows, product.sum(dtype=np.uint64)], dtype=np.uint64)


def _weights(numbers: npt.NDArray[Any]) -> Sums:
    """Odd pseudo-random numbers for the numbers of rows."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed ^ mixed >> np.uint64(32)) | np.uint64(1)


def whole_join(chain: Chain, batches: Sequence[dict[str, pa.Table]]) -> Sums:
    """Count and checksum of the join of all rows, without the engine.

    Every result is counted at its earliest row, of those that are as early in the first of their streams: there, it is
    a path from stream to stream through rows within the window after it. Paths are counted by products of matrices.
    """
    window_us = chain.window_s * 1_000_000
    tables = [pa.concat_tables([batch[name] for batch in batches]) for name in chain.names]
    columns = [{name: table[name].to_numpy() for name in ("k", "n", "u", "v")} for table in tables]
    times = [table["ts"].cast(pa.int64()).to_numpy() for table in tables]
    total = np.zeros(2, dtype=np.uint64)
    for key in range(chain.keys * chain.copies):
        mine = [np.flatnonzero(each["k"] == key) for each in columns]
        ts = [each[rows] for each, rows in zip(times, mine, strict=True)]
        weights = [_two_weights(each["n"][rows]) for each, rows in zip(columns, mine, strict=True)]
        links = [
            _link(columns[i]["u"][mine[i]], columns[i + 1]["v"][mine[i + 1]], share)
            for i, share in enumerate(chain.passing)
        ]
        for first, firsts in enumerate(ts):
            for number, at in enumerate(firsts):
                slices = [
                    slice(*np.searchsorted(each, [at + (stream < first), at + window_us]))
                    for stream, each in enumerate(ts)
                ]
                slices[first] = slice(number, number + 1)
                total += _paths(links, weights, slices)
    return total


def _two_weights(numbers: npt.NDArray[Any]) -> Sums:
    """One for the count, and one for the checksum."""
    return np.stack([np.ones(len(numbers), dtype=np.uint64), _weights(numbers)])


def _link(u: npt.NDArray[Any], v: npt.NDArray[Any], passing: float) -> Sums:
    passes = u[:, None] < v[None, :] if passing < 1 else np.ones((len(u), len(v)), dtype=bool)
    return passes.astype(np.uint64)


def _paths(links: Sequence[Sums], weights: Sequence[Sums], slices: Sequence[slice]) -> Sums:
    reached = weights[0][:, slices[0]]
    for i, link in enumerate(links):
        reached = reached @ link[slices[i], slices[i + 1]] * weights[i + 1][:, slices[i + 1]]
    return reached.sum(axis=1, dtype=np.uint64)
