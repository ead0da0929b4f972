"""Sketches of joined rows: a fixed number of doubles per group of results, to estimate the error of a sum.

Results of a join share rows, so they are not independent draws. How far a running sum may still move depends on how
much of it comes from single rows, pairs of rows, and so on. For a set A of the streams this is the second moment

    P_A = sum over tuples a of rows of the streams in A of (sum of y over the results that contain a)^2

(`engine/intervals.py` uses them). P_A is not additive, and an exact P_A would need a sum per row; a *count-sketch* of
these sums (fast-AGMS; Cormode and Garofalakis 2005) is additive and small. The rows of a result in the streams of A
choose one of `BUCKETS` numbers and a sign; y times the sign is added there:

    sketch[A, bucket(a)] += sign(a) * y        and then        E sum_b sketch[A, b]^2 = P_A

with a relative standard deviation of at most sqrt(2 / BUCKETS). Sketches of parts of the results add up to the sketch
of all, in any order. Sketches of several values of the same results have the same buckets and signs, so that the sketch
of y - c * x is sketch(y) - c * sketch(x). There is no random state: the same rows make the same sketch everywhere.

Sets of streams are bit masks, A = 1 .. 2^k - 1, and sketch[A - 1] is the sketch of A.

*Known limitation.* The doubles per group grow with 2^k, so there are at most `STREAMS_MAX` streams. Rows are identified
by their ids: rows of one stream with the same id count as one repeated row, which makes intervals wider.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from watersmeet.plan.aggregate import SKETCH_BUCKETS
from watersmeet.query.confidence import STREAMS_MAX

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

BUCKETS = SKETCH_BUCKETS
"""The relative error of a standard error is 1 / sqrt(2 * 64), or 9 %. With 32, 128 and 8192 buckets the populations
*zipf 0.8* and *chain* of `benchmarks/confidence_coverage.py` are covered as well as with 64: the error of the sample
itself is larger. If rows contribute alike, more buckets make intervals shorter."""
CHUNK = 1 << 14
"""Results hashed at a time; their hashes stay in the cache."""

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def subset_count(streams: int) -> int:
    """The number of non-empty sets of streams."""
    assert 1 <= streams <= STREAMS_MAX
    return (1 << streams) - 1


def sketch(
    ids: Sequence[Hashes],
    values: Sequence[Floats],
    groups: Ints,
    group_count: int,
    buckets: int = BUCKETS,
    salt: int = 0,
) -> Floats:
    """The sketches [value, group, set of streams, bucket] of some results.

    `ids[i]` has the id of each result's row of stream i, `values` are numbers of each result (0 if it does not count),
    `groups` the number of its group, below `group_count`. Sketches add up if they have the same streams, in the same
    order, and the same number of buckets and salt. Only tests choose `buckets` and `salt`.
    """
    subsets, bits = subset_count(len(ids)), buckets.bit_length() - 1
    assert buckets == 1 << bits
    found = np.zeros((len(values), subsets, group_count << bits))
    rows = max(CHUNK, group_count << bits)
    for start in range(0, len(groups), rows):
        part = slice(start, start + rows)
        first = groups[part] << np.int64(bits)
        for subset, hashes in _subset_hashes([stream[part] for stream in ids], salt):
            places = first + (hashes >> np.uint64(64 - bits)).astype(np.int64)
            sign = 1.0 - 2.0 * (hashes & np.uint64(1))
            for number, value in enumerate(values):
                found[number, subset - 1] += np.bincount(places, sign * value[part], group_count << bits)
    return np.ascontiguousarray(found.reshape(len(values), subsets, group_count, buckets).swapaxes(1, 2))


def _subset_hashes(ids: Sequence[Hashes], salt: int) -> Iterator[tuple[int, Hashes]]:
    """For every set of streams, a hash of the rows that each result has in them.

    A set is a smaller set plus its last stream: the hash of the smaller set is extended and mixed again. Sums of hashes
    alone are not enough, because those of (a, b), (a, d), (c, b) and (c, d) depend on each other.
    """
    known: dict[int, Hashes] = {}
    for number, stream in enumerate(ids):
        own = _mixed(stream + _constant(salt * STREAMS_MAX + number + 1))
        known[1 << number] = own
        yield 1 << number, own
        for subset in range(1, 1 << number):
            known[subset | 1 << number] = both = _mixed(known[subset] * np.uint64(_FIRST) + own)
            yield subset | 1 << number, both


def _constant(number: int) -> np.uint64:
    return np.uint64(number * _GOLDEN & 0xFFFFFFFFFFFFFFFF)


def _mixed(hashes: Hashes) -> Hashes:
    """Every bit depends on every bit (the finaliser of SplitMix64; Steele, Lea and Flood 2014)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(_FIRST)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(_SECOND)
    return hashes ^ (hashes >> np.uint64(31))
