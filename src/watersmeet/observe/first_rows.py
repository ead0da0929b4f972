"""What some rows of each stream tell of a predicate: the share of combinations that it lets pass.

A key class: pairs of rows with equal keys, by all pairs of rows, over all pairs of its streams. Where none match it is
as if half a pair had: no plan is free. Of many rows a part is counted, in two ways: rows by chance, which shows the
keys that have many rows, and all rows of some keys, by their hash, which shows the others. (Pairs of a rare key would
hardly ever be among rows by chance, and of few keys all may be left out.)

Any other predicate: the combinations that pass, by those tested. There are too many to test all, and all that a few
rows make say little: what counts is how many different rows take part. So rows are combined by chance, each of them
equally often: with 8,192 rows of two streams, a share of a third is known within some 3 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.expressions import evaluate
from watersmeet.query.expressions import Expression

SAMPLE_ROWS = 8192
"""Rows of a stream that are worth having, for predicates that are not keys."""
COMBINATIONS = 32_768
"""Of these rows, so many are tested."""
FREQUENT_ROWS = 32
"""A key is one of those with many rows if so many are among those by chance."""
LEAST_MATCHES = 0.5

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


def equal_share(rows_by_key: Floats, rows: Sequence[int], streams: Sequence[int]) -> float | None:
    """Of a key class over some streams, by its rows of each key and stream, and all rows by stream; None if there is no
    pair of rows."""
    pairs = list(combinations(streams, 2))
    possible = sum(rows[i] * rows[j] for i, j in pairs)
    if not possible:
        return None
    equal = sum(float(rows_by_key[:, i] @ rows_by_key[:, j]) for i, j in pairs)
    return max(equal, LEAST_MATCHES) / possible


def rows_by_key(
    hashes: Integers, stream: Integers, by_chance: npt.NDArray[np.bool_], part: int, streams: int
) -> Floats:
    """By key and stream, so many rows that two streams have as many pairs as is to be expected: of rows by chance, one
    in `part`, and of all rows whose hash is a multiple of `part`."""
    keys, key_of_row = np.unique(hashes, return_inverse=True)

    def counted(chosen: npt.NDArray[np.bool_]) -> Floats:
        cells = key_of_row[chosen] * streams + stream[chosen]
        return np.bincount(cells, minlength=len(keys) * streams).reshape(-1, streams).astype(np.float64)

    by_chance_of_key = counted(by_chance)
    is_frequent = by_chance_of_key.sum(axis=1, keepdims=True) >= FREQUENT_ROWS
    return np.where(is_frequent, by_chance_of_key * part, counted(hashes % part == 0) * part**0.5)


def passing_share(predicate: Expression, samples: Mapping[str, pa.RecordBatch]) -> float | None:
    """Of any other predicate, by some rows of each of its streams; None if there are none of a stream."""
    counts = [sample.num_rows for sample in samples.values()]
    if not all(counts):
        return None
    chosen = dict(zip(samples, _combined(counts), strict=True))
    passed = evaluate(
        predicate,
        lambda column: samples[column.stream].column(column.name).take(chosen[column.stream]),
        len(chosen[next(iter(samples))]),
    )
    return max(float(passed.sum()), LEAST_MATCHES) / len(passed)


def _combined(counts: Sequence[int]) -> list[pa.Array]:
    """Numbers of rows, by stream, of each combination: of all if they are few."""
    if prod(counts) <= COMBINATIONS:
        return [pa.array(grid.ravel()) for grid in np.indices(counts)]
    rng = np.random.default_rng(0)
    return [pa.array(_shuffled(count, rng)) for count in counts]


def _shuffled(count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Each row once in some order, and again in another, as often as is needed."""
    rounds = [rng.permutation(count) for _ in range(-(-COMBINATIONS // count))]
    return np.concatenate(rounds)[:COMBINATIONS]
