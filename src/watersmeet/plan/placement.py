"""Placement: per key, which slot owns which partition group (DESIGN 3).

Rows of one group under one key are stored and joined on one slot. The groups of a slot need not be contiguous, and two
keys may be placed differently. A store that several hop stages probe is placed by its key, so all of them find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from watersmeet.plan.partitioning import even_assignment

Owners = tuple[int, ...]
"""The slot of every group."""


@dataclass(frozen=True, slots=True)
class Move:
    """Groups of a key go from one slot to another."""

    key: str
    sender: int
    receiver: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The owner of every group, by key."""

    slots: int
    owners: Mapping[str, Owners]

    @property
    def partitions(self) -> int:
        return len(next(iter(self.owners.values())))

    def after(self, moves: Iterable[Move]) -> Placement:
        """The placement after some moves. ValueError if a group is not the sender's, or a slot does not exist."""
        owners = {key: list(mine) for key, mine in self.owners.items()}
        for move in moves:
            if not 0 <= move.receiver < self.slots:
                raise ValueError(f"there is no slot {move.receiver}: {move}")
            for group in move.groups:
                if owners[move.key][group] != move.sender:
                    raise ValueError(f"group {group} is on slot {owners[move.key][group]}: {move}")
                owners[move.key][group] = move.receiver
        return Placement(self.slots, {key: tuple(mine) for key, mine in owners.items()})


def even_placement(keys: Iterable[str], partitions: int, slots: int) -> Placement:
    """Contiguous, equal shares, the same for all keys."""
    owners = even_assignment(partitions, slots)
    return Placement(slots, dict.fromkeys(keys, owners))


def still_due(moves: Iterable[Move], placement: Placement) -> tuple[Move, ...]:
    """The moves without groups that are not on their sender."""
    found = []
    for move in moves:
        owners = placement.owners.get(move.key, ())
        if left := tuple(group for group in move.groups if owners and owners[group] == move.sender):
            found.append(replace(move, groups=left))
    return tuple(found)


def groups_moved(before: Placement, after: Placement) -> int:
    """The number of groups that have changed slots, over the keys that both have."""
    pairs = ((mine, after.owners[key]) for key, mine in before.owners.items() if key in after.owners)
    return sum(a != b for old, new in pairs for a, b in zip(old, new, strict=True))


def to_lists(owners: Owners) -> list[list[int]]:
    """Owners as pairs [slot, number of groups], for JSON."""
    return [[slot, len(list(groups))] for slot, groups in groupby(owners)]


def from_lists(pairs: Iterable[tuple[int, int]]) -> Owners:
    return tuple(slot for slot, count in pairs for _ in range(count))
