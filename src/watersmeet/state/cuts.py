"""The rows of extents: runs of files, cut to partition groups, without a copy wherever that is possible.

| groups of the extent                                | its rows                                        |
|-----------------------------------------------------|-------------------------------------------------|
| one range                                           | a slice of the run                              |
| several, and no other rows lie between them         | the same; the extent's number of rows says so   |
| several, and rows of other groups lie between them  | a copy, kept for the next epochs                |

Rows of other groups lie between after a change of slots, until a merge has rewritten the slot's rows. Copies are memory
of the process, besides the memory tier: at most `COPIES_BYTES_MAX` bytes of them stay from epoch to epoch.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from watersmeet.plan.partitioning import first_hash, group_of
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef
from watersmeet.state.run import Run, select_keys
from watersmeet.state.sieve import sieve_of

COPIES_BYTES_MAX = 256 << 20


def cut_to_groups(run: Run, groups: Groups, partitions: int, rows: int | None = None) -> Run:
    """The rows of some groups; `rows` is their number, if known: it saves needless copies."""
    if groups.low == 0 and groups.high == partitions and len(groups.ranges) == 1:
        return run
    cut = run.between_hashes(first_hash(groups.low, partitions), first_hash(groups.high, partitions))
    if len(groups.ranges) < 2 or cut.rows == rows:
        return cut
    inside = groups.mask(partitions)[group_of(cut.hashes, partitions)]
    return select_keys(cut, np.flatnonzero(inside))


class Copies:
    """Copies that this process has made, each of some groups, by folder, segment and run. The oldest are dropped
    first."""

    def __init__(self, bytes_max: int = COPIES_BYTES_MAX) -> None:
        self.bytes_max, self.bytes = bytes_max, 0
        self._held: dict[tuple[str, str, int], dict[Groups, tuple[int, Run]]] = {}

    def rows_of(self, extent: ExtentRef, run: Run, partitions: int, folder: str) -> Run:
        """The rows of an extent, whose whole run is given."""
        groups = extent.groups
        if len(groups.ranges) < 2:
            return cut_to_groups(run, groups, partitions)
        place = folder, extent.segment, extent.index
        found = self._found(place, groups, partitions)
        if found is not None:
            return found
        cut = cut_to_groups(run, groups, partitions, None if extent.is_estimate else extent.rows)
        if cut.payload is not run.payload:
            cut = replace(cut, sieve=sieve_of(cut.hashes))
            self._hold(place, groups, cut)
        return cut

    def forget_missing(self, folder: str) -> None:
        """Drop copies of files that are no longer in a folder."""
        places = [place for place in self._held if place[0] == folder]
        for place in [place for place in places if not os.path.exists(f"{folder}/{place[1]}")]:
            self._drop(place)

    def _found(self, place: tuple[str, str, int], groups: Groups, partitions: int) -> Run | None:
        """The copy of these groups, or a slice of a copy that has no other groups between them."""
        for held, (_, run) in self._held.get(place, {}).items():
            if held == groups:
                self._held[place] = self._held.pop(place)  # the last used one stands last
                return run
            if held.within(groups.low, groups.high) == groups:
                return cut_to_groups(run, Groups.between(groups.low, groups.high), partitions)
        return None

    def _hold(self, place: tuple[str, str, int], groups: Groups, run: Run) -> None:
        size = run.kept_bytes()
        while self._held and self.bytes + size > self.bytes_max:
            self._drop(next(iter(self._held)))
        if size <= self.bytes_max:
            self._held.setdefault(place, {})[groups] = size, run
            self.bytes += size

    def _drop(self, place: tuple[str, str, int]) -> None:
        self.bytes -= sum(size for size, _ in self._held.pop(place).values())


copies = Copies()
