"""The counter model: no rows, only numbers per partition group; the coordinator, its policies and manifests are real.

    load ─▶ StageCounts per stage ─▶ one SlotReport per slot and stage ─▶ manifest_after, Coordinator.note
                  ▲                                                              │
                  └──────── moves and spills of the next epoch ◀── Coordinator.next_epoch

So only `step` is replaced: what it would report follows from the counts. The manifest has no extents. See
`group_counts.py` for what is left out. `real_engine.py` is what it is validated against.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.adaptation.figures import Ints
from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.epoch.after import Clock, initial_manifest, manifest_after
from watersmeet.epoch.events import Event
from watersmeet.epoch.kinds import Batch, Spill, moves_of, orders_of
from watersmeet.epoch.protocol import JoinBatch
from watersmeet.epoch.task import GroupCounts, GroupFigure, Intake, Outcome, SlotReport, Worker
from watersmeet.errors import OptionError
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.plan.keys import key_name
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import Join, streams_of
from watersmeet.simulation.clock import ClockPrices, Floats, Work, insert_s, probe_s
from watersmeet.simulation.group_counts import Joined, StageCounts
from watersmeet.simulation.load import Load
from watersmeet.simulation.real_engine import others
from watersmeet.simulation.watching import Done
from watersmeet.state.manifest import Manifest, moved
from watersmeet.state.measures import (
    ACTIVE_BYTES,
    CLOSED_BYTES,
    INSERT_NS,
    INSERTED,
    INTERMEDIATE,
    MEMORY_BYTES,
    PROBE_NS,
    RESULTS,
    ROWS,
    SPILLED_BYTES,
    STATE_ROWS,
    STORE_BYTES,
    Counts,
    Figure,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Slots and what they may use."""

    slots: int
    hosts: int = 1
    budget_bytes: int | None = None
    """Of a slot."""
    spill: SpillSettings | None = None
    relocator: Relocator | None = None
    placement: Placement | None = None
    prices: ClockPrices = field(default_factory=ClockPrices)

    def host_of(self, slot: int) -> int:
        return slot * self.hosts // self.slots


