"""The selectivity of a predicate, from some rows of each stream: the share of combinations that it lets pass.

A key class: pairs of rows with equal keys, divided by all pairs of rows, over all pairs of its streams. If no pair
matches, half a pair is counted: no plan is free. Large batches are sampled in two ways. Random rows show the keys with
many rows; all rows of some keys, chosen by hash, show the other keys. (Random rows would hardly ever contain a pair of
a rare key, and a choice by hash may miss all keys if there are few.)

Any other predicate: the combinations that pass, divided by those tested. There are too many to test all. All
combinations of a few rows say little: the number of different rows counts. So rows are combined at random, each
equally often: with 8,192 rows of two streams, a share of a third is known within some 3 %.

Bytes and time are bounded. Wide rows are sampled less. Combinations are tested block by block; when the bytes or the
time are used up, the share is that of the combinations tested so far.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.expressions import evaluate
from watersmeet.query.expressions import Column, Expression, columns_of

SAMPLE_ROWS = 8192
"""Rows of a stream to sample, for predicates that are not keys."""
SAMPLE_BYTES = 64 << 20
"""At most about this many bytes of a stream's rows are sampled."""
COMBINATIONS = 32_768
"""This many combinations are tested, unless bytes or time are used up before."""
BLOCK_BYTES = 32 << 20
"""At most this many bytes are gathered at once, unless a single combination has more;"""
TESTED_BYTES = 256 << 20
"""at most this many for a predicate;"""
TESTING_S = 1.0
"""and no block starts after this many seconds."""
FIRST_BLOCK_ROWS, BLOCK_GROWTH = 32, 8
FREQUENT_ROWS = 32
"""A key counts as one with many rows if the random rows contain this many of it."""
LEAST_MATCHES = 0.5
_OF_ANY_LENGTH = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


def equal_share(rows_by_key: Floats, rows: Sequence[int], streams: Sequence[int]) -> float | None:
    """The selectivity of a key class over some streams, from its rows by key and stream, and all rows by stream; None
    if there is no pair of rows."""
    pairs = list(combinations(streams, 2))
    possible = sum(rows[i] * rows[j] for i, j in pairs)
    if not possible:
        return None
    equal = sum(float(rows_by_key[:, i] @ rows_by_key[:, j]) for i, j in pairs)
    return max(equal, LEAST_MATCHES) / possible


def rows_by_key(
    hashes: Integers, stream: Integers, by_chance: npt.NDArray[np.bool_], part: int, streams: int
) -> Floats:
    """Estimated rows by key and stream, such that the expected number of pairs of two streams is right. They come from
    the random rows, one in `part`, and from all rows whose hash is a multiple of `part`."""
    keys, key_of_row = np.unique(hashes, return_inverse=True)

    def counted(chosen: npt.NDArray[np.bool_]) -> Floats:
        cells = key_of_row[chosen] * streams + stream[chosen]
        return np.bincount(cells, minlength=len(keys) * streams).reshape(-1, streams).astype(np.float64)

    by_chance_of_key = counted(by_chance)
    is_frequent = by_chance_of_key.sum(axis=1, keepdims=True) >= FREQUENT_ROWS
    return np.where(is_frequent, by_chance_of_key * part, counted(hashes % part == 0) * part**0.5)


def rows_to_sample(row_bytes: float) -> int:
    """How many rows of a stream to sample, given the mean bytes read per row."""
    return max(1, min(SAMPLE_ROWS, int(SAMPLE_BYTES / max(1.0, row_bytes))))


def passing_share(predicate: Expression, samples: Mapping[str, pa.RecordBatch]) -> float | None:
    """The selectivity of any other predicate, from some rows of each of its streams; None if a stream has no rows."""
    counts = [sample.num_rows for sample in samples.values()]
    if not all(counts):
        return None
    chosen = dict(zip(samples, _combined(counts), strict=True))
    passed, tested = _tested(predicate, samples, chosen)
    return max(float(passed), LEAST_MATCHES) / tested


def _tested(
    predicate: Expression, samples: Mapping[str, pa.RecordBatch], chosen: Mapping[str, Integers]
) -> tuple[int, int]:
    """How many combinations pass, and how many were tested.

    The first block has few rows, because the time of a registered predicate is unknown; later blocks have more, as far
    as time is left.
    """
    reached = np.cumsum(_gathered_bytes(predicate, samples, chosen))
    passed = done = 0
    rows_max, spent_s = FIRST_BLOCK_ROWS, 0.0
    while done < len(reached) and spent_s < TESTING_S and not (done and reached[done] > TESTED_BYTES):
        bytes_before = int(reached[done - 1]) if done else 0
        fits = int(np.searchsorted(reached, min(bytes_before + BLOCK_BYTES, TESTED_BYTES), side="right"))
        end = max(done + 1, min(done + rows_max, fits))
        block = {name: pa.array(rows[done:end]) for name, rows in chosen.items()}
        began = time.perf_counter()
        passed += int(evaluate(predicate, partial(_gathered, samples, block), end - done).sum())
        took_s = time.perf_counter() - began
        spent_s += took_s
        affordable = int((TESTING_S - spent_s) * (end - done) / max(took_s, 1e-9))
        rows_max = max(1, min(rows_max * BLOCK_GROWTH, affordable))
        done = end
    return passed, done


def _gathered(samples: Mapping[str, pa.RecordBatch], rows: Mapping[str, pa.Array], column: Column) -> pa.Array:
    return samples[column.stream].column(column.name).take(rows[column.stream])


def _gathered_bytes(
    predicate: Expression, samples: Mapping[str, pa.RecordBatch], chosen: Mapping[str, Integers]
) -> Integers:
    """The bytes that a predicate reads, by combination."""
    by_column = [
        _value_bytes(samples[column.stream].column(column.name))[chosen[column.stream]]
        for column in columns_of(predicate)
    ]
    return np.sum([np.zeros(len(next(iter(chosen.values()))), dtype=np.int64), *by_column], axis=0)


def _value_bytes(values: pa.Array) -> Integers:
    """Bytes by row: exact for strings and binaries, the mean for all other types."""
    if values.type in _OF_ANY_LENGTH:
        lengths: Integers = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
        return lengths
    return np.full(len(values), -(-values.nbytes // len(values)), dtype=np.int64)


def _combined(counts: Sequence[int]) -> list[Integers]:
    """The row numbers of each combination, by stream; all combinations if there are few. Any first part of them is a
    random sample."""
    rng = np.random.default_rng(0)
    if prod(counts) <= COMBINATIONS:
        return list(np.unravel_index(rng.permutation(prod(counts)), counts))
    return [_shuffled(count, rng) for count in counts]


def _shuffled(count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """All rows in random order, then again in another order, as often as needed."""
    rounds = [rng.permutation(count) for _ in range(-(-COMBINATIONS // count))]
    return np.concatenate(rounds)[:COMBINATIONS]
