"""Generations of a slot's state in a stage: closing groups (spill), and relabelling what was cleaned up.

A group is closed with all its rows, of all inputs of the stage: what was active is split, group by group, and written
anew, so that what stays is all there is in memory. Arrivals make a new generation of the group. What the generations
owe each other is found by `engine/owed.py`.

| generation       | who probes it                        | where its files are |
|------------------|--------------------------------------|---------------------|
| active (0)       | every arrival                        | in memory, in so far as the budget allows |
| settled (1)      | clean-up, and rows of it that expire | durable only        |
| closed (e + 2)   | the same                             | durable only        |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from watersmeet.engine.compaction import ends_of
from watersmeet.engine.layers import Layer, cut_to_groups, rows_by_group
from watersmeet.epoch.task import SlotTask, stores_of
from watersmeet.failpoints import failpoint
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.partitioning import group_of
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import ACTIVE, SETTLED, ExtentRef, SegmentRef
from watersmeet.state.run import Mask, Run, merge_runs, select_keys
from watersmeet.state.tiers import Tiers, segment_name, task_name

ROWS_AT_ONCE = 1 << 22
"""Rows that are sorted into new files at once, unless one group has more."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A run of the stored state, and the extent that names it."""

    extent: ExtentRef
    run: Run


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of one generation of a store."""

    store: int
    generation: int
    run: Run


@dataclass(frozen=True, slots=True, eq=False)
class Spilled:
    """The active layers after some groups were closed, all that is closed, and the files that were written for it."""

    layers: Sequence[Layer] = ()
    closed: Sequence[ExtentRef] = ()
    segments: Sequence[SegmentRef] = ()

    def bytes_of(self, generation: int) -> int:
        """The bytes of files that were written for a generation."""
        names = {extent.segment for extent in self.closed if extent.generation == generation}
        return sum(ref.bytes for ref in self.segments if ref.name in names)


NOTHING_SPILLED = Spilled()


def opened(
    plan: JoinPlan, extents: Sequence[ExtentRef], segments: Mapping[str, SegmentRef], tiers: Tiers
) -> list[Piece]:
    """Extents with their rows, from durable files; they are not counted as memory."""
    by_name = {name: tiers.read(segments[name]) for name in {extent.segment for extent in extents}}
    found = []
    for extent in extents:
        whole = by_name[extent.segment][extent.index][1]
        run = cut_to_groups(whole, extent.group_low, extent.group_high, plan.partitions)
        if run.rows:
            found.append(Piece(replace(extent, rows=run.rows), run))
    return found


def parts_of(pieces: Iterable[Piece]) -> list[Part]:
    return [Part(piece.extent.store, piece.extent.generation, piece.run) for piece in pieces]


def close_groups(plan: JoinPlan, task: SlotTask, layers: Sequence[Layer], tiers: Tiers) -> Spilled:
    """Close the groups that the task names, in all stores together; what was closed before is passed on."""
    before = [extent for extent in task.extents if not extent.is_active and not task.has_expired(extent)]
    if not task.spill:
        return Spilled(layers, before)
    chosen = chosen_groups(plan, task)
    touched = [any(_positions(run, chosen, plan.partitions).any() for _, run in layer.runs) for layer in layers]
    rewritten = [layer for layer, is_touched in zip(layers, touched, strict=True) if is_touched]
    kept = [layer for layer, is_touched in zip(layers, touched, strict=True) if not is_touched]
    writer = _Writer(plan, task, tiers)
    runs = [run for layer in rewritten for _, run in layer.runs]
    ranges = ranges_by_rows(runs, task.group_low, task.group_high, plan.partitions, ROWS_AT_ONCE)
    closed: list[ExtentRef] = []
    for bucket in sorted({layer.bucket for layer in rewritten}):
        shelf = [pair for layer in rewritten if layer.bucket == bucket for pair in layer.runs]
        for groups in ranges:
            going, staying = _divided(shelf, groups, chosen, plan.partitions)
            closed += [piece.extent for piece in writer.write(bucket, groups, going, task.epoch + 2)]
            pieces = writer.write(bucket, groups, staying, ACTIVE)
            if pieces:
                whole = groups if len(ranges) > 1 else None
                stored = tuple((piece.extent.store, piece.run) for piece in pieces)
                kept.append(Layer(bucket, stored, tuple(piece.extent for piece in pieces), whole))
    failpoint("groups-closed")
    return Spilled(kept, [*before, *closed], writer.segments)


def divided(plan: JoinPlan, task: SlotTask, parts: Sequence[Part]) -> list[Part]:
    """Active rows that expire in the very epoch that closes their groups belong to the generation that is closed."""
    if not task.spill:
        return list(parts)
    chosen = chosen_groups(plan, task)
    found = []
    for part in parts:
        if part.generation != ACTIVE:
            found.append(part)
            continue
        going = _positions(part.run, chosen, plan.partitions)
        for generation, positions in ((task.epoch + 2, going), (ACTIVE, ~going)):
            if positions.any():
                found.append(Part(part.store, generation, select_keys(part.run, np.flatnonzero(positions))))
    return found


def relabelled(pieces: Sequence[Piece], task: SlotTask, partitions: int) -> list[Piece]:
    """Extents after the groups of the task's range were cleaned up: there, all rows are of one generation."""
    assert task.clean is not None
    low, high = task.clean
    found = []
    for piece in pieces:
        extent = piece.extent
        for start, stop in ((extent.group_low, low), (low, high), (high, extent.group_high)):
            start, stop = max(start, extent.group_low), min(stop, extent.group_high)
            run = cut_to_groups(piece.run, start, stop, partitions) if start < stop else None
            if run is None or not run.rows:
                continue
            part = replace(extent, rows=run.rows, group_low=start, group_high=stop)
            if low <= start and stop <= high:
                part = _settled(part, run, task)
            found.append(Piece(part, run))
    return found


