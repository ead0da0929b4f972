"""One stage of one epoch on one slot, as a function: rows and its part of the manifest in, results and new extents out.

    frames ──▶ chunk ──▶ delta per input of the stage ──▶ nodes, children first ──▶ results of the topmost node
                             │     node: (stores and deltas of j < i) x delta i x (stores of j > i)
                             └──▶ when all chunks are done: drop dead rows, bucket, merge, write ──▶ extents

Input i of a node probes before its own delta is added, and after the deltas of all inputs j < i are added. So each
combination is made once, whatever the order of arrival. The results of a node are at once the delta of its parent. In a
stage of hops (see `plan/hops.py`) all chunks are taken in first. Then each hop probes the rows that its place in the
order allows. Nothing here depends on row order, clock or chance: a repeated task yields the same multiset of results,
and the same rows in its state.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from watersmeet.engine.combined_rows import merging_of, with_combined
from watersmeet.engine.compaction import Merging
from watersmeet.engine.emission import Emitted, emit
from watersmeet.engine.fold import DEFAULT_MERGING, fold
from watersmeet.engine.generations import Spilled, close_groups, divided, opened, parts_of
from watersmeet.engine.inbox import chunks, deltas_of
from watersmeet.engine.layers import Layer
from watersmeet.engine.marks import not_all_new
from watersmeet.engine.mjoin import probe
from watersmeet.engine.moved_groups import rows_lacking
from watersmeet.engine.on_demand import Missing
from watersmeet.engine.opening import open_state, read_state
from watersmeet.engine.owed import owed_at_expiry, owed_in_groups
from watersmeet.engine.partials import Joined
from watersmeet.engine.rebuild import completing, pinned_runs, rebuild_step, report_of_building
from watersmeet.engine.sides import Sides
from watersmeet.engine.statistics import Tally
from watersmeet.engine.work import Scratch, Work
from watersmeet.epoch.pairs import add_rows
from watersmeet.epoch.task import InputRows, NodeInput, SlotReport, SlotTask, stores_of
from watersmeet.plan.completion import lacking
from watersmeet.plan.stages import HopPlan, JoinPlan, Place, StagePlan
from watersmeet.state.manifest import ACTIVE
from watersmeet.state.measures import (
    BUILD_NS,
    BUILT_ROWS,
    INSERT_NS,
    INTERMEDIATE,
    JOINED,
    OWED,
    OWED_NS,
    PROBE_NS,
    RESULTS,
    ROWS,
    SPILL_NS,
    SPILLED_BYTES,
    Measure,
)
from watersmeet.state.run import Run
from watersmeet.state.tiers import Tiers

Cut = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.Table]]


def step(
    plan: JoinPlan,
    task: SlotTask,
    frames: Iterable[pa.RecordBatch],
    tiers: Tiers,
    cut: Cut = chunks,
    merging: Merging = DEFAULT_MERGING,
) -> Generator[Emitted, None, SlotReport]:
    """Run one stage of one epoch on one slot: yields results or frames for other stages, returns the report.

    `cut` bounds the work in flight: each table it yields is joined and set aside before the next is read.
    """
    if task.build is not None:
        return (yield from rebuild_step(plan, task, cut(frames), tiers, merging))
    tally = Tally(plan.partitions, task.sketches)
    layers = open_state(plan, task, tiers, tally)
    with ExitStack() as cleanup:
        scratch = Scratch(tiers.folder_of_scratch(), cleanup)
        inbox = _deltas(plan, task, cut(frames), tally, scratch)
        spilled = Spilled(layers)
        made: list[tuple[int, Run]] = []
        if plan.stages[task.stage].hops:
            arrived = yield from _run_hops(plan, task, layers, inbox, tiers, tally, scratch)
        else:
            with tally.spent_on(SPILL_NS):
                spilled = close_groups(plan, task, layers, tiers)
            tally.count(SPILLED_BYTES, spilled.bytes_of(task.epoch + 2))
            made = _made(plan, task, spilled.layers, tally, scratch)
            run = _run_sides if plan.stages[task.stage].successors else _run_nodes
            arrived = yield from run(plan, task, spilled, made, inbox, tiers, tally, scratch)
        copies = Scratch(tiers.folder_of_scratch(), cleanup)
        merge = merging_of(plan, task.stage)
        report = fold(plan, task, spilled.layers, arrived, tiers, tally, merging, merge, spilled, made, copies.keep)
        return report_of_building(report) if plan.stages[task.stage].is_built else report


Arrived = list[list[tuple[int, Run]]]
"""Per chunk: stores, and the runs added to them."""


def _deltas(
    plan: JoinPlan, task: SlotTask, inbox: Iterable[pa.Table], tally: Tally, scratch: Scratch
) -> Iterator[list[list[Run]]]:
    for number, chunk in enumerate(inbox):
        if number:
            scratch.open()
        tally.count(ROWS, chunk.num_rows)
        with tally.spent_on(INSERT_NS):
            watermark_us = None if task.is_old else task.watermark_us
            deltas = deltas_of(chunk, plan, task.stage, watermark_us, tally)
            deltas = with_combined(plan, task.stage, deltas)
        yield deltas


def _emitted(plan: JoinPlan, feeds: Sequence[Place]) -> Measure:
    """The measure that counts the results of a stage."""
    return INTERMEDIATE if feeds else RESULTS if plan.aggregate is None else JOINED


def _emit(plan: JoinPlan, stage: int, feeds: Sequence[Place], joined: Joined, tally: Tally) -> Iterator[Emitted]:
    tally.count(_emitted(plan, feeds), joined.rows)
    tally.trace(joined, is_final=not feeds, emitted_by=stage)
    yield from emit(plan, feeds, joined)


def _run_nodes(
    plan: JoinPlan,
    task: SlotTask,
    spilled: Spilled,
    made: Sequence[tuple[int, Run]],
    inbox: Iterable[list[list[Run]]],
    tiers: Tiers,
    tally: Tally,
    scratch: Scratch,
) -> Generator[Emitted, None, Arrived]:
    """A stage of nodes that share a key: each chunk is joined before the next is taken in.

    `made` are rows of stores that groups lacked. Owed results of expiring rows are emitted before, those of the task's
    range of groups (if it has one) afterwards.
    """
    stage = plan.stages[task.stage]
    stores = _runs_by_store(spilled.layers, len(stores_of(plan, task)))
    for store, run in made:
        stores[store].append(run)
    work = Work(stage.shape(task.slot), stores, scratch, tally)
    work.skips_new = stage.is_marked and not stage.feeds
    if lacks := lacking(plan, task.stage, task.slot):
        work.missing = Missing(work.nodes, lacks, pinned_runs(plan, task, tiers), plan.partitions)
    arrived: Arrived = []
    if any(not extent.is_active for extent in task.extents):
        yield from _owed(plan, task, _expiring(plan, task, spilled, work, tiers), tally)
        arrived.append(work.take_arrived())
    there = work.rows_by_store()
    for deltas in inbox:
        if stage.is_silent:
            work.store(deltas)
        else:
            for joined in work.results(len(work.nodes) - 1, deltas):
                yield from _emit(plan, task.stage, stage.feeds, joined, tally)
        arrived.append(work.take_arrived())
    work.count_rows(task.stage, there)
    if task.completes is not None:
        with tally.spent_on(BUILD_NS):
            arrived.append(completing(plan, task, tiers, scratch))
        _count_built(tally, arrived[-1])
    if task.clean is not None:
        yield from _owed(plan, task, _cleaned(plan, task, spilled, work, tiers), tally)
        arrived.append(work.take_arrived())
    return arrived


def _run_sides(
    plan: JoinPlan,
    task: SlotTask,
    spilled: Spilled,
    _made: Sequence[tuple[int, Run]],
    inbox: Iterable[list[list[Run]]],
    _: Tiers,
    tally: Tally,
    scratch: Scratch,
) -> Generator[Emitted, None, Arrived]:
    """A stage whose groups are handed over to another plan. Nothing is owed there, and no group changes slots."""
    sides = Sides(plan, task, _runs_by_store(spilled.layers, len(stores_of(plan, task))), scratch, tally)
    arrived: Arrived = []
    for deltas in inbox:
        for joined in sides.results(deltas):
            yield from _emit(plan, task.stage, plan.stages[task.stage].feeds, joined, tally)
        arrived.append(sides.take_arrived())
    sides.count_rows()
    if task.completes is not None:
        with tally.spent_on(BUILD_NS):
            arrived.append(sides.handed_over(*task.completes))
        _count_built(tally, arrived[-1])
    return arrived


def _made(
    plan: JoinPlan, task: SlotTask, layers: Sequence[Layer], tally: Tally, scratch: Scratch
) -> list[tuple[int, Run]]:
    """The rows of stores that groups lack which have come from a slot of another shape."""
    if not task.lacks:
        return []
    with tally.spent_on(BUILD_NS):
        made = rows_lacking(plan, task, _runs_by_store(layers, len(stores_of(plan, task))), scratch)
    _count_built(tally, made)
    return made


def _count_built(tally: Tally, rows: Sequence[tuple[int, Run]]) -> None:
    tally.count(BUILT_ROWS, sum(run.rows for _, run in rows))


def _expiring(plan: JoinPlan, task: SlotTask, spilled: Spilled, work: Work, tiers: Tiers) -> Iterator[Joined]:
    """The owed results of rows that expire now, node by node, children first."""
    ending = [extent for extent in task.extents if task.has_expired(extent)]
    if not ending:
        return
    refs = {**task.segments, **{ref.name: ref for ref in spilled.segments}}
    expiring = divided(plan, task, parts_of(opened(plan, ending, task.segments, tiers)))
    closed = parts_of(opened(plan, [*task.closed, *spilled.closed], refs, tiers))
    active = [part for part in expiring if part.generation == ACTIVE]
    for part in active:
        work.stores[part.store].append(part.run)  # owed results of the nodes below still join them
    for number, node in enumerate(work.nodes):
        leaving = {id(part.run) for part in active}
        staying = [*closed, *(part for part in work.active() if id(part.run) not in leaving)]
        for joined in owed_at_expiry(node, expiring, staying):
            yield from work.deliver(number, joined)
    work.forget(active)


def _cleaned(plan: JoinPlan, task: SlotTask, spilled: Spilled, work: Work, tiers: Tiers) -> Iterator[Joined]:
    """The owed results of the task's range of groups, node by node, children first."""
    assert task.clean is not None
    refs = {**task.segments, **{ref.name: ref for ref in spilled.segments}}
    closed = parts_of(opened(plan, [*task.closed, *spilled.closed], refs, tiers))
    for number, node in enumerate(work.nodes):
        for joined in owed_in_groups(node, [*closed, *work.active()], *task.clean, plan.partitions):
            yield from work.deliver(number, joined)


