"""Key sketches: the rows of a stream, counted by the hashed value of a key. Any two of them give a selectivity.

A running tree never sees the pairs that it does not join, so its own counts say nothing about them. A sketch is made of
the rows of one stream alone. Two sketches f and g under the same key, with B counters each, estimate the pairs with
equal keys:

    equal = (sum of f(b) g(b)  -  |f| |g| / B) / (1 - 1 / B)         the second term: pairs that collide by chance

Its standard error is about sqrt(F2(f) F2(g) / B), where F2 is the sum of squared rows per key. For keys that hardly
repeat this is a thirtieth of a match per row, however many rows there are. That is enough to compare plans: a row costs
more by being looked up than by a thirtieth of a match. (A sample of rows would have to hold a large part of the window
to see keys that match once, and a sample of keys by hash may miss the few frequent ones.)

Classes over the same streams are always joined together, so they are sketched as one key: only the selectivity of all
of them matters, and correlation between them is measured. Sketches add up over slots, chunks and epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from watersmeet.query.logical import JoinQuery

BUCKETS = 1024
KeyClasses: TypeAlias = tuple[int, ...]
Floats: TypeAlias = npt.NDArray[np.float64]
_COUNTER = np.dtype("<u4")


class SketchedKey(NamedTuple):
    """The key of a sketch: a stream, and the key classes that are hashed together."""

    stream: str
    classes: KeyClasses


def sketched_classes(query: JoinQuery) -> tuple[KeyClasses, ...]:
    """The key classes to sketch, those over the same streams together."""
    found: dict[frozenset[int], list[int]] = {}
    for number, key_class in enumerate(query.classes):
        found.setdefault(frozenset(key_class.streams), []).append(number)
    return tuple(map(tuple, found.values()))


def packed(counts: npt.NDArray[np.int64]) -> bytes:
    """A sketch as it travels in a report."""
    return counts.astype(_COUNTER).tobytes()


def unpacked(sketch: bytes) -> npt.NDArray[np.uint32]:
    return np.frombuffer(sketch, dtype=_COUNTER)


def equal_share(sketches: Sequence[Floats]) -> float | None:
    """The share of pairs of rows with equal keys, over all pairs of these sketches, from 0 on; None without pairs."""
    rows = np.array([sketch.sum() for sketch in sketches])
    together = np.sum(sketches, axis=0)
    pairs = (rows.sum() ** 2 - rows @ rows) / 2
    if not pairs > 0:
        return None
    met = (together @ together - sum(sketch @ sketch for sketch in sketches)) / 2
    equal = (met - pairs / BUCKETS) / (1 - 1 / BUCKETS)
    return float(max(0.0, equal) / pairs)
