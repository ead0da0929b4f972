"""Generations of a slot's state in a stage: groups are closed (spill), and relabelled after a clean-up.

A group is closed with all its rows, of all inputs of the stage. Its layers are split by group and written again, so
that only rows of active groups stay in memory. Later arrivals make a new generation of the group. `engine/owed.py`
finds the results that the generations owe.

| generation       | probed by                            | its files are                     |
|------------------|--------------------------------------|-----------------------------------|
| active (0)       | every arrival                        | in memory, if the budget allows   |
| settled (1)      | clean-up, and its expiring rows      | durable only                      |
| closed (e + 2)   | the same                             | durable only                      |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from watersmeet.engine.compaction import last_of
from watersmeet.engine.layers import Layer, bytes_by_group, rows_by_group, slice_of, split_by_range
from watersmeet.engine.marks import without_marks
from watersmeet.engine.partials import Generation
from watersmeet.epoch.task import SlotTask, stores_of
from watersmeet.failpoints import failpoint
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.partitioning import group_of
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.cuts import cut_to_groups
from watersmeet.state.generation_column import generations_of, labelled, without_generations
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ACTIVE, SETTLED, SEVERAL, ExtentRef, SegmentRef
from watersmeet.state.run import Mask, Run, merge_in_parts, merge_runs, select_keys
from watersmeet.state.tiers import Tiers, segment_name, task_name

ROWS_AT_ONCE = 1 << 22
BYTES_AT_ONCE = 1 << 28
"""The most rows and bytes that are sorted into new files at once, unless one group has more."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A run of the stored state, and its extent."""

    extent: ExtentRef
    run: Run


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of a store, of one generation or of `SEVERAL`."""

    store: int
    generation: int
    run: Run

    @property
    def of_rows(self) -> Generation:
        return generations_of(self.run) if self.generation == SEVERAL else self.generation


@dataclass(frozen=True, slots=True, eq=False)
class Spilled:
    """The active layers after some groups were closed, the closed extents, and the files written for both."""

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
    """Extents with their rows, from durable files; their bytes do not count as memory."""
    by_name = {name: tiers.read(segments[name]) for name in {extent.segment for extent in extents}}
    found = []
    for extent in extents:
        whole = by_name[extent.segment][extent.index][1]
        run = cut_to_groups(whole, extent.groups, plan.partitions, None if extent.is_estimate else extent.rows)
        if run.rows:
            run = run if extent.generation == SEVERAL else without_marks(without_generations(run))
            found.append(Piece(replace(extent, rows=run.rows, is_estimate=False), run))
    return found


def parts_of(pieces: Iterable[Piece]) -> list[Part]:
    return [Part(piece.extent.store, piece.extent.generation, piece.run) for piece in pieces]


def is_mixed(parts: Sequence[Part]) -> bool:
    """Whether parts may have rows of more than one generation."""
    generations = {part.generation for part in parts}
    return len(generations) > 1 or SEVERAL in generations


def merged_parts(parts: Sequence[Part]) -> list[Part]:
    """The parts of one store merged into one, or into several if one run would be too large."""
    several = is_mixed(parts)
    generation = SEVERAL if several else parts[0].generation
    runs = [labelled(p.run, p.generation) if several and p.generation != SEVERAL else p.run for p in parts]
    return [Part(parts[0].store, generation, run) for run in merge_runs(runs)]


def close_groups(plan: JoinPlan, task: SlotTask, layers: Sequence[Layer], tiers: Tiers) -> Spilled:
    """Close the groups that the task names, in all stores together."""
    if not task.spill:
        return Spilled(layers)
    chosen = chosen_groups(plan, task)
    touched = [any(_positions(run, chosen, plan.partitions).any() for _, run in layer.runs) for layer in layers]
    rewritten = [layer for layer, is_touched in zip(layers, touched, strict=True) if is_touched]
    kept = [layer for layer, is_touched in zip(layers, touched, strict=True) if not is_touched]
    writer = _Writer(plan, task, tiers)
    runs = [run for layer in rewritten for _, run in layer.runs]
    ranges = ranges_by_rows(
        runs, task.groups.low, task.groups.high, plan.partitions, rows_max=ROWS_AT_ONCE, bytes_max=BYTES_AT_ONCE
    )
    leaving = Groups.where(chosen)
    closed: list[ExtentRef] = []
    for bucket in sorted({layer.bucket for layer in rewritten}):
        shelf = [pair for layer in rewritten if layer.bucket == bucket for pair in layer.runs]
        for low, high in ranges:
            groups = task.groups.within(low, high)
            going, staying = _divided(shelf, groups, chosen, plan.partitions)
            closed += [piece.extent for piece in writer.write(bucket, groups & leaving, going, task.epoch + 2)]
            pieces = writer.write(bucket, groups - leaving, staying, ACTIVE, is_piece=len(ranges) > 1)
            if pieces:
                stored = tuple((piece.extent.store, piece.run) for piece in pieces)
                kept.append(Layer(bucket, stored, tuple(piece.extent for piece in pieces)))
    failpoint("groups-closed")
    return Spilled(kept, closed, writer.segments)


def divided(plan: JoinPlan, task: SlotTask, parts: Sequence[Part]) -> list[Part]:
    """Active rows that expire in the epoch that closes their groups belong to the closed generation."""
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
    """Extents after a clean-up: in the groups of the task's range, all rows are of one generation."""
    assert task.clean is not None
    low, high = task.clean
    found = []
    for piece in pieces:
        extent = piece.extent
        for is_inside, groups in zip((False, True, False), split_by_range(extent.groups, low, high), strict=True):
            run = slice_of(piece.run, groups, partitions)
            if run.rows:
                part = replace(extent, rows=run.rows, groups=groups)
                found.append(
                    Piece(_settled(part, run, task), without_generations(run)) if is_inside else Piece(part, run)
                )
    return found