def _owed(plan: JoinPlan, task: SlotTask, found: Iterable[Joined], tally: Tally) -> Iterator[Emitted]:
    """Emit owed results. They are not traced: they tell nothing about the productivity of their groups now."""
    feeds = plan.stages[task.stage].feeds
    for joined in tally.timed(OWED_NS, found):
        tally.count(OWED, joined.rows)
        tally.count(_emitted(plan, feeds), joined.rows)
        yield from emit(plan, feeds, joined)


def _run_hops(
    plan: JoinPlan,
    task: SlotTask,
    layers: Sequence[Layer],
    inbox: Iterable[list[list[Run]]],
    tiers: Tiers,
    tally: Tally,
    scratch: Scratch,
) -> Generator[Emitted, None, Arrived]:
    """A stage of hops: all new rows of an input must be there before the first row probes it."""
    stage = plan.stages[task.stage]
    kept = _runs_by_store(layers, len(stores_of(plan, task)))
    old = [
        kept[index.kept_in[1]]
        if index.kept_in[0] == task.stage
        else read_state(plan, task, index.layout, task.reads[number], tiers)
        for number, index in enumerate(stage.indexes)
    ]
    taken = [[[scratch.keep(0, run) for run in runs] for runs in deltas] for deltas in inbox]
    new = [[run for chunk in taken for run in chunk[number]] for number in range(len(stage.inputs))]
    for number, hop in enumerate(() if stage.is_silent else stage.hops):
        targets = _targets(stage, hop, old, new)
        _count_rows(tally, task.stage, number, hop, [new[hop.rows], *targets])
        for run in new[hop.rows]:
            held = [[], *targets]
            wanted = not_all_new(run, held) if stage.is_marked and not hop.feeds else None
            found = probe(hop.node, 0, run, held, counts=tally.counts, generations=wanted)
            for joined in tally.timed(PROBE_NS, found):
                yield from _emit(plan, task.stage, hop.feeds, joined, tally)
    stores = [index for index in stage.indexes if index.kept_in[0] == task.stage]
    return [
        [
            (store, run)
            for store, index in enumerate(stores)
            if index.arrivals is not None
            for run in chunk[index.arrivals]
        ]
        for chunk in taken
    ]


def _targets(stage: StagePlan, hop: HopPlan, old: list[list[Run]], new: list[list[Run]]) -> list[list[Run]]:
    """Origin i probes old and new rows of inputs j < i, but only old rows of inputs j > i: each combination once."""
    targets = []
    for target in hop.targets:
        arrivals = stage.indexes[target.index].arrivals
        more = new[arrivals] if target.with_arrivals and arrivals is not None else []
        targets.append([*old[target.index], *more])
    return targets


def _count_rows(tally: Tally, stage: int, number: int, hop: HopPlan, inputs: Sequence[Sequence[Run]]) -> None:
    """Report the rows of a hop: rows of its first input probe rows of the others."""
    for i, (layout, runs) in enumerate(zip(hop.node.inputs, inputs, strict=True)):
        rows = sum(run.rows for run in runs)
        there, new = (rows, 0) if i else (0, rows)
        add_rows(tally.inputs, NodeInput(stage, f"hop {number}", layout.label), InputRows(there, new))


def _runs_by_store(layers: Iterable[Layer], stores: int) -> list[list[Run]]:
    found: list[list[Run]] = [[] for _ in range(stores)]
    for store, run in (pair for layer in layers for pair in layer.runs):
        found[store].append(run)
    return found
