"""The kernels of a probe: match distinct keys, search time ranges, expand ranges into rows. Whole arrays only.

Keys are matched once per (delta, run) on *distinct* keys, with their values compared; the rows of a delta, however many
share a key, then only look up a position. A window is a range of codes (see `state/run.py`), so a probe touches exactly
the rows that satisfy key and window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.state.run import Ints, Run, keys_equal

NO_KEY = -1


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Matches of needles as row ranges of one run: needle i matches rows start[i] .. start[i] + count[i]."""

    needle: Ints
    start: Ints
    count: Ints

    def slice(self, low: int, high: int) -> Ranges:
        return Ranges(self.needle[low:high], self.start[low:high], self.count[low:high])


def match_keys(delta: Run, target: Run) -> Ints:
    """For every distinct key of `delta` its position among the keys of `target`, or NO_KEY."""
    positions = np.searchsorted(target.hashes, delta.hashes).astype(np.int64)
    result = np.full(len(positions), NO_KEY, dtype=np.int64)
    open_keys = np.arange(len(positions), dtype=np.int64)
    size = len(target.hashes)
    # One round, unless different keys share a hash: then the next entry with that hash is tried.
    while len(open_keys):
        inside = positions[open_keys] < size
        open_keys = open_keys[inside]
        open_keys = open_keys[target.hashes[positions[open_keys]] == delta.hashes[open_keys]]
        if len(open_keys) == 0:
            break
        equal = keys_equal(delta.keys, open_keys, target.keys, positions[open_keys])
        found = open_keys[equal]
        result[found] = positions[found]
        open_keys = open_keys[~equal]
        positions[open_keys] += 1
    return result


def all_rows(target: Run, positions: Ints) -> Ranges:
    """Every row of the matched keys; `positions` holds one entry per needle."""
    needle = np.flatnonzero(positions >= 0)
    found = positions[needle]
    start = target.starts[found].astype(np.int64)
    return Ranges(needle, start, target.starts[found + 1] - start)


def rows_between(target: Run, positions: Ints, low: Ints, high: Ints) -> Ranges:
    """The rows of the matched keys with low <= event time < high, per needle."""
    assert target.codes is not None
    near = (positions >= 0) & (low <= target.time_max) & (high > target.time_min)
    needle = np.flatnonzero(near)
    found = positions[needle]
    low, high = low[needle], high[needle]
    if len(needle) and low.max() <= target.time_min and high.min() > target.time_max:
        start = target.starts[found].astype(np.int64)
        return Ranges(needle, start, target.starts[found + 1] - start)
    base = (found + np.int64(target.rank_base)) << np.int64(target.time_bits)
    origin = np.int64(target.time_origin)
    span = np.int64(target.time_max - target.time_origin + 1)
    start = np.searchsorted(target.codes, base + np.clip(low - origin, 0, span))
    stop = np.searchsorted(target.codes, base + np.clip(high - origin, 0, span))
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
