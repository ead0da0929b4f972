"""The kernels of a probe: match distinct keys, search time ranges, expand ranges into rows. Whole arrays only.

Keys are matched once per (delta, run) on *distinct* keys, with their values compared; each row of a delta then only
looks up a position. If a run holds a range of the hashes, only keys in that range are searched; keys that its sieve
rejects are not searched at all. Only matches are kept. So a store of many such runs costs little more than one run.
A window is a range of codes (see `state/run.py`), so a probe touches exactly the rows that satisfy key and window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.state.run import Ints, Run, keys_equal
from watersmeet.state.sieve import Lookup


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Keys that a delta and a run have in common: their numbers in the delta, ascending, and positions in the run."""

    keys: Ints
    positions: Ints

    def of_needles(self, order: Ints, ranks: Ints) -> tuple[Ints, Ints]:
        """Needles with a matched key, and its position. `order` sorts needles by key; `ranks` are the sorted keys."""
        start = np.searchsorted(ranks, self.keys)
        count = np.searchsorted(ranks, self.keys, side="right") - start
        number, places = expand(Ranges(np.arange(len(count)), start, count))
        return order[places], self.positions[number]


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Matches of needles as row ranges of one run: needle i matches rows start[i] .. start[i] + count[i]."""

    needle: Ints
    start: Ints
    count: Ints

    def slice(self, low: int, high: int) -> Ranges:
        return Ranges(self.needle[low:high], self.start[low:high], self.count[low:high])


def match_keys(delta: Run, target: Run, lookup: Lookup | None = None) -> Matches:
    """The distinct keys of `delta` that `target` has; `lookup` of the delta's hashes can be reused between calls."""
    first, last = 0, 0
    if len(target.hashes):
        first = int(delta.hashes.searchsorted(target.hashes[0]))
        last = int(delta.hashes.searchsorted(target.hashes[-1], side="right"))
    if target.sieve is None:
        open_keys = np.arange(first, last, dtype=np.int64)
    else:
        open_keys = target.sieve.may_have(lookup or Lookup(delta.hashes), first, last)
    positions = target.hashes.searchsorted(delta.hashes[open_keys]) if len(open_keys) else open_keys
    found: list[tuple[Ints, Ints]] = []
    # One round, unless different keys share a hash: then the next entry with that hash is tried.
    while len(open_keys):
        inside = target.hashes.take(positions, mode="clip") == delta.hashes[open_keys]
        inside &= positions < len(target.hashes)
        open_keys, positions = open_keys[inside], positions[inside]
        if not len(open_keys):
            break
        equal = keys_equal(delta.keys, open_keys, target.keys, positions)
        found.append((open_keys[equal], positions[equal]))
        open_keys, positions = open_keys[~equal], positions[~equal] + 1
    if len(found) < 2:
        return Matches(*found[0]) if found else Matches(open_keys, open_keys)
    keys, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(keys)
    return Matches(keys[order], places[order])


def all_rows(target: Run, positions: Ints) -> Ranges:
    """Every row of the matched keys; `positions` holds one entry per needle."""
    start = target.starts[positions].astype(np.int64)
    return Ranges(np.arange(len(positions)), start, target.starts[positions + 1] - start)


def rows_between(target: Run, positions: Ints, first: Ints, last: Ints) -> Ranges:
    """The rows of the matched keys with first <= event time <= last, per needle."""
    assert target.codes is not None
    near = (first <= target.time_max) & (last >= target.time_min)
    needle = np.flatnonzero(near)
    found = positions[needle]
    first, last = first[needle], last[needle]
    if len(needle) and first.max() <= target.time_min and last.min() >= target.time_max:
        start = target.starts[found].astype(np.int64)
        return Ranges(needle, start, target.starts[found + 1] - start)
    base = (found + np.int64(target.rank_base)) << np.int64(target.time_bits)
    origin, end = np.int64(target.time_origin), np.int64(target.time_max)
    start = np.searchsorted(target.codes, base + (np.maximum(first, origin) - origin))
    stop = np.searchsorted(target.codes, base + (np.minimum(last, end) - origin), side="right")
    hit = stop > start
    return Ranges(needle[hit], start[hit], (stop - start)[hit])


def split_long(ranges: Ranges, rows_max: int) -> Ranges:
    """The same matches with no range longer than `rows_max`, so that one hot key can be expanded piece by piece."""
    if len(ranges.count) == 0 or int(ranges.count.max()) <= rows_max:
        return ranges
    pieces = -(-ranges.count // rows_max)
    owner = np.repeat(np.arange(len(pieces)), pieces)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = ranges.start[owner] + number * rows_max
    count = np.minimum(ranges.count[owner] - number * rows_max, rows_max)
    return Ranges(ranges.needle[owner], start, count)


def split_heavy(ranges: Ranges, weigh: Callable[[Ranges], Ints], weight_max: int) -> tuple[Ranges, Ints]:
    """The same matches with no range heavier than `weight_max`, unless it is one row; and their weights."""
    while True:
        weights = weigh(ranges)
        heavy = (weights > weight_max) & (ranges.count > 1)
        if not heavy.any():
            return ranges, weights
        owner = np.repeat(np.arange(len(heavy)), 1 + heavy)
        is_second = np.append(False, owner[1:] == owner[:-1])
        half = np.where(heavy, ranges.count // 2, 0)[owner]
        start = ranges.start[owner] + np.where(is_second, half, 0)
        count = np.where(is_second | ~heavy[owner], ranges.count[owner] - half, half)
        ranges = Ranges(ranges.needle[owner], start, count)


def cut_points(counts: npt.NDArray[np.int64], rows_max: int) -> list[int]:
    """Indices that cut consecutive ranges into pieces of about `rows_max` rows each, at least one range a piece."""
    total = np.cumsum(counts)
    cuts = [0]
    while cuts[-1] < len(counts):
        done = int(total[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(total, done + rows_max, side="right"))))
    return cuts


def expand(ranges: Ranges) -> tuple[Ints, Ints]:
    """(needle, row) for every match."""
    needles = np.repeat(ranges.needle, ranges.count)
    offsets = np.cumsum(ranges.count) - ranges.count
    rows = np.arange(len(needles), dtype=np.int64) + np.repeat(ranges.start - offsets, ranges.count)
    return needles, rows
