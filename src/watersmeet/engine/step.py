"""One stage of one epoch on one slot, as a function: rows and its part of the manifest in, results and new extents out.

    frames ──▶ chunk ──▶ delta per input of the stage ──▶ nodes, children first ──▶ results of the topmost node
                             │     node: (stores and deltas of j < i) x delta i x (stores of j > i)
                             └──▶ when all chunks are done: drop dead rows, bucket, merge, write ──▶ extents

Input i of a node probes before its own delta is added, and after the deltas of all inputs before it: each combination
once, whatever the order of arrival. What a node yields is at once the delta of its parent. Nothing here depends on
row order, clock or chance, so a repeated or recomputed task yields the same multiset of results, and the same rows in
its state.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from watersmeet.engine.compaction import Merging
from watersmeet.engine.fold import DEFAULT_MERGING, SlotReport, SlotTask, fold, open_state, stores_of
from watersmeet.engine.inbox import chunks, deltas_of
from watersmeet.engine.layers import Layer
from watersmeet.engine.mjoin import Joined, probe
from watersmeet.engine.outbox import emit, runs_of
from watersmeet.plan.stages import JoinPlan, NodePlan
from watersmeet.state.run import Run
from watersmeet.state.segment import read_segment, write_segment
from watersmeet.state.tiers import Tiers


def step(
    plan: JoinPlan,
    task: SlotTask,
    frames: Iterable[pa.RecordBatch],
    tiers: Tiers,
    cut: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.Table]] = chunks,
    merging: Merging = DEFAULT_MERGING,
) -> Generator[pa.RecordBatch, None, SlotReport]:
    """Run one stage of one epoch on one slot: yields results (or frames for the next stage), returns the report.

    `cut` bounds the work in flight: each table it yields is joined and set aside before the next is read.
    """
    counts: Counter[str] = Counter()
    layers = open_state(plan, task, tiers)
    work = _Work(plan.stages[task.stage].shape(task.slot), layers, len(stores_of(plan, task)))
    arrived: list[list[tuple[int, Run]]] = []
    with ExitStack() as cleanup:
        for chunk in cut(frames):
            counts["rows"] += chunk.num_rows
            if arrived and work.scratch is None:
                tiers.durable.mkdir(parents=True, exist_ok=True)
                folder = tempfile.TemporaryDirectory(prefix=".scratch-", dir=tiers.durable)
                work.scratch = Path(cleanup.enter_context(folder))
            deltas = deltas_of(chunk, plan, task.stage, task.watermark_us, counts)
            for joined in work.results(len(work.nodes) - 1, deltas):
                counts["results" if plan.stages[task.stage].feeds is None else "intermediate"] += joined.rows
                yield emit(plan, task.stage, joined)
            arrived.append(work.take_arrived())
        return fold(plan, task, layers, arrived, tiers, counts, merging)


class _Work:
    """The stores of a slot while its chunks are joined."""

    def __init__(self, nodes: tuple[NodePlan, ...], layers: Iterable[Layer], stores: int) -> None:
        self.nodes = nodes
        self.stores: list[list[Run]] = [[] for _ in range(stores)]
        for store, run in (pair for layer in layers for pair in layer.runs):
            self.stores[store].append(run)
        self.arrived: list[tuple[int, Run]] = []
        self.scratch: Path | None = None

    def results(self, number: int, deltas: list[list[Run]]) -> Iterator[Joined]:
        """What the deltas of one chunk add to the results of a node; the stores below it are brought up to date."""
        node = self.nodes[number]
        for i in range(len(node.inputs)):
            for run in self._delta(node, i, deltas):
                first, last = node.first_store, node.first_store + len(node.inputs)
                yield from probe(node, i, run, self.stores[first:last])
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
            yield from runs_of(joined, node.inputs[i])

    def _add(self, store: int, run: Run) -> None:
        """Store a run; from the second chunk of a large inbox on, on disk, so that memory holds one chunk of it."""
        if self.scratch is not None:
            path = self.scratch / str(len(list(self.scratch.iterdir())))
            with path.open("xb") as file:
                write_segment(file, [(store, run)])
            run = read_segment(path)[0][1]
        self.stores[store].append(run)
        self.arrived.append((store, run))
