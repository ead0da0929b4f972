"""One epoch of one slot, as a function: rows and its part of the manifest in, results and new extents out.

    frames ──▶ chunk ──▶ delta per input ──▶ probe in the order of the inputs ──▶ results
                             │                (stores and deltas of j < i) x delta i x (stores of j > i)
                             └──▶ when all chunks are done: drop dead rows, bucket, merge, write ──▶ extents

Input i is probed with before its own delta is added, and after the deltas of all inputs before it: each combination
once, whatever the order of arrival. Nothing here depends on row order, clock or chance, so a repeated or recomputed
task yields the same multiset of results, and the same rows in its state.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from watersmeet.engine.fold import SlotReport, SlotTask, fold, open_state
from watersmeet.engine.inbox import chunks, deltas_of
from watersmeet.engine.mjoin import probe
from watersmeet.plan.mjoin import MJoinPlan
from watersmeet.state.run import Run
from watersmeet.state.segment import read_segment, write_segment
from watersmeet.state.tiers import Tiers


def step(
    plan: MJoinPlan,
    task: SlotTask,
    frames: Iterable[pa.RecordBatch],
    tiers: Tiers,
    cut: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.Table]] = chunks,
) -> Generator[pa.RecordBatch, None, SlotReport]:
    """Run one epoch of one slot: yields results in bounded batches, returns the report.

    `cut` bounds the work in flight: each table it yields is joined and set aside before the next is read.
    """
    counts: Counter[str] = Counter()
    layers = open_state(plan, task, tiers)
    stores: list[list[Run]] = [
        [run for layer in layers for s, run in layer.runs if s == i] for i in range(len(plan.stores))
    ]
    arrived: list[list[tuple[int, Run]]] = []
    with ExitStack() as cleanup:
        scratch: Path | None = None
        for chunk in cut(frames):
            counts["rows"] += chunk.num_rows
            if arrived and scratch is None:
                tiers.durable.mkdir(parents=True, exist_ok=True)
                scratch = Path(
                    cleanup.enter_context(tempfile.TemporaryDirectory(prefix=".scratch-", dir=tiers.durable))
                )
            delta: list[tuple[int, Run]] = []
            for i, runs in enumerate(deltas_of(chunk, plan.frame, plan.stores, task.watermark_us, counts)):
                for run in runs:
                    for results in probe(plan, i, run, stores):
                        counts["results"] += results.num_rows
                        yield results
                runs = runs if scratch is None else [_set_aside(run, scratch) for run in runs]
                delta += [(i, run) for run in runs]
                stores[i] = stores[i] + runs
            arrived.append(delta)
        return fold(plan, task, layers, arrived, tiers, counts)


def _set_aside(run: Run, folder: Path) -> Run:
    """Put a run of a large inbox on disk and map it, so that memory holds one chunk and not the inbox."""
    path = folder / str(len(list(folder.iterdir())))
    with path.open("xb") as file:
        write_segment(file, [(0, run)])
    return read_segment(path)[0][1]
