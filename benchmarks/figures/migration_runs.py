"""One run of a chain of joins through a migration, under the virtual clock (M7; dissertation 16).

A micro-batch is a *tick*, a tenth of the window. It is taken when it is there and the virtual machine has done all
before it. A migration that is asked for at some time begins with the first micro-batch that is taken after it. One that
the run-time optimiser wishes begins when it wishes.

Every run ends with an assertion: results are as many as NumPy counts without the engine, and have the same checksum.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.figures.chain_streams import Chain, sums_of, whole_join
from benchmarks.figures.virtual_clock import CLOCK_PRICES, MeteredQuery, Taken, metered
from benchmarks.state_growth import mixed
from watersmeet.adaptation.migration import strategy_named
from watersmeet.epoch.goals import Migrate
from watersmeet.epoch.kinds import Build, Switch
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.dominating import Budget
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree, streams_of
from watersmeet.planning.planner import Planner
from watersmeet.planning.reoptimizing import Reoptimizer

TICKS = 10
"""Micro-batches in a window."""
PARTITIONS = 120


@dataclass(frozen=True, slots=True)
class Experiment:
    """Streams, plans, and the speed of the virtual machine. A second of the chain is a tick."""

    chain: Chain
    tick_s: float
    slowness: float
    """How many times slower than this machine the virtual one is, for each copy of the experiment."""
    old: str
    new: str = ""
    migrate_s: float = 10.0
    adapts: bool = False
    """Whether the run-time optimiser decides; if not, the migration is asked for."""

    @property
    def window_s(self) -> float:
        return self.tick_s * self.chain.window_s

    @property
    def seconds(self) -> float:
        return self.tick_s * self.chain.seconds


@dataclass(slots=True)
class Trace:
    """What was seen of a run, in virtual seconds."""

    experiment: Experiment
    seconds: list[float] = field(default_factory=list)
    """When epochs were done;"""
    results: list[int] = field(default_factory=list)
    """results by then;"""
    intermediate: list[int] = field(default_factory=list)
    """rows in stores of intermediate results,"""
    stored: list[int] = field(default_factory=list)
    """in all stores,"""
    taken: list[int] = field(default_factory=list)
    """and rows that were taken in."""
    arrived: list[int] = field(default_factory=list)
    """Rows that were there after each tick."""
    migrations: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each."""
    migrating_s: list[float] = field(default_factory=list)
    """Time that epochs without rows took, for each migration."""
    load: float = 0.0
    """The part of the time that the machine was busy, until the last arrival or beyond it."""

    @property
    def length_s(self) -> float:
        """Of the first migration."""
        begun_s, ended_s = self.migrations[0]
        return ended_s - begun_s

    def results_at(self, second: float) -> int:
        return self._at(self.results, second)

    def intermediate_at(self, second: float) -> int:
        return self._at(self.intermediate, second)

    def held_at(self, second: float) -> int:
        """Rows in all stores, and those that wait."""
        return self._at(self.stored, second) + self.waiting_at(second)

    def waiting_at(self, second: float) -> int:
        """Rows that have arrived and are not done."""
        ticks = min(int(second / self.experiment.tick_s + 1e-9), len(self.arrived))
        return (self.arrived[ticks - 1] if ticks else 0) - self._at(self.taken, second)

    def _at(self, values: Sequence[int], second: float) -> int:
        count = bisect_right(self.seconds, second)
        return values[count - 1] if count else 0

    def longest_gap_s(self, low: float, high: float) -> float:
        """The longest time without a new result between two moments."""
        times = [low]
        before = self.results_at(low)
        for second, results in zip(self.seconds, self.results, strict=True):
            if low < second <= high and results > before:
                times.append(second)
                before = results
        return float(np.diff([*times, high]).max())


class Steered(Reoptimizer):
    """The run-time optimiser, with one strategy for all migrations, and a clock that stands still."""

    def __init__(self, planner: Planner, strategy: str) -> None:
        super().__init__(planner, sketching_share=1.0, clock=lambda: 0.0)
        self._strategy = strategy

    def wish(self) -> Migrate | None:
        goal = super().wish()
        return None if goal is None else replace(goal, strategy=self._strategy)


