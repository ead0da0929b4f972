"""The state of another plan, built from stored rows (M1; dissertation 12.1, Alg. 7), one stage on one slot.

Ordinary rows arrive, probe the stores, and are stored. Here no rows arrive: a node joins the stored rows of its inputs
once, and its results become the store above it. Stores that the old plan had under the same name are only read.

    shared stores ──────────────┐
    fed rows, results of other ─┴─▶ nodes, children first ──▶ built stores ──▶ extents
    stages                             └──▶ results of the topmost node, for other stages that build

All rows are old: none is late, and none counts as an arrival. The results of the query are not computed again. A plan
that runs already is completed in the same way, some groups at a time (`plan/completion.py`, `plan/handover.py`).
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.bound import Bound
from watersmeet.engine.combined_rows import merging_of, with_combined
from watersmeet.engine.compaction import Merging
from watersmeet.engine.emission import Emitted, emit, runs_of
from watersmeet.engine.expressions import evaluate
from watersmeet.engine.fold import fold
from watersmeet.engine.inbox import deltas_of
from watersmeet.engine.mjoin import probe
from watersmeet.engine.opening import open_state, read_state
from watersmeet.engine.partials import Joined, Partials
from watersmeet.engine.statistics import Tally
from watersmeet.engine.work import Scratch
from watersmeet.epoch.task import SlotReport, SlotTask, stores_of
from watersmeet.plan.completion import lacking, pinned
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import Feed
from watersmeet.state.manifest import within
from watersmeet.state.measures import (
    BUILD_NS,
    BUILT_ROWS,
    INSERT_NS,
    INSERTED,
    JOINED,
    PROBE_NS,
    RESULTS,
    Counts,
    Figure,
)
from watersmeet.state.moments import last_moments
from watersmeet.state.run import Run, merge_in_parts
from watersmeet.state.tiers import Tiers

ROWS_AT_ONCE = 1 << 16
Rows = list[list[Run]]
"""By store of a slot, or by input of a stage."""


def fed_rows(plan: JoinPlan, feeds: Sequence[Feed], task: SlotTask, tiers: Tiers) -> Iterator[Emitted]:
    """The stored rows of streams that stages of the new plan lack, as frames for these. The runner adds hashes."""
    for feed, extents in zip(feeds, task.reads, strict=True):
        for run in read_state(plan, task, feed.source, extents, tiers):
            yield from fed_run(plan, feed, run, task.watermark_us)


def fed_run(plan: JoinPlan, feed: Feed, run: Run, watermark_us: int | None) -> Iterator[Emitted]:
    """The rows of one run as frames for the input that lacks them."""
    for low in range(0, run.rows, ROWS_AT_ONCE):
        rows = np.arange(low, min(low + ROWS_AT_ONCE, run.rows))
        joined = _as_joined(plan, feed, run, rows)
        if feed.is_carried:
            joined = _carried(joined, feed, watermark_us)
        yield from emit(plan, [feed.place], joined)


def _carried(joined: Joined, feed: Feed, watermark_us: int | None) -> Joined:
    """The rows that a changed query takes over: rows that the old one could still have joined, and that pass the
    tests. An expired row may be there or not: it depends on merges."""
    last = joined.partials.last
    if last is not None and watermark_us is not None:
        joined = replace(joined, partials=joined.partials.narrowed(last >= watermark_us))
    for test in feed.tests:
        passed = evaluate(test, joined.column, joined.rows)
        joined = replace(joined, partials=joined.partials.narrowed(passed))
    return joined


def _as_joined(plan: JoinPlan, feed: Feed, run: Run, rows: np.ndarray) -> Joined:
    """Rows of a store in the form of results of a node with one input."""
    layout = feed.source
    node = NodePlan(
        tree=plan.trees[0],
        key=(),
        inputs=(layout,),
        children=(None,),
        stage_inputs=(0,),
        first_store=0,
        probe_orders=((),),
        residuals=(),
        equalities=(),
        windowed=plan.windowed,
        names=plan.names,
    )
    at = rows + int(run.starts[0])
    latest = run.times(at) if plan.windowed else None
    last = None if latest is None else last_moments(latest, layout.span_us)
    bound = Bound([(run.payload, at)], latest, np.arange(len(rows)))
    return Joined(node, run, Partials(run.row_ranks()[rows], latest, last, {0: bound}))


def rebuild_step(
    plan: JoinPlan, task: SlotTask, chunks: Iterable[pa.Table], tiers: Tiers, merging: Merging
) -> Generator[Emitted, None, SlotReport]:
    """Build the stores that a slot lacks in a stage: yields frames for other stages that build, returns the report."""
    assert task.build is not None
    tally = Tally(plan.partitions)
    layers = open_state(plan, task, tiers, tally)
    stage = plan.stages[task.stage]
    with ExitStack() as cleanup:
        scratch = Scratch(tiers.folder_of_scratch(), cleanup)
        taken: Rows = [[] for _ in stage.inputs]
        for chunk in chunks:
            deltas = deltas_of(chunk, plan, task.stage, None, tally)
            for number, runs in enumerate(with_combined(plan, task.stage, deltas)):
                taken[number] += [scratch.keep(number, run) for run in runs]
        with tally.spent_on(BUILD_NS):
            if stage.hops:
                rows = yield from _rebuilt_by_hops(plan, task, taken)
            else:
                held: Rows = [[] for _ in stores_of(plan, task)]
                for store, run in (pair for layer in layers for pair in layer.runs):
                    held[store].append(run)
                rows = yield from rebuilt_by_nodes(plan, task, held, taken, scratch)
        built = [(store, run) for store in task.build for run in rows[store]]
        copies = Scratch(tiers.folder_of_scratch(), cleanup)
        merge = merging_of(plan, task.stage)
        report = fold(plan, task, layers, [built], tiers, tally, merging, merge, keep=copies.keep)
    return report_of_building(report)


def completing(plan: JoinPlan, task: SlotTask, tiers: Tiers, scratch: Scratch) -> list[tuple[int, Run]]:
    """The rows of some groups that stores of a running plan lack, with the stores."""
    assert task.completes is not None
    lacks = lacking(plan, task.stage, task.slot)
    chunk = replace(task, reads=tuple(within(extents, *task.completes) for extents in task.reads))
    found = pinned_runs(plan, chunk, tiers)
    held = [found.get(store, []) for store in range(len(stores_of(plan, task)))]
    rows = stores_built(plan.stages[task.stage].shape(task.slot), lacks, held, plan.partitions, scratch)
    return [(store, run) for store in lacks for run in rows[store]]


def pinned_runs(plan: JoinPlan, task: SlotTask, tiers: Tiers) -> dict[int, list[Run]]:
    """The rows of the pinned stores that the task is given, by number of the store (`plan/completion.py`)."""
    stores = pinned(plan, task.stage, task.slot)
    if not stores:
        return {}
    reads = zip(stores.items(), task.reads, strict=True)
    return {store: read_state(plan, task, layout, extents, tiers) for (store, layout), extents in reads}


def report_of_building(report: SlotReport) -> SlotReport:
    """The report of a stage that builds: its rows do not count as arrivals, nor its results as productivity."""
    counts, sizes = report.counts, {f: found for f, found in report.groups.items() if f.kind == "size"}
    spent_ns = sum(counts.of(time_ns) for time_ns in (INSERT_NS, PROBE_NS, BUILD_NS))
    built = Counts({Figure(BUILT_ROWS): counts.of(INSERTED), Figure(BUILD_NS): spent_ns})
    emitted = {Figure(measure): rows for measure in (RESULTS, JOINED) if (rows := counts.of(measure))}
    built = built.with_values(Counts(emitted))
    return replace(report, counts=counts.gauges().with_values(built), groups=sizes, seen={}, inputs={})


def rebuilt_by_nodes(
    plan: JoinPlan, task: SlotTask, held: Rows, taken: Rows, scratch: Scratch
) -> Generator[Emitted, None, Rows]:
    """The rows of all stores of a stage whose nodes share a key."""
    stage, building = plan.stages[task.stage], set(task.build or ())
    nodes = stage.shape(task.slot)
    for node in nodes:
        for store, source in enumerate(node.stage_inputs, node.first_store):
            if store in building and source is not None:
                held[store] = taken[source]
    rows = stores_built(nodes, building, held, plan.partitions, scratch)
    if task.joins:
        for joined in _all_results(nodes[-1], rows, scratch):
            yield from emit(plan, stage.feeds, joined)
    return rows


def stores_built(
    nodes: Sequence[NodePlan], building: Container[int], rows: Rows, partitions: int, scratch: Scratch
) -> Rows:
    """The rows of all stores of a shape. Those that are built are added to `rows`: a node joins what its inputs have,
    children first, and the topmost node nothing."""
    for number, node in enumerate(nodes[:-1]):
        above = next(parent for parent in nodes if number in parent.children)
        place = above.children.index(number)
        store = above.first_store + place
        if store in building:
            for joined in _all_results(node, rows, scratch):
                made = runs_of(joined, above.inputs[place], partitions)
                rows[store] += [scratch.keep(store, run) for run in made]
    return rows


def _all_results(node: NodePlan, rows: Rows, scratch: Scratch) -> Iterator[Joined]:
    """All combinations of stored rows of a node's inputs: rows of the smallest input probe the others. Each run would
    probe all runs of another input, so these are merged before."""
    stores = range(node.first_store, node.first_store + len(node.inputs))
    inputs = [merged_of_store(store, rows[store], scratch) for store in stores]
    origin = min(range(len(inputs)), key=lambda i: sum(run.rows for run in inputs[i]))
    targets = [[] if i == origin else runs for i, runs in enumerate(inputs)]
    for run in inputs[origin]:
        yield from probe(node, origin, run, targets)


def merged_of_store(store: int, runs: list[Run], scratch: Scratch) -> list[Run]:
    return [scratch.keep(store, run) for run in merge_in_parts(runs)] if len(runs) > 1 else runs


def _rebuilt_by_hops(plan: JoinPlan, task: SlotTask, taken: Rows) -> Generator[Emitted, None, Rows]:
    """The rows of the indexes that a stage of hops keeps. If the node joins, all its rows have been taken in, and each
    origin i probes the rows of the inputs j < i."""
    stage = plan.stages[task.stage]
    for hop in stage.hops if task.joins else ():
        arrivals = [stage.indexes[target.index].arrivals if target.with_arrivals else None for target in hop.targets]
        targets = [[] if number is None else taken[number] for number in arrivals]
        for run in taken[hop.rows]:
            for joined in probe(hop.node, 0, run, [[], *targets]):
                yield from emit(plan, hop.feeds, joined)
    kept = [index for index in stage.indexes if index.kept_in[0] == task.stage]
    return [[] if index.arrivals is None else taken[index.arrivals] for index in kept]
