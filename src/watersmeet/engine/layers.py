"""Layers: the parts of the state that are merged and written as one; how a layer is counted, cut and merged.

A layer holds runs of one bucket, all inputs together. Once it is written it is a segment, and its extents name the
groups that still count: a merge that takes a range of groups out of a layer only cuts its extents.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

import numpy as np

from watersmeet.plan.partitioning import first_hash
from watersmeet.state.cuts import cut_to_groups
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef, SegmentRef
from watersmeet.state.run import Hashes, Ints, Run, merge_in_parts
from watersmeet.state.tiers import Tiers
from watersmeet.state.widths import bytes_between

HELD_BYTES_MAX = 1 << 26
"""A written layer of at most this size stays in the memory of the process until the epoch ends."""

Merge = Callable[[Sequence[Run]], Iterable[Run]]
"""Merges the runs of one store into as few runs as possible."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Runs of one bucket with their stores. Once they are in a segment, there is one of `extents` for each run.

    `groups` are the groups of a piece; None for a layer of all groups. With `merge`, the runs are not merged yet: they
    are merged when they are written, one after the other, so that a layer may be larger than memory.
    """

    bucket: int
    runs: tuple[tuple[int, Run], ...]
    extents: tuple[ExtentRef, ...] = ()
    groups: Groups | None = None
    merge: Merge | None = None
    lost: int = 0
    """Rows in its file that belong to other slots now."""

    def made_runs(self) -> Iterator[tuple[int, Run]]:
        """The runs to write."""
        if self.merge is None:
            yield from self.runs
            return
        by_store: dict[int, list[Run]] = defaultdict(list)
        for store, run in self.runs:
            by_store[store].append(run)
        for store, runs in sorted(by_store.items()):
            for run in self.merge(runs):
                yield store, run

    @property
    def rows(self) -> int:
        return sum(e.rows for e in self.extents) if self.extents else sum(run.rows for _, run in self.runs)

    def split(self, stores: Container[int]) -> tuple[Layer, Layer]:
        """The runs of some stores, and the others."""
        sides = []
        for inside in (True, False):
            places = [place for place, (store, _) in enumerate(self.runs) if (store in stores) == inside]
            extents = tuple(self.extents[place] for place in places) if self.extents else ()
            sides.append(replace(self, runs=tuple(self.runs[place] for place in places), extents=extents))
        return sides[0], sides[1]

    def is_whole(self, owned: Groups) -> bool:
        """Whether no merge by range has made or cut the layer, within the groups of the slot.

        After a change of the number of slots, the rest of a file counts as whole, though it lacks some groups.
        Otherwise it would never be merged with others like it.
        """
        return self.groups is None and all(not e.is_piece or e.groups.covers(owned) for e in self.extents)


@dataclass(frozen=True, slots=True)
class Grid:
    """The groups of a slot, divided into cells: the finest ranges in which its layers are merged.

    All cells have about the same number of groups of the slot; between two edges there may be groups of other slots.
    """

    edges: tuple[int, ...]
    partitions: int

    @staticmethod
    def over(groups: Groups, partitions: int, cells: int) -> Grid:
        owned = groups.numbers()
        cells = max(1, min(cells, len(owned)))
        firsts = (int(owned[len(owned) * i // cells]) for i in range(cells)) if len(owned) else (0,)
        return Grid((*firsts, groups.high), partitions)

    def hash_at(self, edge: int) -> int:
        return first_hash(self.edges[edge], self.partitions)

    def rows(self, layers: Sequence[Layer]) -> Ints:
        """The rows of every layer (first axis) in every cell."""
        inner = np.array([self.hash_at(edge) for edge in range(1, len(self.edges) - 1)], dtype=np.uint64)
        counted = np.zeros((len(layers), len(self.edges) - 1), dtype=np.int64)
        for number, layer in enumerate(layers):
            for _, run in layer.runs:
                cuts = [0, *np.searchsorted(run.hashes, inner), len(run.hashes)]
                counted[number] += np.diff(run.starts[cuts])
        return counted

    def bytes(self, layers: Sequence[Layer]) -> Ints:
        """The bytes of the kept columns of every layer (first axis) in every cell."""
        inner = np.array([self.hash_at(edge) for edge in range(1, len(self.edges) - 1)], dtype=np.uint64)
        found = np.zeros((len(layers), len(self.edges) - 1), dtype=np.int64)
        for number, layer in enumerate(layers):
            for _, run in layer.runs:
                cuts = run.starts[[0, *np.searchsorted(run.hashes, inner), len(run.hashes)]].astype(np.int64)
                found[number] += _kept_between(run, cuts)
        return found

    def cut(self, layer: Layer, first: int, last: int) -> tuple[Layer, Layer]:
        """A written layer, inside and outside the cells [first, last)."""
        low, high = self.edges[first], self.edges[last]
        sides: tuple[list[tuple[int, Run, ExtentRef]], ...] = ([], [])
        for (store, run), extent in zip(layer.runs, layer.extents, strict=True):
            for side, groups in zip((1, 0, 1), split_by_range(extent.groups, low, high), strict=True):
                part = slice_of(run, groups, self.partitions)
                if part.rows:
                    sides[side].append((store, part, replace(extent, rows=part.rows, groups=groups, is_piece=True)))
        inside, outside = (
            Layer(layer.bucket, tuple((store, run) for store, run, _ in side), tuple(e for _, _, e in side))
            for side in sides
        )
        return inside, outside


def with_common_stores(layers: Sequence[Layer]) -> tuple[list[Layer], list[Layer]]:
    """The layers that have a store in common with another one, and the others."""
    held = Counter(store for layer in layers for store in {store for store, _ in layer.runs})
    sides: tuple[list[Layer], list[Layer]] = [], []
    for layer in layers:
        sides[all(held[store] < 2 for store, _ in layer.runs)].append(layer)
    return sides


def depth(layers: Sequence[Layer]) -> int:
    """The maximum, over all groups, of written layers that may have rows of the group, by their extents."""
    edges: list[tuple[int, int]] = []
    for layer in layers:
        for extent in layer.extents:
            if extent.store == layer.extents[0].store:
                edges += ((edge, 1 - 2 * (number % 2)) for number, edge in enumerate(extent.groups.edges))
    return max(accumulate(change for _, change in sorted(edges)), default=0)


def split_by_range(groups: Groups, low: int, high: int) -> tuple[Groups, Groups, Groups]:
    """Groups below, in and above [low, high)."""
    return groups.within(0, low), groups.within(low, high), groups.within(high, max(high, groups.high))


def slice_of(run: Run, groups: Groups, partitions: int) -> Run:
    """The rows of a run from the first to the last of some groups. The run must have no other groups between them."""
    return cut_to_groups(run, Groups.between(groups.low, groups.high), partitions)


def bytes_by_group(run: Run, partitions: int) -> Ints:
    """The bytes of the kept columns of every group."""
    cuts = np.append(np.searchsorted(run.hashes, first_hashes(partitions)), len(run.hashes))
    return _kept_between(run, run.starts[cuts].astype(np.int64))


def _kept_between(run: Run, cuts: Ints) -> Ints:
    """The bytes of the kept columns between consecutive cuts: exact for the payload, by the mean for the rest."""
    beside = (run.kept_bytes() - run.payload_bytes()) / max(1, run.rows)
    return bytes_between(run.payload, cuts[:-1], cuts[1:]) + np.ceil(np.diff(cuts) * beside).astype(np.int64)


def rows_by_group(run: Run, partitions: int) -> Ints:
    """The number of rows of every group in a run."""
    cuts = np.append(np.searchsorted(run.hashes, first_hashes(partitions)), len(run.hashes))
    rows: Ints = np.diff(run.starts[cuts].astype(np.int64))
    return rows


@cache
def first_hashes(partitions: int) -> Hashes:
    """The least hash of every group."""
    return np.array([first_hash(group, partitions) for group in range(partitions)], dtype=np.uint64)


def merged(layers: Sequence[Layer], merge: Merge = merge_in_parts) -> Layer:
    """The rows of some layers of a bucket as one layer, not written yet; a single layer is returned as it is."""
    if len(layers) == 1:
        return layers[0]
    return Layer(layers[0].bucket, tuple(pair for layer in layers for pair in layer.runs), merge=merge)


def stored(layer: Layer, name: str, tiers: Tiers) -> tuple[Layer, SegmentRef]:
    """Write a layer, and merge its runs if it has a `merge`. A small layer stays in memory. The runs of a large one are
    in memory one at a time, and afterwards in its file."""
    if layer.merge is None or sum(run.kept_bytes() for _, run in layer.runs) <= HELD_BYTES_MAX:
        layer = replace(layer, runs=tuple(layer.made_runs()), merge=None)
        return layer, tiers.write(name, layer.runs)
    ref = tiers.write(name, layer.made_runs())
    return replace(layer, runs=tuple(tiers.peek(ref)), merge=None), ref