class CounterModel:
    """A query of which only counts are simulated."""

    def __init__(self, plan: JoinPlan, graph: JoinGraph, load: Load, cluster: Cluster, seed: int | None = None) -> None:
        """With a seed, the numbers of arriving rows are drawn (Poisson); without, they are the expected ones."""
        require_nodes_with_keys(plan)
        self.plan, self.load, self.cluster, self.prices = plan, load, cluster, cluster.prices
        self.coordinator = Coordinator(
            plan, cluster.slots, cluster.budget_bytes, cluster.spill, relocator=cluster.relocator
        )
        self.coordinator.expect_hosts(cluster.hosts)
        self.manifest: Manifest = initial_manifest(plan, cluster.slots)
        if cluster.placement is not None:
            self.manifest = replace(self.manifest, placement=cluster.placement)
        self._rng = None if seed is None else np.random.default_rng(seed)
        ones = np.ones(plan.partitions)
        self._stages = [
            StageCounts(
                plan,
                number,
                graph,
                load.matched_by(stage.key_text),
                load.weights.get(stage.key_text, ones),
            )
            for number, stage in enumerate(plan.stages)
        ]

    @property
    def stages(self) -> int:
        return len(self.plan.stages)

    def run(self, since_s: float, until_s: float, now_s: float) -> Done:
        """Run an epoch over the arrivals of a span, and let the coordinator decide."""
        number = 0 if self.manifest.batch is None else self.manifest.batch + 1
        epoch = self.coordinator.next_epoch(self.manifest, JoinBatch(number, None))
        assert isinstance(epoch, Batch)
        work = Work.none(self.cluster.slots)
        self._count_moved(work, epoch)
        before = moved(self.manifest, epoch.moves)
        spilled = [np.zeros(self.plan.partitions) for _ in self._stages]
        for order in orders_of(epoch):
            if isinstance(order, Spill):
                spilled[order.stage] += self._stages[order.stage].close(order.groups)
        reports: list[SlotReport] = []
        results = 0.0
        sent: dict[tuple[int, int], Floats] = {}
        for number, _ in enumerate(self._stages):
            joined, arrivals = self._join(number, since_s, until_s, sent)
            self._count_work(work, number, before, joined, arrivals, spilled[number])
            reports += self._reports(number, before, joined, arrivals, spilled[number])
            if not self.plan.stages[number].feeds:
                results += float(joined.results[-1].sum())
        events: list[Event] = self.coordinator.events(epoch, before, reports)
        now_ms = 1 + round(now_s * 1000)
        outcome = Outcome(reports, self._intake(since_s, until_s))
        self.manifest = manifest_after(self.plan, before, epoch, outcome, Clock(now_ms), events=events)
        self.coordinator.note(epoch, self.manifest, reports)
        active, closed = self._by_slot()
        return Done(results, active, closed, work, events)

    def _join(
        self, number: int, since_s: float, until_s: float, sent: dict[tuple[int, int], Floats]
    ) -> tuple[Joined, Floats]:
        stage = self.plan.stages[number]
        shares = self.load.shares(stage.key_text, since_s, until_s)
        inputs = []
        for i, layout in enumerate(stage.inputs):
            if isinstance(layout.tree, Join):
                rows = sent[number, i]
            else:
                rows = self.load.rows(layout.tree.stream, since_s, until_s) * shares
                rows = rows if self._rng is None else self._rng.poisson(rows).astype(np.float64)
            inputs.append(rows)
        joined = self._stages[number].run(inputs, since_s, until_s)
        for place in stage.feeds:
            key = self.plan.stages[place.stage].key_text
            sent[place.stage, place.input] = joined.results[-1].sum() * self.load.shares(key, since_s, until_s)
        return joined, np.sum(inputs, axis=0)

    def _owners(self, number: int, manifest: Manifest) -> Ints:
        return np.asarray(manifest.placement.owners[self.plan.key_of_stage(number)], dtype=np.int64)

    def _count_moved(self, work: Work, epoch: Batch) -> None:
        for move in moves_of(epoch):
            for number, stage in enumerate(self._stages):
                if self.plan.key_of_stage(number) == move.key:
                    size = stage.bytes_by_group() + stage.bytes_by_group(closed=True)
                    bytes_ = float(size[list(move.groups)].sum())
                    work.moved_bytes[move.sender] += bytes_
                    work.moved_bytes[move.receiver] += bytes_

    def _count_work(
        self, work: Work, number: int, before: Manifest, joined: Joined, arrivals: Floats, spilled: Floats
    ) -> None:
        counts, owners = self._stages[number], self._owners(number, before)
        written = spilled + np.sum([counts.bytes_of(store, new) for store, new in enumerate(joined.arrived)], axis=0)
        for into, by_group in (
            (work.stored, np.sum(joined.arrived, axis=0)),
            (work.looked_up, joined.looked_up),
            (work.met, joined.met),
            (work.results, joined.results[-1]),
            (work.disk_bytes, written),
            (work.sent_rows, arrivals),
        ):
            into += np.bincount(owners, weights=by_group, minlength=self.cluster.slots)

    def _by_slot(self) -> tuple[Floats, Floats]:
        found = []
        for closed in (False, True):
            total = np.zeros(self.cluster.slots)
            for number, stage in enumerate(self._stages):
                size = stage.bytes_by_group(closed=closed)
                total += np.bincount(self._owners(number, self.manifest), weights=size, minlength=len(total))
            found.append(total)
        return found[0], found[1]

    def _reports(
        self, number: int, before: Manifest, joined: Joined, arrivals: Floats, spilled: Floats
    ) -> list[SlotReport]:
        """What slots would report of a stage."""
        counts, slots, owners = self._stages[number], self.cluster.slots, self._owners(number, before)
        stage, prices = self.plan.stages[number], self.prices

        def summed(by_group: Floats) -> Ints:
            return np.rint(np.bincount(owners, weights=by_group, minlength=slots)).astype(np.int64)

        active, closed = summed(counts.bytes_by_group()), summed(counts.bytes_by_group(closed=True))
        stored_ns = insert_s(prices, 1e9) * summed(np.sum(joined.arrived, axis=0))
        looked_up = np.sum(
            [rows * others(self.plan, number, store) for store, rows in enumerate(joined.arrived)], axis=0
        )
        found = summed(np.sum(joined.results, axis=0))
        joining_ns = 1e9 * probe_s(prices, 1.0, 0.0, 0.0) * summed(looked_up)
        joining_ns = joining_ns + 1e9 * probe_s(prices, 0.0, 1.0, 0.0) * summed(joined.met)
        joining_ns = joining_ns + 1e9 * probe_s(prices, 0.0, 0.0, 1.0) * found
        by_figure = {
            Figure(ROWS): summed(arrivals),
            Figure(INSERTED): summed(np.sum(joined.arrived, axis=0)),
            Figure(INSERT_NS): np.rint(stored_ns).astype(np.int64),
            Figure(PROBE_NS): np.rint(joining_ns).astype(np.int64),
            Figure(ACTIVE_BYTES): active,
            Figure(MEMORY_BYTES): active,
            Figure(CLOSED_BYTES): closed,
            Figure(SPILLED_BYTES): summed(spilled),
            Figure(INTERMEDIATE if stage.feeds else RESULTS): summed(joined.results[-1]),
        }
        for store, (layout, stored) in enumerate(zip(counts.layouts, counts.stores, strict=True)):
            by_figure[Figure(STATE_ROWS, layout.label)] = summed(stored.active)
            by_figure[Figure(STORE_BYTES, layout.label)] = summed(counts.bytes_of(store, stored.active))
        columns = {figure: values.tolist() for figure, values in by_figure.items()}
        groups = self._group_counts(number, owners, joined)
        epoch = before.epoch + 1
        return [
            SlotReport(
                epoch,
                number,
                slot,
                (),
                (),
                Counts({figure: values[slot] for figure, values in columns.items()}),
                groups[slot],
                worker=Worker(f"host {self.cluster.host_of(slot)}", "simulated"),
            )
            for slot in range(slots)
        ]

    def _group_counts(self, number: int, owners: Ints, joined: Joined) -> list[GroupCounts]:
        """The figures of partition groups, by slot."""
        counts, stage = self._stages[number], self.plan.stages[number]
        key, top = key_name(stage.key), joined.results[-1]
        figures: dict[GroupFigure, Floats] = {GroupFigure("local", stage=number): top}
        figures[GroupFigure("output" if not stage.feeds else "inter", key)] = top
        inner: Floats = np.sum(joined.results[:-1], axis=0) if len(joined.results) > 1 else np.zeros(len(top))
        if inner.any():
            inter = GroupFigure("inter", key)
            figures[inter] = figures.get(inter, np.zeros(len(top))) + inner
        for store, stored in enumerate(counts.stores):
            figures[GroupFigure("size", stage=number, store=store)] = counts.bytes_of(store, stored.active)
            figures[GroupFigure("arrived", stage=number, store=store)] = joined.arrived[store]
        order = np.argsort(owners, kind="stable")
        cuts = np.searchsorted(owners[order], np.arange(self.cluster.slots + 1))
        found: list[GroupCounts] = [{} for _ in range(self.cluster.slots)]
        for figure, values in figures.items():
            whole = np.rint(values[order]).astype(np.int64)
            numbers, amounts = order.tolist(), whole.tolist()
            for slot in range(self.cluster.slots):
                low, high = int(cuts[slot]), int(cuts[slot + 1])
                found[slot][figure] = numbers[low:high], amounts[low:high]
        return found

    def _intake(self, since_s: float, until_s: float) -> Intake:
        rows = tuple(round(self.load.rows(i, since_s, until_s)) for i in range(len(self.plan.names)))
        latest = round(until_s * 1e6) if self.plan.windowed else None
        return Intake(rows, tuple(latest if count else None for count in rows))


def require_nodes_with_keys(plan: JoinPlan) -> None:
    """Refuse a plan that has nodes over several keys, or none: their rows are not spread by one key."""
    for stage in plan.stages:
        if stage.hops or not stage.key:
            why = "is probed hop by hop" if stage.hops else "has no key"
            names = " ".join(plan.names[stream] for stream in sorted(streams_of(stage.node)))
            raise OptionError(
                f"cannot simulate a node that {why}: {names}",
                hint="ask for a tree of nodes with one key each, such as --option 'plan=((a b) c)'",
                error_class="CANNOT_SIMULATE",
            )
