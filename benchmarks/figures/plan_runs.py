"""Several plans over the same streams on the real engine, and when their results are there if CPU is short.

In process nothing arrives by the clock, so a shortage of CPU is computed from what was measured. A micro-batch is there
when its second is over; it is taken when those before it are done; and it is done when the CPU budget has yielded the
CPU seconds that the engine took for it:

    done(i) = max(arrived(i), done(i - 1)) + cpu(i) / budget

Its results count from then on, state is as it was left by the last micro-batch that is done, and rows of all others
that have arrived are in the queue. A shortage of memory is the engine's own: beyond its budget a plan spills, and what
that owes comes when rows expire, or in clean-up. Queued rows are not in that budget: they wait at their source.

The budget is in seconds of the cost model, whose prices are of another hour: on a busy machine CPU seconds stretch.
So a yardstick runs beside every run, plans whose predictions are known: CPU measured over CPU predicted is the *pace*,
one number for all plans of a run. Plans and yardstick take turns, so that what else the machine does slows all of them.

Every run ends with an assertion: results at run time and in clean-up are as many as NumPy counts, and have the same
checksum.
"""

from __future__ import annotations

import math
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from pathlib import Path
from statistics import fmean, geometric_mean

import numpy as np
import pyarrow as pa

from benchmarks.figures.chain_streams import Chain, Sums, sums_of, whole_join
from benchmarks.figures.running import active_bytes
from benchmarks.state_growth import mixed
from watersmeet.adaptation.spill_policies import DEFAULT_POLICY, policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.optimizer.strategies import Candidate
from watersmeet.runtime.inprocess import InProcessQuery

FULL = 1.25
"""Windows after which the state no longer grows: one, and the time buckets that straddle its end."""
YARDSTICK_EVERY = 4
"""Micro-batches of a run for each of the yardstick."""
YARDSTICK_SEED = 0
YARDSTICK_BYTES = 1 << 30


@dataclass(slots=True)
class Trace:
    """What was seen of a plan, micro-batch by micro-batch."""

    arrived_rows: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    active_bytes: list[int] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)
    """With what was spilled."""
    state_rows: list[int] = field(default_factory=list)
    spilled_at: list[int] = field(default_factory=list)
    """Numbers of micro-batches that began with a spill."""
    clean_up_results: int = 0
    clean_up_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """A trace under a CPU budget, told at every full second, just before the micro-batch of that second arrives."""

    trace: Trace
    done_s: list[float]
    """By micro-batch."""
    results: list[int]
    """Cumulative."""
    queued_rows: list[int]
    active_bytes: list[int]
    state_bytes: list[int]
    state_rows: list[int]

    @property
    def behind_s(self) -> float:
        """How long after the last arrival all is done."""
        return self.done_s[-1] - len(self.done_s)

    @property
    def state_bytes_max(self) -> int:
        return max(self.trace.state_bytes)

    @property
    def first_spill_s(self) -> int:
        """The last full second before the first spill, or the end."""
        spilled_at = self.trace.spilled_at
        return int(self.done_s[spilled_at[0] - 1]) if spilled_at else len(self.done_s)


def timeline(trace: Trace, cpu_budget_s: float) -> Timeline:
    """When everything happens if there are so many CPU seconds a second."""
    done_s: list[float] = []
    for number, cpu_s in enumerate(trace.cpu_s):
        begun = max(number + 1.0, done_s[-1] if done_s else 0.0)
        done_s.append(begun + cpu_s / cpu_budget_s)
    seconds = range(len(done_s) + 1)
    done = [bisect_right(done_s, second) for second in seconds]
    arrived, results = ([0, *accumulate(each)] for each in (trace.arrived_rows, trace.results))

    def held(after: list[int]) -> list[int]:
        return [([0, *after])[count] for count in done]

    return Timeline(
        trace,
        done_s,
        results=[results[count] for count in done],
        queued_rows=[arrived[max(0, second - 1)] - arrived[count] for second, count in zip(seconds, done, strict=True)],
        active_bytes=held(trace.active_bytes),
        state_bytes=held(trace.state_bytes),
        state_rows=held(trace.state_rows),
    )


