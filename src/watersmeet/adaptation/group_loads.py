"""The load of partition groups: what relocation and balancing weigh, per key and group.

All stages of a key have the same owner of a group, so a group of a key moves with its state in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from watersmeet.adaptation.figures import Floats, Ints
from watersmeet.state.measures import EXPIRE_NS, INSERT_NS, INSERTED, INTERMEDIATE, JOINED, PROBE_NS, RESULTS, Counts


class Prices(NamedTuple):
    """Mean CPU times over the life of the checkpoint: of a row that is stored (and expires), and of a result."""

    stored_ns: float
    found_ns: float

    @staticmethod
    def of(totals: Counts) -> Prices:
        emitted = totals.of(INTERMEDIATE) + (totals.of(JOINED) or totals.of(RESULTS))
        stored_ns = _mean(totals.of(INSERT_NS) + totals.of(EXPIRE_NS), totals.of(INSERTED))
        return Prices(stored_ns, _mean(totals.of(PROBE_NS), emitted))

    def cpu_ns(self, arrived: Floats, local: Floats) -> Floats:
        """The CPU time of rows that arrived in groups and of results that their stages have emitted."""
        return arrived * self.stored_ns + local * self.found_ns


def _mean(spent_ns: int, count: int) -> float:
    return spent_ns / count if count else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class GroupLoads:
    """The groups of all keys that have active state or CPU time, as arrays: element i of every array is of one group.

    Figures of CPU time and output follow the option `spillUpkeep` (`adaptation/ledger.py`): with `ewma`, they are those
    of a recent epoch with rows.
    """

    slots: int
    keys: tuple[str, ...]
    key: Ints
    """The number of the key."""
    group: Ints
    slot: Ints
    bytes: Floats
    """Of active rows."""
    cpu_ns: Floats
    output: Floats
    """P_output: results of the query that the group has contributed to."""

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: Ints) -> GroupLoads:
        """Some of the groups."""
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name not in ("slots", "keys")}
        return replace(self, **arrays)

    def by_slot(self, values: Floats) -> Floats:
        """The sum of values over the groups of every slot."""
        found: Floats = np.bincount(self.slot, weights=values, minlength=self.slots).astype(np.float64)
        return found

    @property
    def bytes_by_slot(self) -> Floats:
        return self.by_slot(self.bytes)