def coalesced(extents: Sequence[ExtentRef]) -> list[ExtentRef]:
    """Neighbouring extents of one run and generation as one."""
    found: list[ExtentRef] = []
    for extent in sorted(extents, key=lambda e: (e.segment, e.index, e.generation, e.group_low)):
        last = found[-1] if found else None
        if last is not None and last.group_high == extent.group_low and _name(last) == _name(extent):
            since = [s for s in (last.since_us, extent.since_us) if s is not None]
            ends = [e for e in (last.expires_us, extent.expires_us) if e is not None]
            found[-1] = replace(
                last,
                rows=last.rows + extent.rows,
                group_high=extent.group_high,
                since_us=min(since, default=None),
                expires_us=max(ends, default=None),
            )
        else:
            found.append(extent)
    return found


def ranges_by_rows(
    runs: Sequence[Run], group_low: int, group_high: int, partitions: int, rows_max: int
) -> list[tuple[int, int]]:
    """The groups as ranges that have about `rows_max` rows each, or are one group."""
    rows = np.zeros(partitions, dtype=np.int64)
    for run in runs:
        rows += rows_by_group(run, partitions)
    edges, total = [group_low], 0
    for group in range(group_low, group_high):
        if total and total + rows[group] > rows_max:
            edges.append(group)
            total = 0
        total += int(rows[group])
    return list(pairwise([*edges, group_high]))


def chosen_groups(plan: JoinPlan, task: SlotTask) -> Mask:
    chosen = np.zeros(plan.partitions, dtype=np.bool_)
    chosen[list(task.spill)] = True
    return chosen


class _Writer:
    """Writes segments of one task, one for each bucket, range of groups and generation."""

    def __init__(self, plan: JoinPlan, task: SlotTask, tiers: Tiers) -> None:
        self.task, self.tiers, self.stores = task, tiers, stores_of(plan, task)
        self.segments: list[SegmentRef] = []

    def write(
        self, bucket: int, groups: tuple[int, int], by_store: dict[int, list[Run]], generation: int
    ) -> list[Piece]:
        runs = [(store, run) for store, parts in sorted(by_store.items()) for run in merge_runs(parts)]
        if not runs:
            return []
        name = segment_name(
            task_name(self.task.epoch, self.task.stage, self.task.slot), self.task.attempt, len(self.segments)
        )
        ref = self.tiers.write(name, runs)
        self.segments.append(ref)
        pieces = []
        for index, (store, run) in enumerate(runs):
            extent = ExtentRef(
                name, index, store, bucket, run.rows, end_of(run, self.stores[store]), *groups, generation
            )
            if generation != ACTIVE:
                extent = replace(extent, since_us=_since(run, self.task))
            pieces.append(Piece(extent, run))
        # What was written is read from its file from now on: the rows need not stay in this process.
        stored = self.tiers.peek(ref) if generation == ACTIVE else self.tiers.read(ref)
        return [replace(piece, run=stored[piece.extent.index][1]) for piece in pieces]


def _divided(
    shelf: Sequence[tuple[int, Run]], groups: tuple[int, int], chosen: Mask, partitions: int
) -> tuple[dict[int, list[Run]], dict[int, list[Run]]]:
    """The rows of a range of groups: of chosen groups, and of others; by store."""
    sides: tuple[dict[int, list[Run]], dict[int, list[Run]]] = defaultdict(list), defaultdict(list)
    for store, run in shelf:
        part = cut_to_groups(run, *groups, partitions)
        going = _positions(part, chosen, partitions)
        for side, positions in zip(sides, (going, ~going), strict=True):
            if positions.any():
                side[store].append(select_keys(part, np.flatnonzero(positions)))
    return sides


def _positions(run: Run, chosen: Mask, partitions: int) -> Mask:
    positions: Mask = chosen[group_of(run.hashes, partitions)]
    return positions


def _settled(extent: ExtentRef, run: Run, task: SlotTask) -> ExtentRef:
    if task.keep:
        return replace(extent, generation=ACTIVE, since_us=None)
    return replace(extent, generation=SETTLED, since_us=_since(run, task))


def _since(run: Run, task: SlotTask) -> int | None:
    """A lower bound on the time of what rows closed now will owe: a result of theirs over several generations has a row
    that is yet to arrive."""
    if run.codes is None:
        return None
    return run.time_min if task.frontier_us is None else max(run.time_min, task.frontier_us)


def end_of(run: Run, layout: StoreLayout) -> int | None:
    ends = ends_of(run, layout)
    return None if ends is None else int(ends.max())


def _name(extent: ExtentRef) -> tuple[str, int, int]:
    return extent.segment, extent.index, extent.generation
