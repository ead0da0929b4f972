"""Sets of partition groups: those that a slot owns, and those that an extent is cut to.

Groups are numbered in hash order (`plan/partitioning.py`). So a set of them is a tuple of ranges, and the rows of one
range are one slice of a run. A slot may own any groups: nothing relies on there being one range only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Groups:
    """A set of groups as half-open ranges: sorted, disjoint, not adjacent, none empty."""

    ranges: tuple[tuple[int, int], ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.ranges))

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def between(low: int, high: int) -> Groups:
        """The groups of [low, high)."""
        return Groups(((low, high),)) if low < high else NO_GROUPS

    @staticmethod
    def of(assignment: Sequence[int], slot: int) -> Groups:
        """The groups of a slot, given the slot of every group."""
        return _owned(tuple(assignment), slot)

    @staticmethod
    def where(mask: Mask) -> Groups:
        """The groups for which the mask holds."""
        padded = np.concatenate(([False], mask, [False]))
        return Groups.of_edges(np.flatnonzero(padded[1:] != padded[:-1]).tolist())

    @staticmethod
    def of_numbers(numbers: Sequence[int]) -> Groups:
        """The groups of these numbers, in any order."""
        mask = np.zeros(max(numbers, default=-1) + 1, dtype=np.bool_)
        mask[list(numbers)] = True
        return Groups.where(mask)

    @staticmethod
    def of_edges(edges: Sequence[int]) -> Groups:
        """The ranges from every first to every second edge."""
        return Groups(tuple(zip(edges[::2], edges[1::2], strict=True)))

    @property
    def edges(self) -> list[int]:
        """The ends of the ranges, as a flat list."""
        return list(chain.from_iterable(self.ranges))

    @property
    def low(self) -> int:
        """The first group; 0 if there is none."""
        return self.ranges[0][0] if self.ranges else 0

    @property
    def high(self) -> int:
        """One past the last group; 0 if there is none. [low, high) is the *hull*."""
        return self.ranges[-1][1] if self.ranges else 0

    def mask(self, partitions: int) -> Mask:
        """For every group below `partitions`, whether it is in the set."""
        before = np.searchsorted(np.array(self.edges, dtype=np.int64), np.arange(partitions), side="right")
        inside: Mask = before % 2 == 1
        return inside

    def numbers(self) -> Ints:
        """The groups, in order."""
        return np.flatnonzero(self.mask(self.high))

    def within(self, low: int, high: int) -> Groups:
        """The groups that are in [low, high)."""
        if low <= self.low and self.high <= high:
            return self
        cut = ((max(low, first), min(high, last)) for first, last in self.ranges if first < high and low < last)
        return Groups(tuple((first, last) for first, last in cut if first < last))

    def covers(self, others: Groups) -> bool:
        if len(self.ranges) == 1:
            return not others.ranges or (self.low <= others.low and others.high <= self.high)
        return self.ranges == others.ranges or not others - self

    def __len__(self) -> int:
        return sum(high - low for low, high in self.ranges)

    def __contains__(self, group: int) -> bool:
        return any(low <= group < high for low, high in self.ranges)

    def __and__(self, others: Groups) -> Groups:
        for some, more in ((self, others), (others, self)):
            if len(more.ranges) < 2:
                return some.within(more.low, more.high)
        size = min(self.high, others.high)
        return Groups.where(self.mask(size) & others.mask(size))

    def __sub__(self, others: Groups) -> Groups:
        if not self.ranges or self.high <= others.low or others.high <= self.low:
            return self
        return Groups.where(self.mask(self.high) & ~others.mask(self.high))

    def __or__(self, others: Groups) -> Groups:
        size = max(self.high, others.high)
        return Groups.where(self.mask(size) | others.mask(size))


@lru_cache(maxsize=4096)  # the same in every epoch
def _owned(assignment: tuple[int, ...], slot: int) -> Groups:
    return Groups.where(np.asarray(assignment) == slot)


NO_GROUPS = Groups()
