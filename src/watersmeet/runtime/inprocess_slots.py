"""The slots of an epoch in process: `step` for every stage and slot, one after the other, and the result files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import pyarrow as pa

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.adaptation.migration import ROWS_AT_ONCE
from watersmeet.adaptation.pace import Pace
from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.reoptimizer import Reoptimizing
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.engine.aggregate import aggregate_step
from watersmeet.engine.compaction import Merging
from watersmeet.engine.emission import Emitted
from watersmeet.engine.fold import DEFAULT_MERGING
from watersmeet.engine.group_store import with_intervals
from watersmeet.engine.inbox import chunks
from watersmeet.engine.rebuild import fed_rows
from watersmeet.engine.step import step
from watersmeet.epoch.after import arrived
from watersmeet.epoch.task import IN_PROCESS, SlotReport, SlotTask, Worker
from watersmeet.epoch.tasks import named
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.partitioning import DEFAULT_PARTITIONS
from watersmeet.plan.placement import Placement
from watersmeet.plan.probe_orders import ProbeOrders
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import Feed
from watersmeet.plan.tree import Join
from watersmeet.query.logical import JoinQuery, internal_name
from watersmeet.runtime.inprocess_frames import Frames, Hash, pandas_hash
from watersmeet.state.allocation import use_system_allocator
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest, PlanText, ResultFile
from watersmeet.state.outbox import ResultFolder, ResultWriter, read_results, require_whole
from watersmeet.state.tiers import Tiers

T = TypeVar("T")
Sink = Callable[[int, pa.Table], None]
"""Takes the results of an epoch; it may be given an epoch again after a crash."""


class PartSink(Protocol):
    """A sink with a folder into which tasks write part files; `add` names those that are results."""

    @property
    def folder(self) -> Path: ...

    def add(self, epoch: int, files: Sequence[ResultFile]) -> None:
        """Publish files as the results of an epoch; does nothing for a known epoch."""


Cut = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.Table]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a query is run."""

    slots: int = 1
    partitions: int = DEFAULT_PARTITIONS
    memory: Path | None = None
    memory_budget_bytes: int | None = None
    hosts: int = 1
    host_of: Callable[[SlotTask], int] = lambda _: 0
    """The host of a task, below `hosts`. If there are several, each has its own folder beside `memory`."""
    hash_keys: Hash = pandas_hash
    cut: Cut = chunks
    trees: Sequence[Join] = ()
    orders: ProbeOrders = field(default_factory=dict)
    merging: Merging = DEFAULT_MERGING
    mode: OutputMode | None = None
    spill: SpillSettings | None = None
    sink: Sink | None = None
    parts: PartSink | None = None
    """The sink whose folder takes the results in place of the checkpoint; `keeps_results` must be on."""
    keeps_results: bool = False
    """Whether results are written to files before an epoch is committed, as on Spark. If not, the results of an epoch
    that was not sent are lost with the runner."""
    keeps_log: bool = True
    """Whether Spark's log is written in its place. If not, no other runner can continue in the folder."""
    placement: Callable[[Manifest], Placement] | None = None
    """The slot of each group, by key; None: as in the checkpoint, or evenly."""
    rows_at_once: int = ROWS_AT_ONCE
    """The most stored rows that one epoch of a migration reads."""
    reoptimizer: Reoptimizing | None = None
    """Changes the plan while the query runs."""
    relocator: Relocator | None = None
    """Changes the slots of groups while the query runs."""

    def coordinator(self, plan: JoinPlan) -> Coordinator:
        """The coordinator of a run that begins by this plan."""
        budget, spill = self.memory_budget_bytes, self.spill
        found = Coordinator(plan, self.slots, budget, spill, reoptimizer=self.reoptimizer, relocator=self.relocator)
        found.pace = Pace(self.rows_at_once)
        found.expect_hosts(self.hosts)
        return found

    @property
    def results_in(self) -> Literal["sink", "checkpoint"]:
        """The owner of the folder of result files."""
        return "checkpoint" if self.parts is None else "sink"

    @property
    def memories(self) -> Sequence[Path]:
        """The memory folder of each host."""
        if self.memory is None or self.hosts == 1:
            return () if self.memory is None else (self.memory,)
        return [self.memory.with_name(f"{self.memory.name}-{host}") for host in range(self.hosts)]


