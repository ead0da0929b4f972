"""A placement as arrays. With hundreds of slots, making them is most of a decision, so the last ones are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.adaptation.figures import Ints
from watersmeet.plan.placement import Placement


@dataclass(frozen=True, slots=True, eq=False)
class PlacedGroups:
    """A placement as arrays, by key."""

    placement: Placement
    owners: Mapping[str, Ints]
    groups: Mapping[str, Sequence[Ints]]
    """By slot, ascending."""

    @staticmethod
    def of_placement(placement: Placement) -> PlacedGroups:
        owners = {key: np.asarray(mine, dtype=np.int64) for key, mine in placement.owners.items()}
        groups = {}
        for key, mine in owners.items():
            order = np.argsort(mine, kind="stable")
            groups[key] = np.split(order, np.searchsorted(mine[order], np.arange(1, placement.slots)))
        return PlacedGroups(placement, owners, groups)

    def of(self, key: str, slot: int) -> Ints:
        """The groups of a slot, ascending."""
        groups = self.groups[key]
        return groups[slot] if slot < len(groups) else np.zeros(0, dtype=np.int64)


class LastPlaced:
    """The arrays of the placement that was asked about last."""

    def __init__(self) -> None:
        self._last: PlacedGroups | None = None

    def by(self, placement: Placement) -> PlacedGroups:
        if self._last is None or self._last.placement is not placement:
            self._last = PlacedGroups.of_placement(placement)
        return self._last
