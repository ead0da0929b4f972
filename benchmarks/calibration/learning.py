"""What the first micro-batch of a query tells of its data: rates, and shares of pairs that match.

As a query on Spark learns it (`runtime/spark/learning.py`), with the same estimates from as many rows:

| figure             | estimate                                                              |
|--------------------|-----------------------------------------------------------------------|
| rate of a stream   | rows by the event time they span                                      |
| share of a class   | pairs of rows of two streams with equal keys, by all pairs; all pairs |
|                    | of streams together                                                   |
| share of a residual| combinations of some rows of each of its streams that satisfy it      |
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pyarrow as pa

from watersmeet.engine.expressions import evaluate
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.query.expressions import Column, Expression, columns_of
from watersmeet.query.logical import JoinQuery, KeyClass

SAMPLE_ROWS = 4096
"""Combinations that a residual predicate is tried on."""
LEAST_MATCHES = 0.5
"""Stands for none: no plan is free."""


def learned(query: JoinQuery, rows: Mapping[str, pa.Table]) -> Assumptions:
    """What some rows of every stream say of a query's data."""
    return Assumptions(
        rates={stream.name: _rate(rows[stream.name][stream.event_time]) for stream in query.streams},
        keys={i: _equal_share(query, key_class, rows) for i, key_class in enumerate(query.classes)},
        residuals={i: _passing_share(residual, rows) for i, residual in enumerate(query.residuals)},
    )


def _rate(times: pa.ChunkedArray) -> float:
    us = times.cast(pa.int64()).to_numpy()
    return len(us) * 1e6 / max(1, int(us.max()) - int(us.min()))


def _equal_share(query: JoinQuery, key_class: KeyClass, rows: Mapping[str, pa.Table]) -> float:
    counted = [
        np.unique(rows[query.streams[i].name][key_class.columns[i]].to_numpy(), return_counts=True)
        for i in sorted(key_class.streams)
    ]
    matches = pairs = 0
    for (values, counts), (others, other_counts) in combinations(counted, 2):
        _, here, there = np.intersect1d(values, others, assume_unique=True, return_indices=True)
        matches += int(counts[here] @ other_counts[there])
        pairs += int(counts.sum()) * int(other_counts.sum())
    return max(matches, LEAST_MATCHES) / pairs


def _passing_share(residual: Expression, rows: Mapping[str, pa.Table]) -> float:
    streams = sorted({column.stream for column in columns_of(residual)})
    size = int(SAMPLE_ROWS ** (1 / len(streams)))
    samples = {name: rows[name].slice(0, size) for name in streams}
    grid = np.indices([samples[name].num_rows for name in streams]).reshape(len(streams), -1)
    at = dict(zip(streams, grid, strict=True))

    def column(field: Column) -> pa.Array:
        return samples[field.stream][field.name].combine_chunks().take(pa.array(at[field.stream]))

    passed = evaluate(residual, column)
    return max(float(passed.sum()), LEAST_MATCHES) / len(passed)
