"""Merges of closed state: files, extents and the manifest grow with the bytes of the state, not with the spills.

Every spill closes one more generation. Layers of closed generations are merged with others of their bucket, by the rule
for small layers (`engine/compaction.py`): where `small_fan_in` of them are similar in length. One run then has rows of
several generations, with a column that names the generation of each row (`state/generation_column.py`). So a merged
layer owes the results that its members owed, to each other and to other generations, and nothing earlier.

An epoch merges about an allowance, which follows its spilled rows or, if that is more, a part of the closed state.
Layers of more than half of it are not merged: at most 2 * `share_of_state` of them, or one for every half of
`MERGE_ROWS_MAX` and of `MERGE_BYTES_MAX`. Parts of files that other slots have written and still use are merged first,
so that files are not shared for long. State that an epoch closes is merged in the next epoch at the earliest, and a
clean-up merges nothing. Extents and file sizes alone decide which layers are merged: no other file is opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby
from operator import attrgetter, or_

from watersmeet.engine.compaction import Lengths, Merging, merge_groups
from watersmeet.engine.generations import Part, Piece, Spilled, end_of, merged_parts, opened, parts_of
from watersmeet.epoch.task import SlotTask, stores_of
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import ExtentRef
from watersmeet.state.shares import own_bytes
from watersmeet.state.tiers import Tiers, segment_name, task_name

Closed = Sequence[ExtentRef]
"""Closed extents; the extents of one file are a layer."""


def merged_closed(plan: JoinPlan, task: SlotTask, spilled: Spilled, tiers: Tiers, merging: Merging) -> Spilled:
    """All closed state of the slot after the epoch, some of it merged, and all files that were written so far.

    `spilled` is the state that the epoch has closed. Numbers of merged files follow those of `spilled`.
    """
    before = task.closed
    if not before or task.clean is not None:
        return Spilled(spilled.layers, [*before, *spilled.closed], spilled.segments)
    kept, chosen = _chosen(task, before, spilled, merging)
    segments = list(spilled.segments)
    for layers in chosen:
        name = segment_name(task_name(task.epoch, task.stage, task.slot), task.attempt, len(segments))
        pieces = opened(plan, [extent for layer in layers for extent in layer], task.segments, tiers)
        parts = _merged(pieces)
        if parts:
            segments.append(tiers.write(name, [(part.store, part.run) for part in parts]))
            kept += _named(parts, pieces, name, stores_of(plan, task))
    return Spilled(spilled.layers, [*kept, *spilled.closed], segments)


def _chosen(
    task: SlotTask, before: Closed, spilled: Spilled, merging: Merging
) -> tuple[list[ExtentRef], list[list[Closed]]]:
    """Extents closed before that stay unchanged, and lists of layers that become one layer each, earliest buckets
    first."""
    layers: dict[str, list[ExtentRef]] = defaultdict(list)
    for extent in before:
        layers[extent.segment].append(extent)
    any_length = merging.bounded(1)
    new = any_length.of(sum(extent.rows for extent in spilled.closed), spilled.bytes_of(task.epoch + 2))
    allowance = merging.allowance(new, sum(_lengths(layers.values(), task, any_length)))
    lengths = dict(zip(layers, _lengths(layers.values(), task, merging.bounded(allowance)), strict=True))
    shelves: dict[int, list[str]] = defaultdict(list)
    foreign: dict[int, list[str]] = defaultdict(list)
    for name, layer in layers.items():
        if name in task.foreign:
            foreign[layer[0].bucket].append(name)
        elif 2 * lengths[name] <= allowance:
            shelves[layer[0].bucket].append(name)
    chosen: list[list[Closed]] = []
    left = allowance
    for _, names in sorted(foreign.items()):
        if left > 0:
            chosen.append([layers.pop(name) for name in names])
            left -= sum(lengths[name] for name in names)
    for _, shelf in sorted(shelves.items()):
        for group in merge_groups([lengths[name] for name in shelf], merging, is_closed=False, rows_max=allowance):
            if left > 0:
                chosen.append([layers.pop(shelf[i]) for i in group])
                left -= sum(lengths[shelf[i]] for i in group)
    return [extent for layer in layers.values() for extent in layer], chosen


def _lengths(layers: Iterable[Closed], task: SlotTask, lengths: Lengths) -> list[int]:
    return [
        lengths.of(sum(e.rows for e in layer), own_bytes(task.segments[layer[0].segment], task.shares))
        for layer in layers
    ]


def _merged(pieces: Sequence[Piece]) -> list[Part]:
    """The rows of some layers, store by store."""
    parts = sorted(parts_of(pieces), key=attrgetter("store"))
    return [part for _, of_store in groupby(parts, attrgetter("store")) for part in merged_parts(list(of_store))]


def _named(
    parts: Sequence[Part], members: Sequence[Piece], name: str, stores: Sequence[StoreLayout]
) -> list[ExtentRef]:
    """The extents of merged parts. Their owed results are no earlier than those of the members."""
    groups = reduce(or_, (piece.extent.groups for piece in members))
    since_us = min((s for piece in members if (s := piece.extent.since_us) is not None), default=None)
    bucket = members[0].extent.bucket
    return [
        ExtentRef(
            name, index, part.store, bucket, part.run.rows, end_of(part.run, stores[part.store]), groups,
            part.generation, since_us,
        )
        for index, part in enumerate(parts)
    ]  # fmt: skip
