"""What arrives: rows a second of every stream, and how they are spread over the partition groups of every key.

`spread` may change with time; that is how load wanders between slots. Both simulations take the same `Load`: the
counter model its expected rows per group, the real engine rows drawn from it by a seed (`drawn_rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from watersmeet.simulation.clock import Floats

Spread = Callable[[float], Floats]
"""Per partition group of a key, its share of the rows at a time; the shares add up to 1."""
Pace = Callable[[float], float]
"""The rate at a time, over the mean rate."""


def steady(_: float) -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """The arrivals of a query."""

    rates: Sequence[float]
    """Mean rows a second, by stream."""
    spread: Mapping[str, Spread]
    """By key."""
    weights: Mapping[str, Floats] = field(default_factory=dict)
    """By key: how likely two rows of a group match, over the mean of all groups; without it, equally likely."""
    pace: Pace = steady
    matched: Mapping[str, Floats] = field(default_factory=dict)
    """By key: the shares by which selectivities hold; without it, those at the start. A group with a larger share than
    this has more results than selectivities say."""

    def rows(self, stream: int, since_s: float, until_s: float) -> float:
        """The expected rows of a span; the pace is that of its middle."""
        return self.rates[stream] * self.pace((since_s + until_s) / 2) * (until_s - since_s)

    def matched_by(self, key: str) -> Floats:
        return self.matched[key] if key in self.matched else self.spread[key](0.0)

    def shares(self, key: str, since_s: float, until_s: float) -> Floats:
        """The shares of a span: those of its middle."""
        return self.spread[key]((since_s + until_s) / 2)


def evenly(partitions: int) -> Spread:
    """The same share for all groups."""
    shares = np.full(partitions, 1 / partitions)
    return lambda _: shares


def zipf(partitions: int, exponent: float, seed: int) -> Spread:
    """Shares like 1 / rank^exponent, in random order; 0 is even."""
    shares = 1 / np.arange(1, partitions + 1) ** exponent
    shares = np.random.default_rng(seed).permutation(shares / shares.sum())
    return lambda _: shares


def normed(values: Floats) -> Floats:
    return values / values.sum()
