"""The real engine under a virtual clock: an in-process query whose reports have priced CPU times, so that every run of
a seed is the same, whatever the machine does.

A price is paid for what the reports of `step` count. The bytes that change slots are the active ones that relocation
events tell, and an even share of the sender's closed ones. Bytes on disk are those of the segments that an epoch has
written, and of the spilled state that a clean-up reads. Known limitation: no migrations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.epoch import protocol
from watersmeet.epoch.events import Event
from watersmeet.epoch.task import SlotReport
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.inprocess_slots import Slots
from watersmeet.simulation.clock import ClockPrices, Work, insert_s, probe_s
from watersmeet.simulation.watching import Done
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import (
    ACTIVE_BYTES,
    CLOSED_BYTES,
    CLOSED_ROWS,
    CPU_TIMES,
    INSERT_NS,
    INSERTED,
    INTERMEDIATE,
    JOINED,
    MATCHED,
    OWED,
    PROBE_NS,
    RESULTS,
    ROWS,
    SKETCH_NS,
    Counts,
    Figure,
)

Rows = Callable[[float, float], Mapping[str, pa.Table]]
"""The rows of each stream that arrive in a span of virtual seconds."""


class SimulatedEngine(InProcessQuery):
    """A query that is fed what arrives in virtual time."""

    def __init__(self, query: JoinQuery, folder: Path, rows: Rows, prices: ClockPrices, **setup: Any) -> None:
        """`setup` are fields of `inprocess_slots.Setup`."""
        super().__init__(query, folder, **setup)
        self.rows, self.prices = rows, prices
        self.slots = PricedSlots(self.slots, prices)
        self._finished: list[Done] = []
        self._closed = np.zeros(self.setup.slots)
        """Closed bytes by slot, after the last epoch."""

    @property
    def stages(self) -> int:
        return self.plan.stage_count

    def run_span(self, since_s: float, until_s: float, now_s: float) -> tuple[pa.Table, Done]:
        """Run an epoch over a span of arrivals: its results, and what it did."""
        found = self.run(self.rows(since_s, until_s), now_ms=1 + round(now_s * 1000))
        return found, _together(self.take_done())

    def take_done(self) -> list[Done]:
        """The epochs since the last call, with those of a clean-up."""
        taken, self._finished = self._finished, []
        return taken

    def _run(self, command: protocol.Run) -> protocol.Event:
        event = super()._run(command)
        assert isinstance(event, protocol.JobDone)
        self._finished.append(self._done(self._reports, event.manifest))
        return event

    def _done(self, reports: Sequence[SlotReport], after: Manifest) -> Done:
        slots = self.setup.slots
        work, active, closed = Work.none(slots), np.zeros(slots), np.zeros(slots)
        emitted = 0
        for report in reports:
            counts, slot = report.counts, report.slot
            work.stored[slot] += counts.of(INSERTED)
            work.looked_up[slot] += looked_up(self.plan, report)
            work.met[slot] += counts.of(MATCHED)
            work.results[slot] += _emitted(counts)
            work.disk_bytes[slot] += sum(ref.bytes for ref in report.segments)
            work.sent_rows[slot] += counts.of(ROWS)
            active[slot] += counts.of(ACTIVE_BYTES)
            closed[slot] += counts.of(CLOSED_BYTES)
            if owed := counts.of(OWED):  # its probes are not counted by the engine
                work.looked_up[slot] += counts.of(CLOSED_ROWS)
                work.met[slot] += owed
                work.disk_bytes[slot] += self._closed[slot]
            emitted += counts.of(JOINED) or counts.of(RESULTS)
        for event in self.events:
            if event.kind == "relocate" and event.slot is not None:
                size = event.details["bytes"] + self._closed_bytes_of(event, after)
                work.moved_bytes[event.slot] += size
                work.moved_bytes[event.details["to"]] += size
        self._closed = closed
        return Done(float(emitted), active, closed, work, tuple(self.events))

    def _closed_bytes_of(self, event: Event, after: Manifest) -> float:
        """The closed bytes that went with some groups: as many as groups of the sender have on average."""
        owners = np.asarray(after.placement.owners[event.details["key"]])
        groups = event.details["groups"]
        return float(self._closed[event.slot] * groups / (groups + np.count_nonzero(owners == event.slot)))


class Spans:
    """A simulated engine as `watching.simulated` runs it."""

    def __init__(self, engine: SimulatedEngine, take: Callable[[pa.Table], None] | None = None) -> None:
        """`take` gets the results of every epoch."""
        self.engine, self._take = engine, take

    @property
    def stages(self) -> int:
        return self.engine.stages

    def run(self, since_s: float, until_s: float, now_s: float) -> Done:
        found, done = self.engine.run_span(since_s, until_s, now_s)
        if self._take is not None:
            self._take(found)
        return done


class PricedSlots(Slots):
    """Slots whose reports have the CPU times that their counts cost."""

    def __init__(self, slots: Slots, prices: ClockPrices) -> None:
        super().__init__(slots.query, slots.plan, slots.checkpoint, slots.setup)
        self.prices = prices

    def run(self, *args: Any, **how: Any) -> tuple[pa.Table, list[SlotReport]]:
        emitted, reports = super().run(*args, **how)
        return emitted, [self._priced(report) for report in reports]

    def _priced(self, report: SlotReport) -> SlotReport:
        counts = report.counts.without(*CPU_TIMES, SKETCH_NS)
        storing_s = insert_s(self.prices, counts.of(INSERTED))
        joining_s = probe_s(self.prices, looked_up(self.plan, report), counts.of(MATCHED), _emitted(counts))
        times = {Figure(INSERT_NS): round(storing_s * 1e9), Figure(PROBE_NS): round(joining_s * 1e9)}
        return replace(report, counts=counts.with_values(Counts(times)))


def _together(epochs: Sequence[Done]) -> Done:
    """A batch, and the epochs that close windows after it, as one."""
    last = epochs[-1]
    if len(epochs) == 1:
        return last
    work = Work(*(np.sum([getattr(done.work, field.name) for done in epochs], axis=0) for field in fields(Work)))
    events = [event for done in epochs for event in done.events]
    return Done(sum(done.results for done in epochs), last.active_bytes, last.closed_bytes, work, events)


def _emitted(counts: Counts) -> int:
    return counts.of(INTERMEDIATE) + (counts.of(JOINED) or counts.of(RESULTS))


def looked_up(plan: JoinPlan, report: SlotReport) -> int:
    """How often a key was looked up in a store: a row that a node stores is looked up in all its other inputs."""
    found = 0
    for figure, (_, values) in report.groups.items():
        if figure.kind == "arrived":
            found += sum(values) * others(plan, figure.stage, figure.store)
    return found


def others(plan: JoinPlan, stage: int, store: int) -> int:
    """The other inputs of the node that has a store; none if it holds groups of an aggregation."""
    if stage >= len(plan.stages):
        return 0
    for node in plan.stages[stage].shape(0):
        if node.first_store <= store < node.first_store + len(node.inputs):
            return len(node.inputs) - 1
    return 1