@dataclass(slots=True)
class Yardstick:
    """Plans with full windows that are run now and then."""

    plans: Sequence[Candidate]
    engines: list[InProcessQuery]
    batches: Iterator[dict[str, pa.Table]]
    cpu_s: list[list[float]] = field(default_factory=list)

    def run(self) -> None:
        batch = next(self.batches)
        self.cpu_s.append([_timed(engine, batch)[1] for engine in self.engines])

    @property
    def pace(self) -> float:
        """CPU seconds that this machine takes for one of the model."""
        spent = zip(*self.cpu_s, strict=True)
        return geometric_mean(fmean(cpu_s) / plan.cpu_s for cpu_s, plan in zip(spent, self.plans, strict=True))


def yardstick(chain: Chain, plans: Sequence[Candidate], ticks: int, cleanup: ExitStack) -> Yardstick:
    """For so many micro-batches."""
    full = math.ceil(FULL * chain.window_s)
    engines = [_engine(chain, plan, YARDSTICK_BYTES, cleanup) for plan in plans]
    batches = iter(replace(chain, seconds=full + ticks).batches(YARDSTICK_SEED))
    for batch in islice(batches, full):
        for engine in engines:
            engine.run(batch)
    return Yardstick(plans, engines, batches)


def run_plans(
    chain: Chain,
    plans: Mapping[str, Candidate],
    memory_bytes: int,
    seed: int,
    *,
    measured_by: tuple[Chain, Sequence[Candidate]],
) -> tuple[dict[str, Trace], float]:
    """All plans over the same rows, and the pace; fails if a result of any is missing or too many."""
    batches = chain.batches(seed)
    whole = whole_join(chain, batches)
    with ExitStack() as cleanup:
        measure = yardstick(*measured_by, len(batches) // YARDSTICK_EVERY + 1, cleanup)
        engines = {name: _engine(chain, plan, memory_bytes, cleanup) for name, plan in plans.items()}
        traces = {name: Trace() for name in plans}
        sums = {name: np.zeros(2, dtype=np.uint64) for name in plans}
        for number, batch in enumerate(batches):
            if number % YARDSTICK_EVERY == 0:
                measure.run()
            for name, engine in engines.items():
                results, cpu_s = _timed(engine, batch)
                traces[name].cpu_s.append(cpu_s)
                traces[name].arrived_rows.append(sum(table.num_rows for table in batch.values()))
                traces[name].results.append(results.num_rows)
                sums[name] += sums_of(results)
                _note(traces[name], engine)
        for name, engine in engines.items():
            sums[name] += _cleaned_up(engine, traces[name])
            assert (sums[name] == whole).all(), f"{name}, {chain}: {sums[name]} where {whole} are expected"
    return traces, measure.pace


def _timed(engine: InProcessQuery, batch: Mapping[str, pa.Table]) -> tuple[pa.Table, float]:
    began = time.process_time()
    results = engine.run(batch)
    return results, time.process_time() - began


def _engine(chain: Chain, plan: Candidate, memory_bytes: int, cleanup: ExitStack) -> InProcessQuery:
    folder, memory = (
        Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="watersmeet-figures-", dir="/dev/shm")))
        for _ in range(2)
    )
    return InProcessQuery(
        chain.query,
        folder,
        memory=memory,
        memory_budget_bytes=memory_bytes,
        hash_keys=mixed,
        trees=[plan.tree],
        orders=plan.probe_orders,
        spill=SpillSettings(policy=policy_named(DEFAULT_POLICY), budget_bytes=memory_bytes),
    )


def _note(trace: Trace, engine: InProcessQuery) -> None:
    manifest = engine.manifest
    trace.active_bytes.append(active_bytes(engine, 0))
    trace.state_bytes.append(sum(segment.bytes for segment in manifest.segments.values()))
    trace.state_rows.append(sum(extent.rows for extent in manifest.all_extents()))
    if any(event.kind == "spill" for event in engine.events):
        trace.spilled_at.append(len(trace.results) - 1)


def _cleaned_up(engine: InProcessQuery, trace: Trace) -> Sums:
    sums = np.zeros(2, dtype=np.uint64)
    began = time.process_time()
    for results in engine.clean_up():
        trace.clean_up_results += results.num_rows
        sums += sums_of(results)
    trace.clean_up_cpu_s = time.process_time() - began
    return sums
