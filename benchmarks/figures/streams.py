"""Streams whose values recur as the papers say: V appears R times for every K tuples (S5, 6.1; R6, 3.1).

K is the *tuple range*, R the *join ratio* (R6: *join rate*) of V. A join's average ratio is that over its values; the
values of one partition share their ratio. How ratios vary the papers leave open, but for Figure 7 of R6: there, a third
of the partitions has 4, a third 2 and a third 1. We take these thirds (4 : 2 : 1, scaled to the join's average)
wherever ratios vary, deal them out to the partitions by chance, and anew for every join: that a partition is productive
in one join says nothing of those that its results meet in the next.

Within each K tuples every value appears R times, rounded down or up by chance, at random places. The columns of a
stream are independent of each other. Every row has a number, and results are these numbers: an intermediate row is
wider than the rows it is made of, as it is in the papers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.plan.partitioning import group_of
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess_frames import pandas_hash

Ints = npt.NDArray[np.int64]
Rng = np.random.Generator
Columns = dict[str, Ints]
"""By names such as `a.x`: the values of one column, in the order of arrival."""

PARTITIONS = 300
THIRDS = (4.0, 2.0, 1.0)
EVEN = (1.0,)
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("n", pa.int64())])


@dataclass(frozen=True, slots=True)
class Workload:
    """A query, its plan, and the streams it joins."""

    name: str
    query: JoinQuery
    plan: str
    columns: Columns
    rows: int
    """Of each stream."""
    interarrival_ms: int
    results: int
    """Of the whole join, counted without the engine."""
    checksum: int
    """Sum, over all results, of the number of the row of stream c."""

    def minutes(self, rows: int) -> float:
        return rows * self.interarrival_ms / 60_000

    def batches(self, seconds: int) -> Iterator[dict[str, pa.Table]]:
        """Micro-batches of so many virtual seconds."""
        size = seconds * 1000 // self.interarrival_ms
        numbers = np.arange(self.rows)
        unused = np.zeros(self.rows, dtype=np.int64)
        tables = {
            s.name: pa.table(
                [self.columns[f"{s.name}.x"], self.columns.get(f"{s.name}.y", unused), numbers], schema=SCHEMA
            )
            for s in self.query.streams
        }
        for start in range(0, self.rows, size):
            yield {name: table.slice(start, size) for name, table in tables.items()}


def five_streams(ratios: tuple[float, float, float], *, seed: int, rows: int, tuple_range: int) -> Workload:
    """S5's query (Fig. 15): Join1 of A, B and C on first columns, Join2 with D, Join3 with E."""
    rng = np.random.default_rng(seed)
    first, second, third = (_values(ratio, THIRDS, rows, tuple_range, rng) for ratio in ratios)
    columns = {
        "a.x": first(), "b.x": first(), "c.x": first(),
        "c.y": second(), "d.x": second(),
        "d.y": third(), "e.x": third(),
    }  # fmt: skip
    query = _query("abcde", ["a.x = b.x", "b.x = c.x", "c.y = d.x", "d.y = e.x"])
    beyond = np.bincount(columns["d.x"], weights=_matches(columns["d.y"], columns["e.x"]))
    per_c = _matches(columns["c.x"], columns["a.x"]) * _matches(columns["c.x"], columns["b.x"])
    per_c *= np.pad(beyond, (0, int(columns["c.y"].max()) + 1))[columns["c.y"]]
    name = ",".join(f"{ratio:g}" for ratio in ratios)
    return Workload(name, query, "(((a b c) d) e)", columns, rows, 50, *_sums(per_c))


def three_streams(rate: float, shares: tuple[float, ...], *, seed: int, rows: int, tuple_range: int) -> Workload:
    """R6's query: a three-way join on one column."""
    rng = np.random.default_rng(seed)
    values = _values(rate, shares, rows, tuple_range, rng)
    columns = {"a.x": values(), "b.x": values(), "c.x": values()}
    per_c = _matches(columns["c.x"], columns["a.x"]) * _matches(columns["c.x"], columns["b.x"])
    return Workload("three-way", _query("abc", ["a.x = b.x", "b.x = c.x"]), "(a b c)", columns, rows, 30, *_sums(per_c))


def _query(streams: str, where: list[str]) -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA) for name in streams],
        where=where,
        within=None,
        windows={},
        select=[f"{name}.n AS {name}n" for name in streams],
    )


def _values(ratio: float, shares: tuple[float, ...], rows: int, tuple_range: int, rng: Rng) -> Callable[[], Ints]:
    """What makes the columns of one join: independent ones, whose values have the same ratios."""
    count = round(tuple_range / ratio)
    groups = group_of(pandas_hash([pa.array(np.arange(count))]), PARTITIONS)
    of_partition = rng.permutation(np.resize(np.array(shares), PARTITIONS))
    weights = np.cumsum(of_partition[groups])
    weights /= weights[-1]

    def column() -> Ints:
        ranges = []
        for _ in range(-(-rows // tuple_range)):
            places = (np.arange(tuple_range) + rng.random()) / tuple_range
            ranges.append(rng.permutation(np.searchsorted(weights, places, side="right")))
        return np.minimum(np.concatenate(ranges)[:rows], count - 1).astype(np.int64)

    return column


def _matches(values: Ints, others: Ints) -> npt.NDArray[np.float64]:
    """Per value: how often it is among the others."""
    return np.bincount(others, minlength=int(values.max()) + 1)[values].astype(np.float64)


def _sums(per_row: npt.NDArray[np.float64]) -> tuple[int, int]:
    """Results, and the sum of row numbers over them; integers well below 2**53."""
    return int(per_row.sum()), int((per_row.astype(np.int64) * np.arange(len(per_row))).sum())
