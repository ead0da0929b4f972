"""The merges of one epoch: which layers of a slot's state, within an allowance (see `engine/compaction.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from watersmeet.engine.compaction import Lengths, Merging, merge_groups, next_share, stores_to_merge
from watersmeet.engine.layers import Grid, Layer, Merge, depth, merged, with_common_stores
from watersmeet.engine.statistics import weight_of
from watersmeet.epoch.task import SlotTask
from watersmeet.state.run import Ints, Run

Shelves = dict[int, list[Layer]]
"""Layers by bucket."""


class Merges:
    """The merging of one epoch, within its allowance."""

    def __init__(
        self,
        task: SlotTask,
        partitions: int,
        merging: Merging,
        merge: Merge,
        layers: Sequence[Layer],
        arrived: Sequence[Sequence[tuple[int, Run]]],
    ) -> None:
        self.task, self.merging, self.merge = task, merging, merge
        self.grid = Grid.over(task.groups, partitions, merging.cells)
        self._known: dict[int, tuple[Layer, int, int]] = {}
        """By id of a layer: the layer, its rows and bytes. It holds the layer, so that no other object gets its id."""
        self._small: dict[int, bool] = {}
        any_length = merging.bounded(1)
        new = sum(any_length.of(run.rows, run.kept_bytes()) for chunk in arrived for _, run in chunk)
        at_most = (
            sum(layer.rows for layer in layers) + sum(ref.bytes for ref in task.segments.values()) // merging.row_bytes
        )
        self.allowance = merging.allowance(new, 0)
        if merging.allowance(new, at_most) > self.allowance:  # only then the exact length of the state matters
            self.allowance = merging.allowance(new, sum(self._length(layer, any_length) for layer in layers))
        self.left = self.allowance
        self.lengths = merging.bounded(self.allowance)
        self.small_max = self.small_left = merging.small_max(new)

    def made_own(self, layers: Iterable[Layer]) -> Iterator[Layer]:
        """The layers. Those in files that other slots have written and still use are to be written again, and those of
        which other slots have got a part: then files are not shared for long, and hold few rows that do not count."""
        for layer in layers:
            if self.small_left > 0 and self._is_scattered(layer):
                length = self._length(layer, self.lengths)
                self.left -= length
                self.small_left -= length
                layer = replace(layer, extents=(), lost=0)
            yield layer

    def _is_scattered(self, layer: Layer) -> bool:
        is_foreign = layer.extents[0].segment in self.task.foreign
        return is_foreign or layer.lost > self.merging.lost_max * (layer.lost + layer.rows)

    def merge_small(self, shelf: Sequence[Layer], *, may_wait: bool) -> list[Layer]:
        """The layers of an open bucket, with small ones merged. If the bucket will close, an epoch merges no more than
        it has room for, but for one merge of many layers."""
        kept, small = self._by_size(shelf)
        lengths = [self._length(layer, self.lengths) for layer in small]
        gone: set[int] = set()
        for group in merge_groups(lengths, self.merging, is_closed=False, rows_max=self.allowance):
            length = sum(lengths[i] for i in group)
            has_merged = self.small_left < self.small_max
            if may_wait and length > self.small_left and (has_merged or len(group) < self.merging.long_fan_in):
                continue
            kept.append(merged([small[i] for i in group], self.merge))
            gone.update(group)
            self.left -= length
            self.small_left -= length
        return [*kept, *(layer for i, layer in enumerate(small) if i not in gone)]

    def merge_closed(self, shelves: Mapping[int, Sequence[Layer]]) -> Shelves:
        """The layers of closed buckets, with small ones merged, as many as open ones have left room for."""
        found: Shelves = {}
        waiting: list[tuple[int, list[Layer], int]] = []
        for bucket, shelf in shelves.items():
            large, small = self._by_size(shelf)
            small, alone = with_common_stores(small)
            lengths = [self._length(layer, self.lengths) for layer in small]
            groups = merge_groups(lengths, self.merging, is_closed=True, rows_max=self.allowance)
            gone = {i for group in groups for i in group}
            found[bucket] = [*large, *alone, *(layer for i, layer in enumerate(small) if i not in gone)]
            waiting += ((bucket, [small[i] for i in group], sum(lengths[i] for i in group)) for group in groups)
        backlog = sum(length for *_, length in waiting) // self.merging.small_wait
        self.small_left = max(self.small_left, min(backlog, int(self.merging.backlog_ratio * self.small_max)))
        for number, (bucket, layers, _) in enumerate(waiting):
            found[bucket] += self._merge_stores(layers, is_first=number == 0)
        return found

    def _merge_stores(self, layers: Sequence[Layer], *, is_first: bool) -> list[Layer]:
        """Small layers of a bucket, with the runs of as many stores merged as there is room for."""
        stores = sorted({store for layer in layers for store, _ in layer.runs})
        rows = np.zeros((len(layers), len(stores)), dtype=np.int64)
        for number, layer in enumerate(layers):
            width = self._length(layer, self.lengths) / max(1, layer.rows)
            for store, run in layer.runs:
                rows[number, stores.index(store)] += math.ceil(width * run.rows)
        chosen = stores_to_merge(rows, self.small_left, is_first=is_first)
        if not chosen:
            return list(layers)
        length = int(rows[:, chosen].sum())
        self.left -= length
        self.small_left -= length
        if len(chosen) == np.count_nonzero(np.count_nonzero(rows, axis=0) > 1):
            return [merged(layers, self.merge)]
        parts = [layer.split({stores[place] for place in chosen}) for layer in layers]
        made = merged([part for part, _ in parts if part.runs], self.merge)
        return [made, *(rest for _, rest in parts if rest.runs)]

    def _by_size(self, shelf: Sequence[Layer]) -> tuple[list[Layer], list[Layer]]:
        """Large layers, and small ones."""
        sides: tuple[list[Layer], list[Layer]] = [], []
        for layer in shelf:
            sides[self._is_small(layer)].append(layer)
        return sides

    def merge_share(self, shelf: Sequence[Layer], *, is_closed: bool) -> list[Layer]:
        """The layers of a bucket, with a share of the large ones merged if half of the allowance is left."""
        large = [layer for layer in shelf if layer.extents and not self._is_small(layer)]
        merging = self.merging
        has_turn = (self.task.epoch + self.task.slot) % merging.share_every == 0
        ratio, fan_in = merging.tier_ratio, merging.fan_in if has_turn else 4 * merging.fan_in
        if is_closed and has_turn:
            ratio, fan_in = np.inf, 2
        if 2 * self.left < self.allowance or depth(large) < fan_in:
            return list(shelf)
        cell_max = merging.cell_max(self.allowance)
        lengths = self._by_cell(large, merging.bounded(cell_max))
        share = next_share(lengths, ratio=ratio, fan_in=fan_in, rows_max=self.allowance, cell_max=cell_max)
        if share is None:
            return list(shelf)
        self.left -= share.rows
        cuts = {id(large[i]): self.grid.cut(large[i], share.first, share.last) for i in share.members}
        rest = [cuts[id(layer)][1] if id(layer) in cuts else layer for layer in shelf]
        groups = self.task.groups.within(self.grid.edges[share.first], self.grid.edges[share.last])
        piece = replace(merged([inside for inside, _ in cuts.values()], self.merge), groups=groups)
        return [layer for layer in [piece, *rest] if layer.rows]

    def _is_small(self, layer: Layer) -> bool:
        if not layer.extents:
            return True
        found = self._small.get(id(layer))
        if found is None:
            found = 2 * self._length(layer, self.lengths) <= self.allowance and layer.is_whole(self.task.groups)
            self._small[id(layer)] = found
        return found

    def _length(self, layer: Layer, lengths: Lengths) -> int:
        known = self._known.get(id(layer))
        if known is None:
            rows = layer.rows
            known = self._known[id(layer)] = layer, rows, self._bytes(layer, rows)
        _, rows, size = known
        return lengths.of(rows, size) if size else rows

    def _bytes(self, layer: Layer, rows: int) -> int:
        """The bytes of a layer's rows; 0 if, by the file size, rows are so narrow that only their number counts."""
        file = self.task.segments.get(layer.extents[0].segment) if layer.extents else None
        if file is not None and file.bytes <= self.merging.narrow_bytes * rows:
            return 0
        return _kept_bytes(layer, self.grid.partitions)

    def _by_cell(self, layers: Sequence[Layer], lengths: Lengths) -> Ints:
        """The length of every layer (first axis) in every cell; for narrow rows, their number."""
        rows = self.grid.rows(layers)
        if all(self._length(layer, lengths) == layer.rows for layer in layers):
            return rows
        found: Ints = np.maximum(rows, np.ceil(self.grid.bytes(layers) / lengths.row_bytes).astype(np.int64))
        return found


def _kept_bytes(layer: Layer, partitions: int) -> int:
    """The bytes of a layer's rows; for written layers they are cached from the previous epoch."""
    if not layer.extents:
        return sum(run.kept_bytes() for _, run in layer.runs)
    return sum(weight_of(e, run, partitions)[0] for e, (_, run) in zip(layer.extents, layer.runs, strict=True))