def run(experiment: Experiment, batches: Sequence[dict[str, pa.Table]], plan: str, strategy: str | None) -> Trace:
    """All micro-batches by a plan that is migrated by a strategy; without one it stays."""
    trace, chain = Trace(experiment), experiment.chain
    sums = np.zeros(2, dtype=np.uint64)
    now = busy = 0.0
    is_asked = strategy is None or experiment.adapts
    new = plan_join(chain.query, (parse_tree(experiment.new or experiment.old, chain.names),), PARTITIONS)
    with metered() as meter, tempfile.TemporaryDirectory(prefix="watersmeet-figures-", dir="/dev/shm") as folder:
        engine = MeteredQuery(
            meter,
            chain.query,
            Path(folder),
            partitions=PARTITIONS,
            hash_keys=mixed,
            trees=[parse_tree(plan, chain.names)],
            keeps_log=False,
            reoptimizer=_optimiser(experiment, strategy),
        )
        for number, batch in enumerate(batches, 1):
            now = max(now, number * experiment.tick_s)
            if not is_asked and now >= experiment.migrate_s:
                is_asked = True
                deque(engine.migrating(new, strategy_named(strategy or "")), maxlen=0)
            results = engine.run(batch)
            sums += sums_of(results)
            began = now
            now = _note(trace, engine, engine.take_epochs(), now, batch)
            busy += now - began
        trace.load = busy / max(now, experiment.seconds)
    return _checked(trace, sums, batches, f"{plan}, {strategy}")


def _optimiser(experiment: Experiment, strategy: str | None) -> Steered | None:
    if strategy is None or not experiment.adapts:
        return None
    query = experiment.chain.query
    planner = Planner(query, "bjtree", Assumptions({}), 1, PARTITIONS, Budget(), prices=CLOCK_PRICES)
    return Steered(planner, strategy_named(strategy))


def _note(trace: Trace, engine: MeteredQuery, epochs: Sequence[Taken], now: float, batch: dict[str, pa.Table]) -> float:
    """Note the epochs of a micro-batch; the time when they are done."""
    experiment = trace.experiment
    rows = sum(table.num_rows for table in batch.values())
    trace.arrived.append(rows + (trace.arrived[-1] if trace.arrived else 0))
    intermediate, stored = _rows(engine)
    for one in epochs:
        began, now = now, now + one.work_s * experiment.slowness / experiment.chain.copies
        match one.epoch:
            case Build():
                trace.migrations.append((began, now))
                trace.migrating_s.append(now - began)
            case Switch(move="begin"):
                trace.migrations.append((began, float("inf")))
            case Switch(move="end"):
                trace.migrations[-1] = trace.migrations[-1][0], now
        is_batch = one is epochs[-1] or one.results
        trace.seconds.append(now)
        trace.results.append(one.results + (trace.results[-1] if trace.results else 0))
        trace.intermediate.append(intermediate)
        trace.stored.append(stored)
        trace.taken.append(trace.arrived[-1] if is_batch else trace.taken[-1] if trace.taken else 0)
    return now


def _rows(engine: MeteredQuery) -> tuple[int, int]:
    """Rows in stores of intermediate results, and in all stores."""
    plan, extents = engine.plan, engine.manifest.extents[0]
    widths = {
        layout.name: len(list(streams_of(layout.tree)))
        for stage in range(len(plan.stages))
        for layout in plan.layouts(stage, 0)
    }
    rows = {name: sum(extent.rows for extent in found) for name, found in extents.items()}
    return sum(n for name, n in rows.items() if widths.get(name, 1) > 1), sum(rows.values())


_wholes: dict[int, np.ndarray] = {}


def _checked(trace: Trace, sums: np.ndarray, batches: Sequence[dict[str, pa.Table]], name: str) -> Trace:
    whole = _wholes.get(id(batches))
    if whole is None:
        _wholes.clear()
        whole = _wholes[id(batches)] = whole_join(trace.experiment.chain, batches)
    assert (sums == whole).all(), f"{name}, {trace.experiment}: {sums} where {whole} are expected"
    return trace
