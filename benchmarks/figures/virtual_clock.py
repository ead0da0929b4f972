"""The real engine under a virtual clock: every epoch takes the time that its work costs at fixed prices.

| work                                        | price, of `optimizer/cost.py` |
|---------------------------------------------|-------------------------------|
| a row looked up in a store                  | `lookup_s`                    |
| a combination with equal keys in the window | `join_s`                      |
| a row stored                                | `insert_s`                    |

Work is counted where it is done, in `probe`: by arriving rows, by builds, and by rows that are made on demand. Prices
of micro-batches, stages and stores are left out: they say how Spark and files are used, and a migration changes none.
The reports of an epoch get these times in place of measured ones. So all that decides by time (the pace of chunks, the
run-time optimiser) decides the same in every run, and the figures are deterministic.

A micro-batch is taken when it is there and those before it are done. `slowness` is how many times slower than this
machine the virtual one is; copies of an experiment that run side by side share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watersmeet.engine import mjoin, on_demand, owed, rebuild, step, work
from watersmeet.engine.mjoin import ROWS_MAX, probe
from watersmeet.engine.partials import Generations, Joined
from watersmeet.epoch import protocol
from watersmeet.epoch.kinds import Backfill, Build, Complete, Epoch
from watersmeet.epoch.task import SlotReport
from watersmeet.optimizer.cost import DEFAULT_PRICES, Prices
from watersmeet.plan.nodes import NodePlan
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import (
    BUILD_NS,
    BUILT_ROWS,
    CPU_TIMES,
    INSERTED,
    MATCHED,
    PROBE_NS,
    SKETCH_NS,
    Counts,
    Figure,
)
from watersmeet.state.run import Run

PROBING = (on_demand, owed, rebuild, step, work)
"""The modules that call `probe`; `rebuild` does it for stores that are built."""
CLOCK_PRICES = Prices(DEFAULT_PRICES.insert_s, 0.0, DEFAULT_PRICES.join_s, lookup_s=DEFAULT_PRICES.lookup_s)


@dataclass(slots=True)
class Meter:
    """CPU seconds at fixed prices: of joining, and of building stores."""

    joining_s: float = 0.0
    building_s: float = 0.0

    def add(self, seconds: float, *, is_building: bool) -> None:
        if is_building:
            self.building_s += seconds
        else:
            self.joining_s += seconds

    def take(self) -> Meter:
        """What was added since the last call."""
        taken = replace(self)
        self.joining_s = self.building_s = 0.0
        return taken


@contextmanager
def metered() -> Iterator[Meter]:
    """A meter of all probes of this process."""
    meter = Meter()
    assert all(module.probe is mjoin.probe for module in PROBING), "one meter at a time"

    def counting(*, is_building: bool) -> Any:
        def metered_probe(
            node: NodePlan,
            origin: int,
            delta: Run,
            targets: Sequence[Sequence[Run]],
            rows_max: int = ROWS_MAX,
            counts: Counter[Figure] | None = None,
            generations: Generations | None = None,
        ) -> Iterator[Joined]:
            own: Counter[Figure] = Counter()
            yield from probe(node, origin, delta, targets, rows_max, own, generations)
            if counts is not None:
                counts.update(own)
            lookups = delta.rows * (len(node.inputs) - 1)
            seconds = lookups * CLOCK_PRICES.lookup_s + own[Figure(MATCHED)] * CLOCK_PRICES.join_s
            meter.add(seconds, is_building=is_building)

        return metered_probe

    try:
        for module in PROBING:
            module.probe = counting(is_building=module is rebuild)  # type: ignore[attr-defined]
        yield meter
    finally:
        for module in PROBING:
            module.probe = probe  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Taken:
    """An epoch, its results, and its work in CPU seconds."""

    epoch: Epoch
    results: int
    work_s: float


class MeteredQuery(InProcessQuery):
    """A query whose epochs are told with their work."""

    def __init__(self, meter: Meter, query: JoinQuery, folder: Path, **setup: Any) -> None:
        super().__init__(query, folder, **setup)
        self.meter = meter
        self.taken: list[Taken] = []

    def _run(self, command: protocol.Run) -> protocol.Event:
        done = super()._run(command)
        stored = sum(r.counts.of(INSERTED) + r.counts.of(BUILT_ROWS) for r in self._reports)
        builds = isinstance(command.epoch, Build | Backfill | Complete)
        self.meter.add(stored * CLOCK_PRICES.insert_s, is_building=builds)
        spent = self.meter.take()
        if builds:
            spent = Meter(0.0, spent.joining_s + spent.building_s)
        self._reports = [_priced(report, spent if i == 0 else Meter()) for i, report in enumerate(self._reports)]
        results = 0 if self._emitted is None else self._emitted.num_rows
        self.taken.append(Taken(command.epoch, results, spent.joining_s + spent.building_s))
        return done

    def take_epochs(self) -> list[Taken]:
        """The epochs since the last call."""
        taken, self.taken = self.taken, []
        return taken


def _priced(report: SlotReport, spent: Meter) -> SlotReport:
    counts = report.counts.without(*CPU_TIMES, BUILD_NS, SKETCH_NS)
    times = {Figure(PROBE_NS): round(spent.joining_s * 1e9), Figure(BUILD_NS): round(spent.building_s * 1e9)}
    return replace(report, counts=counts.with_values(Counts(times)))
