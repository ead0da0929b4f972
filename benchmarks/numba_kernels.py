"""Rivals of our kernels as compiled loops; for `benchmarks/kernels.py`, where numba is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

INSTALLED = importlib.util.find_spec("numba") is not None
VERSION = importlib.metadata.version("numba") if INSTALLED else None
RADIX_BITS = 11


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled on its first call, or as it is: without numba nobody calls it."""
    if not INSTALLED:
        return function
    import numba

    return numba.njit(nogil=True)(function)


@compiled
def first_not_below(values: Ints, low: int, high: int, wanted: int) -> int:
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def search(
    times: Ints, starts: npt.NDArray[np.int32], positions: Ints, low: Ints, high: Ints
) -> tuple[Ints, Ints]:  # fmt: skip
    """(needle, row) for all rows of the needle's key with low <= time < high: search within the key, then expand."""
    begin = np.zeros(len(positions), np.int64)
    end = np.zeros(len(positions), np.int64)
    total = 0
    for i in range(len(positions)):
        p = positions[i]
        if p >= 0:
            begin[i] = first_not_below(times, starts[p], starts[p + 1], low[i])
            end[i] = first_not_below(times, begin[i], starts[p + 1], high[i])
            total += end[i] - begin[i]
    needles = np.empty(total, np.int64)
    rows = np.empty(total, np.int64)
    k = 0
    for i in range(len(positions)):
        for row in range(begin[i], end[i]):
            needles[k] = i
            rows[k] = row
            k += 1
    return needles, rows


@compiled
def radix_argsort(values: npt.NDArray[Any]) -> Ints:
    """A stable argsort of values that are not negative: least significant digit first, digits all equal skipped."""
    count = len(values)
    mask = np.uint64((1 << RADIX_BITS) - 1)
    keys, spare_keys = values.astype(np.uint64), np.empty(count, np.uint64)
    order, spare = np.arange(count), np.empty(count, np.int64)
    for shift in range(0, 64, RADIX_BITS):
        bits = np.uint64(shift)
        places = np.zeros((1 << RADIX_BITS) + 1, np.int64)
        for key in keys:
            places[np.int64((key >> bits) & mask) + 1] += 1
        if places.max() == count:
            continue
        places = np.cumsum(places)
        for i in range(count):
            digit = np.int64((keys[i] >> bits) & mask)
            place = places[digit]
            places[digit] = place + 1
            spare_keys[place] = keys[i]
            spare[place] = order[i]
        keys, spare_keys = spare_keys, keys
        order, spare = spare, order
    return order


@compiled
def merge_argsort(values: npt.NDArray[Any]) -> Ints:
    """A stable argsort that merges the ascending runs it finds, two by two."""
    count = len(values)
    edges = [0]
    for i in range(1, count):
        if values[i] < values[i - 1]:
            edges.append(i)
    edges.append(count)
    order, spare = np.arange(count), np.empty(count, np.int64)
    while len(edges) > 2:
        kept = [0]
        for e in range(0, len(edges) - 1, 2):
            low, middle = edges[e], edges[e + 1]
            high = edges[e + 2] if e + 2 < len(edges) else middle
            i, j = low, middle
            for k in range(low, high):
                if j == high or (i < middle and values[order[i]] <= values[order[j]]):
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
            kept.append(high)
        order, spare = spare, order
        edges = kept
    return order


@compiled
def take(values: npt.NDArray[Any], rows: Ints) -> npt.NDArray[Any]:
    result = np.empty(len(rows), values.dtype)
    for i in range(len(rows)):
        result[i] = values[rows[i]]
    return result
