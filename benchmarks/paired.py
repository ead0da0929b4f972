"""Statistics of paired measurements: in which order the two of a pair are made, and what their ratios say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

Side = Literal["old", "new"]

LEVEL = 0.95


def order_of(pair: int) -> tuple[Side, Side]:
    """Old and new, new and old, old and new, ...: a machine that slowly gets slower is fair to both."""
    return ("old", "new") if pair % 2 == 0 else ("new", "old")


def median_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """An interval that holds the median of the distribution with at least this probability, whatever it is.

    The k-th value from below and the k-th from above, with k as large as possible: the median is outside them only if
    fewer than k of n values are on one side of it, and how many are is binomial (n, 1/2). None if the least and the
    greatest value do not suffice, as for fewer than 6 values at 95 %.
    """
    n, k, outside = len(values), 0, 0.0
    while k < n:
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - level:
            break
        k += 1
    ordered = sorted(values)
    return (ordered[k - 1], ordered[n - k]) if k else None


def summary(ratios: Sequence[float]) -> dict[str, object]:
    interval = median_interval(ratios)
    rounded = None if interval is None else [round(bound, 4) for bound in interval]
    return {"median_ratio": round(statistics.median(ratios), 4), "interval_95": rounded}