def coalesced(extents: Sequence[ExtentRef], owned: Groups) -> list[ExtentRef]:
    """Join extents of one run and generation into one if the slot owns no group between them."""
    found: list[ExtentRef] = []
    for extent in sorted(extents, key=lambda e: (e.segment, e.index, e.generation, e.groups.low)):
        last = found[-1] if found else None
        if last is not None and _name(last) == _name(extent) and not owned.within(last.groups.high, extent.groups.low):
            since = [s for s in (last.since_us, extent.since_us) if s is not None]
            ends = [e for e in (last.expires_us, extent.expires_us) if e is not None]
            found[-1] = replace(
                last,
                rows=last.rows + extent.rows,
                groups=last.groups | extent.groups,
                is_piece=last.is_piece or extent.is_piece,
                is_estimate=last.is_estimate or extent.is_estimate,
                since_us=min(since, default=None),
                expires_us=max(ends, default=None),
            )
        else:
            found.append(extent)
    return found


def ranges_by_rows(
    runs: Sequence[Run], group_low: int, group_high: int, partitions: int, *, rows_max: int, bytes_max: int
) -> list[tuple[int, int]]:
    """Groups in [group_low, group_high) as ranges of at most `rows_max` rows or `bytes_max` bytes, or of one group."""
    rows = np.zeros(partitions)
    for run in runs:
        rows += np.maximum(rows_by_group(run, partitions), bytes_by_group(run, partitions) * (rows_max / bytes_max))
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
        self, bucket: int, groups: Groups, by_store: dict[int, list[Run]], generation: int, *, is_piece: bool = False
    ) -> list[Piece]:
        if not by_store:
            return []
        name = segment_name(
            task_name(self.task.epoch, self.task.stage, self.task.slot), self.task.attempt, len(self.segments)
        )
        runs = ((store, run) for store, parts in sorted(by_store.items()) for run in merge_in_parts(parts))
        ref = self.tiers.write(name, runs)
        self.segments.append(ref)
        # From now on the rows are read from their file: they need not stay in this process.
        stored = self.tiers.peek(ref) if generation == ACTIVE else self.tiers.read(ref)
        pieces = []
        for index, (store, run) in enumerate(stored):
            since = None if generation == ACTIVE else _since(run, self.task)
            ends = end_of(run, self.stores[store])
            extent = ExtentRef(name, index, store, bucket, run.rows, ends, groups, generation, since, is_piece)
            pieces.append(Piece(extent, run))
        return pieces


def _divided(
    shelf: Sequence[tuple[int, Run]], groups: Groups, chosen: Mask, partitions: int
) -> tuple[dict[int, list[Run]], dict[int, list[Run]]]:
    """The rows of some neighbouring groups by store: rows of chosen groups, and rows of the others."""
    sides: tuple[dict[int, list[Run]], dict[int, list[Run]]] = defaultdict(list), defaultdict(list)
    for store, run in shelf:
        part = slice_of(run, groups, partitions)
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
    """A lower bound on the time of results that rows closed now will owe: such a result has a row that has not arrived
    yet."""
    if run.codes is None:
        return None
    return run.time_min if task.frontier_us is None else max(run.time_min, task.frontier_us)


def end_of(run: Run, layout: StoreLayout) -> int | None:
    """The time by which all rows have ended, perhaps later than any event time; None if they never end."""
    if run.codes is not None and layout.span_us is not None and layout.limit is None:
        return int(run.times(run.rows_slice()).max()) + layout.span_us
    last = last_of(run, layout)
    return None if last is None else int(last.max()) + 1


def _name(extent: ExtentRef) -> tuple[str, int, int]:
    return extent.segment, extent.index, extent.generation
