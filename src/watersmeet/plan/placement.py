"""Placement: per key, which slot owns which partition group (DESIGN 3).

Rows of one group under one key are stored and joined on one slot. The groups of a slot need not be contiguous, and two
keys may be placed differently. A store that several hop stages probe is placed by its key, so all of them find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from watersmeet.plan.partitioning import even_assignment

Owners = tuple[int, ...]
"""The slot of every group."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The owner of every group, by key."""

    slots: int
    owners: Mapping[str, Owners]

    @property
    def partitions(self) -> int:
        return len(next(iter(self.owners.values())))


def even_placement(keys: Iterable[str], partitions: int, slots: int) -> Placement:
    """Contiguous, equal shares, the same for all keys."""
    owners = even_assignment(partitions, slots)
    return Placement(slots, dict.fromkeys(keys, owners))


def to_lists(owners: Owners) -> list[list[int]]:
    """Owners as pairs [slot, number of groups], for JSON."""
    return [[slot, len(list(groups))] for slot, groups in groupby(owners)]


def from_lists(pairs: Iterable[tuple[int, int]]) -> Owners:
    return tuple(slot for slot, count in pairs for _ in range(count))
