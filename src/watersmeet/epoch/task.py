"""The contract between driver and slot: what a slot is told for one stage of one epoch, and what it reports.

A task is a function of the rows it gets and of this: nothing else of the manifest reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef, ResultFile, SegmentRef
from watersmeet.state.measures import Counts


class GroupFigure(NamedTuple):
    """A figure of partition groups. Results are traced by key; all else is counted in a stage, or in a store of it."""

    kind: Literal["output", "inter", "local", "arrived", "size"]
    key: str = ""
    stage: int = -1
    store: int = -1


GroupCounts = dict[GroupFigure, tuple[list[int], list[int]]]
"""By figure: groups, and the value of each."""


class Worker(NamedTuple):
    """Where a task ran."""

    host: str
    executor: str


IN_PROCESS = Worker("this process", "driver")


class NodeInput(NamedTuple):
    """An input of a node. The node's name is unique in its stage, and the same on all slots that run it."""

    stage: int
    node: str
    label: str


class InputRows(NamedTuple):
    """Rows of an input: in its store when the first new row of the epoch probes, and new ones."""

    there: int = 0
    new: int = 0


Seen = tuple[int, int | None]
"""Rows of a stream that have arrived, and the latest event time among them."""


def expired(expires_us: int | None, watermark_us: int | None) -> bool:
    """Whether rows that end by `expires_us` can be part of no future result."""
    return watermark_us is not None and expires_us is not None and expires_us <= watermark_us


@dataclass(frozen=True, slots=True)
class SlotTask:
    """All that one slot is told for one stage of one epoch."""

    epoch: int
    stage: int
    slot: int
    attempt: str
    watermark_us: int | None
    extents: tuple[ExtentRef, ...]
    segments: Mapping[str, SegmentRef]
    groups: Groups
    """What the slot owns."""
    reads: tuple[tuple[ExtentRef, ...], ...] = ()
    """In a stage of hops, per index: the extents of an index that another stage keeps."""
    closing_us: int | None = None
    """In the stage of an aggregation: close the windows that end by then, and take in no rows."""
    holds: tuple[int | None, ...] = ()
    """Per store: the earliest that results owed below its siblings may be; rows that could join them stay."""
    frontier_us: int | None = None
    """No row that arrives in this epoch or later, from a stream or from another stage, is earlier."""
    spill: tuple[int, ...] = ()
    """Groups to close before the epoch's rows are joined."""
    clean: tuple[int, int] | None = None
    """A range of groups whose owed results are to be emitted after that; `keep`: to be active then."""
    keep: bool = False
    memory_bytes: int | None = None
    """What the stage may have in memory on this slot when the epoch ends."""
    build: tuple[int, ...] | None = None
    """In a build epoch: the stores to be made of stored rows; the others are only read. None: rows are joined."""
    joins: bool = False
    """In a build epoch: whether results of the topmost node, or of the hops, are sent on."""
    is_old: bool = False
    """Whether the rows are stored ones: none of them is late, and none has just arrived."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """By segment that extents of other slots name, too: which part of its bytes is this slot's (`state/shares.py`)."""

    @property
    def closed(self) -> tuple[ExtentRef, ...]:
        """What was closed before the epoch, and has not expired."""
        return tuple(extent for extent in self.extents if not extent.is_active and not self.has_expired(extent))

    def expiry_us(self, store: int) -> int | None:
        """Rows of a store that end by then can be part of no result with a row that is yet to arrive."""
        hold = self.holds[store] if self.holds else None
        if hold is None or self.watermark_us is None:
            return self.watermark_us
        return min(hold, self.watermark_us)

    def has_expired(self, extent: ExtentRef) -> bool:
        return expired(extent.expires_us, self.expiry_us(extent.store))


@dataclass(frozen=True, slots=True)
class SlotReport:
    """What one slot did in one stage of one epoch: new extents and segments, and counts for people and policies."""

    epoch: int
    stage: int
    slot: int
    extents: tuple[ExtentRef, ...]
    segments: tuple[SegmentRef, ...]
    counts: Counts = field(default_factory=Counts)
    groups: GroupCounts = field(default_factory=dict)
    """Figures of partition groups, see `engine/statistics.py`."""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    """By stream, in the first stage that its rows are sent to."""
    files: tuple[ResultFile, ...] = ()
    """Results that the task has written, durably."""
    inputs: Mapping[NodeInput, InputRows] = field(default_factory=dict)
    """The rows of all inputs, also where there are none (`epoch/pairs.py`)."""
    worker: Worker = IN_PROCESS


@dataclass(frozen=True, slots=True)
class Intake:
    """What a batch brought, per stream and before any filter: rows, and the latest event time."""

    rows: tuple[int, ...]
    times_max_us: tuple[int | None, ...]


def no_intake(plan: JoinPlan) -> Intake:
    return Intake((0,) * len(plan.names), (None,) * len(plan.names))


def intake_of(plan: JoinPlan, reports: Iterable[SlotReport]) -> Intake:
    """What a batch brought, as the slots saw it: all of it, unless filters kept rows from them."""
    rows, times = dict.fromkeys(plan.names, 0), dict[str, int | None].fromkeys(plan.names)
    for report in reports:
        for name, (count, latest_us) in report.seen.items():
            rows[name] += count
            times[name] = later(times[name], latest_us)
    return Intake(tuple(rows.values()), tuple(times.values()))


def later(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running an epoch has come to: the accepted report of every stage and slot, and what the batch brought."""

    reports: Sequence[SlotReport]
    intake: Intake

    @property
    def segments(self) -> set[str]:
        """The segments that were written and are wanted, by name."""
        return {ref.name for report in self.reports for ref in report.segments}


def one_report_per_task(reports: Sequence[SlotReport], stages: Iterable[int], slots: int) -> list[SlotReport]:
    """Accept one report of each slot and stage: a task that ran twice says the same twice, under other file names."""
    accepted: dict[tuple[int, int], SlotReport] = {}
    for report in reports:
        accepted.setdefault((report.stage, report.slot), report)
    tasks = [(stage, slot) for stage in stages for slot in range(slots)]
    missing = [task for task in tasks if task not in accepted]
    if missing:
        raise RuntimeError(f"(stage, slot) {missing} sent no report")
    return [accepted[task] for task in tasks]


def stores_of(plan: JoinPlan, task: SlotTask) -> list[StoreLayout]:
    """The stores that a slot keeps in a stage, by their number."""
    return plan.layouts(task.stage, task.slot)
