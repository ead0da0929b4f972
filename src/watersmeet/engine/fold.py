"""The state of a slot after an epoch: what was there (`engine/opening.py`), folded with the rows that arrived.

State lies in *layers* (see `engine/layers.py`), one segment each. `engine/merging.py` merges some of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from watersmeet.engine.closed_state import merged_closed
from watersmeet.engine.compaction import Merging, by_bucket, closed, share_alive
from watersmeet.engine.expiry import expiry_bounds, watermark_bound
from watersmeet.engine.generations import NOTHING_SPILLED, Piece, Spilled, coalesced, end_of, opened, relabelled
from watersmeet.engine.layers import Layer, Merge, stored
from watersmeet.engine.merging import Merges, Shelves
from watersmeet.engine.statistics import Tally, weight_of
from watersmeet.epoch.task import SlotReport, SlotTask, expired, stores_of
from watersmeet.failpoints import failpoint
from watersmeet.plan.buckets import bucket_width_us
from watersmeet.plan.handover import takes_chunks
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import ExtentRef, SegmentRef
from watersmeet.state.measures import (
    ACTIVE_BYTES,
    CLOSED_BYTES,
    CLOSED_ROWS,
    EXPIRED,
    FETCHED_BYTES,
    INSERT_NS,
    INSERTED,
    MEMORY_BYTES,
    SPILL_NS,
    SPOILED_COPIES,
    STATE_BYTES,
    Counts,
)
from watersmeet.state.run import Run, merge_in_parts
from watersmeet.state.shares import bytes_of
from watersmeet.state.tiers import Tiers, segment_name, task_name

Keep = Callable[[int, Run], Run]
DEFAULT_MERGING = Merging()
MEMORY_PER_ALIVE = 1.45
"""Bytes of segments in memory per byte of their live rows. The promise is 1.5, but live shares are estimates."""
MEMORY_MIN = 1 << 16
"""The bytes that may always be in memory: a file with few rows is mostly metadata."""


def fold(
    plan: JoinPlan,
    task: SlotTask,
    layers: Sequence[Layer],
    arrived: Sequence[Sequence[tuple[int, Run]]],
    tiers: Tiers,
    tally: Tally,
    merging: Merging = DEFAULT_MERGING,
    merge: Merge = merge_in_parts,
    spilled: Spilled = NOTHING_SPILLED,
    made: Sequence[tuple[int, Run]] = (),
    keep: Keep = lambda _, run: run,
) -> SlotReport:
    """The state after the epoch: old layers and arrived chunks, dead rows dropped, merged by tier, written.

    `keep` stores copies of arrived rows until they are written, and returns the stored run, perhaps on disk. `spilled`
    is the state that the epoch has closed and written already. Extents closed before stay until they expire. `made` are
    rows that moved groups lacked: they are stored with the others, but have not arrived.
    """
    with tally.spent_on(SPILL_NS):
        spilled = merged_closed(plan, task, spilled, tiers, merging)
    closed = spilled.closed
    bounds = expiry_bounds(plan, task, arrived, holds_all=bool(closed))
    with tally.spent_on(INSERT_NS):
        new = [made, *arrived]
        kept, segments = _written(plan, task, layers, new, tiers, merging, merge, bounds, spilled.segments, keep)
    for store, run in (pair for chunk in arrived for pair in chunk):
        tally.arrived(task.stage, store, run)
    inserted = sum(run.rows for chunk in arrived for _, run in chunk)
    tally.count(INSERTED, inserted)
    there = sum(layer.rows for layer in layers) + sum(run.rows for _, run in made)
    tally.count(EXPIRED, there + inserted - sum(layer.rows for layer in kept))
    refs = {**task.segments, **{ref.name: ref for ref in segments}}
    pieces = [Piece(e, run) for layer in kept for e, (_, run) in zip(layer.extents, layer.runs, strict=True)]
    if task.clean is not None:
        failpoint("groups-cleaned")
        pieces = relabelled([*pieces, *opened(plan, closed, refs, tiers)], task, plan.partitions)
        closed = coalesced([piece.extent for piece in pieces if not piece.extent.is_active], task.groups)
        pieces = [piece for piece in pieces if piece.extent.is_active]
    stores = stores_of(plan, task)
    _retain(task, pieces, refs, plan.partitions, stores, bounds, tiers)
    return _report(task, stores, pieces, closed, segments, tiers, tally)


def _written(
    plan: JoinPlan,
    task: SlotTask,
    layers: Sequence[Layer],
    arrived: Sequence[Sequence[tuple[int, Run]]],
    tiers: Tiers,
    merging: Merging,
    merge: Merge,
    bounds: Sequence[int | None],
    written: Sequence[SegmentRef],
    keep: Keep,
) -> tuple[list[Layer], list[SegmentRef]]:
    stores = stores_of(plan, task)
    width = bucket_width_us(stores) if plan.windowed else None
    bound = watermark_bound(plan, task, arrived)
    work = Merges(task, plan.partitions, merging, merge, layers, arrived)
    shelves: Shelves = defaultdict(list)
    for layer in work.made_own(part for layer in layers if (part := _alive(layer, bounds)).runs):
        shelves[layer.bucket].append(layer)
    for number, chunk in enumerate(arrived, 1):
        is_migrated = task.completes is not None and number == len(arrived)
        for layer in _layers_of(stores, chunk, width, bounds, keep, in_pairs=is_migrated):
            shelves[layer.bucket].append(layer)
    merges_closed = task.build is None and not takes_chunks(plan)  # a chunk has rows of every bucket
    closed_ones = {bucket: merges_closed and closed(bucket, width, bound) for bucket in shelves}
    turns = () if task.completes is not None and not task.is_old else shelves  # rows wait: a chunk, or merges
    for bucket in sorted(turns, reverse=True):
        if not closed_ones[bucket]:
            shelves[bucket] = work.merge_small(shelves[bucket], may_wait=width is not None)
    shelves |= work.merge_closed({bucket: shelves[bucket] for bucket in sorted(turns) if closed_ones[bucket]})
    for bucket in sorted(turns):
        shelves[bucket] = work.merge_share(shelves[bucket], is_closed=closed_ones[bucket])
    kept: list[Layer] = []
    segments = list(written)
    for layer in (layer for _, shelf in sorted(shelves.items()) for layer in shelf):
        if not layer.extents:
            name = segment_name(task_name(task.epoch, task.stage, task.slot), task.attempt, len(segments))
            layer, ref = stored(layer, name, tiers)
            segments.append(ref)
            layer = replace(layer, extents=_named(layer, name, task, stores))
        kept.append(layer)
    return kept, segments


def _retain(
    task: SlotTask,
    active: Sequence[Piece],
    segments: Mapping[str, SegmentRef],
    partitions: int,
    stores: Sequence[StoreLayout],
    bounds: Sequence[int | None],
    tiers: Tiers,
) -> None:
    """Choose the segments to keep in memory: the newest buckets first; in a bucket the short ones, which have the
    newest rows; of about equal length the resident ones, because others must be verified and mapped again.
    """
    if tiers.memory is None:
        return
    alive: Counter[str] = Counter()
    buckets: dict[str, int] = {}
    for piece in active:
        extent, store = piece.extent, piece.extent.store
        kept_bytes, _ = weight_of(extent, piece.run, partitions)
        buckets[extent.segment] = extent.bucket
        alive[extent.segment] += int(kept_bytes * share_alive(piece.run, stores[store], bounds[store]))

    def importance(name: str) -> tuple[int, int, bool, str]:
        return buckets[name], -segments[name].bytes.bit_length(), tiers.is_resident(name), name

    order = sorted(alive, key=importance, reverse=True)
    limit = max(MEMORY_MIN, int(MEMORY_PER_ALIVE * alive.total()))
    tiers.retain([segments[name] for name in order if name not in task.foreign], limit)


def _report(
    task: SlotTask,
    stores: Sequence[StoreLayout],
    active: Sequence[Piece],
    closed: Sequence[ExtentRef],
    segments: Sequence[SegmentRef],
    tiers: Tiers,
    tally: Tally,
) -> SlotReport:
    extents = [piece.extent for piece in active]
    refs = {**task.segments, **{ref.name: ref for ref in segments}}
    tally.count(MEMORY_BYTES, tiers.resident_bytes)
    tally.count(FETCHED_BYTES, tiers.fetched_bytes)
    if tiers.spoiled_copies:
        tally.count(SPOILED_COPIES, tiers.spoiled_copies)
    files = {extent.segment for extent in extents}
    closed_files = {extent.segment for extent in closed}
    tally.count(STATE_BYTES, bytes_of(files | closed_files, refs, task.shares))
    tally.count(ACTIVE_BYTES, bytes_of(files, refs, task.shares))
    if closed:
        tally.count(CLOSED_ROWS, sum(extent.rows for extent in closed))
        tally.count(CLOSED_BYTES, bytes_of(closed_files, refs, task.shares))
    tally.weigh(task.stage, stores, ((piece.extent, piece.run) for piece in active))
    used = files | closed_files
    named = tuple(ref for ref in segments if ref.name in used)
    tiers.unwrite(ref.name for ref in segments if ref.name not in used)
    if task.clean is not None:
        extents = coalesced(extents, task.groups)
    return SlotReport(
        task.epoch,
        task.stage,
        task.slot,
        (*extents, *closed),
        named,
        Counts(dict(tally.counts)),
        tally.groups(),
        tally.seen,
        inputs=tally.inputs,
        sketches=tally.sketches(),
    )


def _alive(layer: Layer, bounds: Sequence[int | None]) -> Layer:
    """A written layer without the extents that have just expired."""
    pairs = [
        pair
        for pair in zip(layer.runs, layer.extents, strict=True)
        if not expired(pair[1].expires_us, bounds[pair[1].store])
    ]
    if len(pairs) == len(layer.runs):
        return layer
    return replace(layer, runs=tuple(run for run, _ in pairs), extents=tuple(extent for _, extent in pairs))


def _layers_of(
    stores: Sequence[StoreLayout],
    chunk: Sequence[tuple[int, Run]],
    width_us: int | None,
    bounds: Sequence[int | None],
    keep: Keep,
    *,
    in_pairs: bool,
) -> list[Layer]:
    """One chunk of arrived rows as one layer per bucket, or per two buckets."""
    buckets: dict[int, list[tuple[int, Run]]] = defaultdict(list)
    for store, run in chunk:
        for bucket, part in by_bucket(run, stores[store], width_us, bounds[store], in_pairs=in_pairs):
            buckets[bucket].append((store, part if part is run else keep(store, part)))
    return [Layer(bucket, tuple(runs)) for bucket, runs in buckets.items()]


def _named(layer: Layer, segment: str, task: SlotTask, stores: Sequence[StoreLayout]) -> tuple[ExtentRef, ...]:
    is_piece = layer.groups is not None
    groups = task.groups if layer.groups is None else layer.groups
    return tuple(
        ExtentRef(segment, index, store, layer.bucket, run.rows, end_of(run, stores[store]), groups, is_piece=is_piece)
        for index, (store, run) in enumerate(layer.runs)
    )
