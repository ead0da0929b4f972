"""One stage of one epoch on one slot, as a function: rows and its part of the manifest in, results and new extents out.

    frames ──▶ chunk ──▶ delta per input of the stage ──▶ nodes, children first ──▶ results of the topmost node
                             │     node: (stores and deltas of j < i) x delta i x (stores of j > i)
                             └──▶ when all chunks are done: drop dead rows, bucket, merge, write ──▶ extents

Input i of a node probes before its own delta is added, and after the deltas of all inputs before it: each combination
once, whatever the order of arrival. What a node yields is at once the delta of its parent. In a stage of hops (see
`plan/hops.py`) all chunks are taken in first, and then each hop probes what its place in the order lets it see.
Nothing here depends on row order, clock or chance, so a repeated or recomputed task yields the same multiset of
results, and the same rows in its state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from watersmeet.engine.compaction import Merging
from watersmeet.engine.fold import DEFAULT_MERGING, SlotReport, SlotTask, fold, open_state, read_state, stores_of
from watersmeet.engine.inbox import chunks, deltas_of
from watersmeet.engine.layers import Layer
from watersmeet.engine.mjoin import Joined, probe
from watersmeet.engine.outbox import Emitted, emit, runs_of
from watersmeet.engine.statistics import Tally
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.stages import HopPlan, JoinPlan, Place, StagePlan
from watersmeet.state.run import Run
from watersmeet.state.segment import read_segment, write_segment
from watersmeet.state.tiers import Tiers

HELD_BYTES_MAX = 128 << 20
"""Rows of an epoch that wait in memory until they are written."""

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
    tally = Tally(plan.partitions)
    layers = open_state(plan, task, tiers, tally)
    with ExitStack() as cleanup:
        scratch = _Scratch(tiers.durable, cleanup)
        inbox = _deltas(plan, task, cut(frames), tally, scratch)
        if plan.stages[task.stage].hops:
            arrived = yield from _run_hops(plan, task, layers, inbox, tiers, tally, scratch)
        else:
            arrived = yield from _run_nodes(plan, task, layers, inbox, tally, scratch)
        if plan.stages[task.stage].key:
            tally.spread_pairs(task.group_high - task.group_low)
        return fold(plan, task, layers, arrived, tiers, tally, merging)


Arrived = list[list[tuple[int, Run]]]
"""Per chunk: what was added to which store."""


def _deltas(
    plan: JoinPlan, task: SlotTask, inbox: Iterable[pa.Table], tally: Tally, scratch: _Scratch
) -> Iterator[list[list[Run]]]:
    for number, chunk in enumerate(inbox):
        if number:
            scratch.open()
        tally.counts["rows"] += chunk.num_rows
        with tally.spent_on("insert"):
            deltas = deltas_of(chunk, plan, task.stage, task.watermark_us, tally.counts)
        yield deltas


def _emit(plan: JoinPlan, stage: int, feeds: Sequence[Place], joined: Joined, tally: Tally) -> Iterator[Emitted]:
    tally.counts["intermediate" if feeds else "results" if plan.aggregate is None else "joined"] += joined.rows
    tally.trace(joined, is_final=not feeds, emitted_by=stage)
    yield from emit(plan, feeds, joined)


def _run_nodes(
    plan: JoinPlan,
    task: SlotTask,
    layers: Sequence[Layer],
    inbox: Iterable[list[list[Run]]],
    tally: Tally,
    scratch: _Scratch,
) -> Generator[Emitted, None, Arrived]:
    """A stage of nodes that share a key: each chunk is joined before the next is taken in."""
    stage = plan.stages[task.stage]
    work = _Work(stage.shape(task.slot), _runs_by_store(layers, len(stores_of(plan, task))), scratch, tally)
    arrived: Arrived = []
    for deltas in inbox:
        for joined in work.results(len(work.nodes) - 1, deltas):
            yield from _emit(plan, task.stage, stage.feeds, joined, tally)
        arrived.append(work.take_arrived())
    return arrived


def _run_hops(
    plan: JoinPlan,
    task: SlotTask,
    layers: Sequence[Layer],
    inbox: Iterable[list[list[Run]]],
    tiers: Tiers,
    tally: Tally,
    scratch: _Scratch,
) -> Generator[Emitted, None, Arrived]:
    """A stage of hops: what is new to an input is needed as a whole before anything may probe it."""
    stage = plan.stages[task.stage]
    kept = _runs_by_store(layers, len(stores_of(plan, task)))
    old = [
        kept[index.kept_in[1]] if index.kept_in[0] == task.stage else read_state(plan, task, task.reads[number], tiers)
        for number, index in enumerate(stage.indexes)
    ]
    taken = [[[scratch.keep(0, run) for run in runs] for runs in deltas] for deltas in inbox]
    new = [[run for chunk in taken for run in chunk[number]] for number in range(len(stage.inputs))]
    for hop in stage.hops:
        for joined in _hop(stage, hop, old, new, tally):
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


def _hop(stage: StagePlan, hop: HopPlan, old: list[list[Run]], new: list[list[Run]], tally: Tally) -> Iterator[Joined]:
    """Origin i sees what is new to inputs j < i, and of inputs j > i only what is old: each combination once."""
    targets: list[list[Run]] = [[]]
    for target in hop.targets:
        arrivals = stage.indexes[target.index].arrivals
        more = new[arrivals] if target.with_arrivals and arrivals is not None else []
        targets.append([*old[target.index], *more])
    for run in new[hop.rows]:
        yield from tally.timed("probe", probe(hop.node, 0, run, targets, counts=tally.counts))


def _runs_by_store(layers: Iterable[Layer], stores: int) -> list[list[Run]]:
    found: list[list[Run]] = [[] for _ in range(stores)]
    for store, run in (pair for layer in layers for pair in layer.runs):
        found[store].append(run)
    return found


class _Scratch:
    """From the second chunk of a large inbox on, or when much has been held, rows are kept on disk."""

    def __init__(self, parent: Path, cleanup: ExitStack) -> None:
        self._parent, self._cleanup = parent, cleanup
        self._folder: Path | None = None
        self._files = self._held = 0

    def open(self) -> None:
        if self._folder is None:
            self._parent.mkdir(parents=True, exist_ok=True)
            folder = tempfile.TemporaryDirectory(prefix=".scratch-", dir=self._parent)
            self._folder = Path(self._cleanup.enter_context(folder))

    def keep(self, store: int, run: Run) -> Run:
        self._held += run.kept_bytes()
        if self._held > HELD_BYTES_MAX:
            self.open()
        if self._folder is None:
            return run
        path = self._folder / str(self._files)
        self._files += 1
        with path.open("xb") as file:
            write_segment(file, [(store, run)])
        return read_segment(path)[0][1]


class _Work:
    """The stores of a slot while its chunks are joined."""

    def __init__(self, nodes: tuple[NodePlan, ...], stores: list[list[Run]], scratch: _Scratch, tally: Tally) -> None:
        self.nodes, self.stores, self.scratch, self.tally = nodes, stores, scratch, tally
        self.arrived: list[tuple[int, Run]] = []

    def results(self, number: int, deltas: list[list[Run]]) -> Iterator[Joined]:
        """What the deltas of one chunk add to the results of a node; the stores below it are brought up to date."""
        node = self.nodes[number]
        for i in range(len(node.inputs)):
            for run in self._delta(node, i, deltas):
                first, last = node.first_store, node.first_store + len(node.inputs)
                found = probe(node, i, run, self.stores[first:last], counts=self.tally.counts)
                yield from self.tally.timed("probe", found)
                self._add(first + i, run)

    def take_arrived(self) -> list[tuple[int, Run]]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def _delta(self, node: NodePlan, i: int, deltas: list[list[Run]]) -> Iterator[Run]:
        """The rows that are new to an input: those of the chunk, or results of the node below."""
        child, source = node.children[i], node.stage_inputs[i]
        if source is not None:
            yield from deltas[source]
            return
        assert child is not None
        for joined in self.results(child, deltas):
            self.tally.counts["intermediate"] += joined.rows
            self.tally.trace(joined, is_final=False)
            yield from runs_of(joined, node.inputs[i], self.tally.partitions)

    def _add(self, store: int, run: Run) -> None:
        run = self.scratch.keep(store, run)
        self.stores[store].append(run)
        self.arrived.append((store, run))