class Slots:
    """Runs the tasks of epochs."""

    def __init__(self, query: JoinQuery, plan: JoinPlan, checkpoint: Checkpoint, setup: Setup) -> None:
        self.query, self.plan, self.checkpoint, self.setup = query, plan, checkpoint, setup
        self.frames = Frames(query, plan, setup.hash_keys)
        use_system_allocator()

    @property
    def results(self) -> Path:
        """The folder of result files."""
        return self.checkpoint.outbox if self.setup.parts is None else self.setup.parts.folder

    def run(
        self,
        before: Manifest,
        tasks: Mapping[int, Sequence[SlotTask]],
        batch: Mapping[str, pa.Table],
        cut: Cut,
        feeds: Sequence[Feed] = (),
    ) -> tuple[pa.Table, list[SlotReport]]:
        """Run the tasks of an epoch: the results, as slots emit them, and the reports. `feeds` name the stored rows to
        feed."""
        inboxes = self.frames.inboxes(batch)
        if feeds:
            tasks, feeding = _without_feeding(tasks)
            for task in feeding:
                for one in fed_rows(self.plan, feeds, task, self._tiers(task)):
                    assert one.stage is not None
                    inboxes[one.stage].append(self.frames.hashed(one.rows, one.stage))
        attempt = uuid.uuid4().hex[:8]  # a name that no attempt before a restart has used
        outputs: list[pa.RecordBatch] = []
        reports: list[SlotReport] = []
        for stage, of_stage in tasks.items():
            run = step if stage < len(self.plan.stages) else aggregate_step
            for task in of_stage:
                share = [self.frames.share(frame, stage, before.placement, task.slot) for frame in inboxes[stage]]
                emitted: list[Emitted] = []
                running = run(self.plan, named(task, attempt), share, self._tiers(task), cut, self.setup.merging)
                report = drain(running, emitted)
                results = [one.rows for one in emitted if one.stage is None]
                outputs += results
                for one in emitted:
                    if one.stage is not None:
                        inboxes[one.stage].append(self.frames.hashed(one.rows, one.stage))
                report = replace(report, worker=Worker(f"host {self.setup.host_of(task)}", IN_PROCESS.executor))
                reports.append(self._with_files(report, results))
        return pa.Table.from_batches(outputs, schema=self._raw_schema), reports

    def shown(self, manifest: Manifest, emitted: pa.Table | None) -> pa.Table:
        """The results of an epoch as the sink gets them, from its files or as emitted: with intervals, if the query has
        any, and with the names of the select list."""
        if emitted is None or self.setup.keeps_results:
            require_whole(self.results, manifest.outbox.files, reads=emitted is None)
            emitted = read_results(self.results, manifest.outbox.files, self._raw_schema)
        return self._finished(emitted, arrived(self.plan, manifest))

    def results_of(self, emitted: pa.Table) -> pa.Table:
        """Emitted rows in the form that the sink would get before any row was counted."""
        return self._finished(emitted, [0] * len(self.plan.names))

    def nothing_shown(self) -> pa.Table:
        return self.results_of(self._raw_schema.empty_table())

    def _with_files(self, report: SlotReport, results: Sequence[pa.RecordBatch]) -> SlotReport:
        if not self.setup.keeps_results:
            return report
        writer = ResultWriter(ResultFolder(self.results), report.slot)
        for rows in results:
            writer.write(rows)
        return replace(report, files=writer.close())

    @property
    def _raw_schema(self) -> pa.Schema:
        return self.plan.output_schema if self.plan.aggregate is None else self.plan.aggregate.shown_schema

    def _finished(self, raw: pa.Table, seen: Sequence[int]) -> pa.Table:
        aggregate = self.plan.aggregate
        if aggregate is not None:
            shown = [with_intervals(aggregate, rows, seen) for rows in raw.to_batches()]
            return pa.Table.from_batches(shown, schema=aggregate.output_schema)
        columns = [internal_name(item.column) for item in self.query.select if item.column]
        return raw.select(columns).rename_columns([item.name for item in self.query.select])

    def _tiers(self, task: SlotTask) -> Tiers:
        memory = self.setup.memories[self.setup.host_of(task)] if self.setup.memories else None
        return Tiers(self.checkpoint.segments, memory, task.memory_bytes, self.checkpoint.attempts, task.host_bytes)


def _without_feeding(
    tasks: Mapping[int, Sequence[SlotTask]],
) -> tuple[Mapping[int, Sequence[SlotTask]], Sequence[SlotTask]]:
    """The tasks of the stages, and the feeding tasks, which have the last stage number."""
    number = max(tasks)
    return {stage: mine for stage, mine in tasks.items() if stage != number}, tasks[number]


def drain(running: Generator[Emitted, None, T], into: list[Emitted]) -> T:
    """Run a step to its end: append what it yields to `into`, and return its report."""
    while True:
        try:
            into.append(next(running))
        except StopIteration as done:
            returned: T = done.value
            return returned


def was_migrated(known: PlanText, plan: JoinPlan) -> bool:
    """Whether a checkpoint's plan is another than the one given. Given probe orders may differ from run to run."""
    return known.is_in_transition or known.trees != plan_text(plan) or bool(known.orders and not plan.orders)
