"""The contract between driver and slot: the task of a slot for one stage of one epoch, and its report.

A report depends on the task and its rows alone: nothing else of the manifest reaches a slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from watersmeet.epoch.key_sketch import KeyClasses, SketchedKey
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef, ResultFile, SegmentRef
from watersmeet.state.measures import Counts


class GroupFigure(NamedTuple):
    """A figure of partition groups. Results are traced by key; the rest is counted per stage, or per store of it."""

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
    """Rows of an input: stored when the first new row of the epoch probes (`there`), and new."""

    there: int = 0
    new: int = 0


Seen = tuple[int, int | None]
"""Rows of a stream that have arrived, and the latest event time among them."""


def expired(expires_us: int | None, watermark_us: int | None) -> bool:
    """Whether rows that end by `expires_us` can be part of no future result."""
    return watermark_us is not None and expires_us is not None and expires_us <= watermark_us


@dataclass(frozen=True, slots=True)
class SlotTask:
    """The input of one slot for one stage of one epoch, besides the rows."""

    epoch: int
    stage: int
    slot: int
    attempt: str
    watermark_us: int | None
    extents: tuple[ExtentRef, ...]
    segments: Mapping[str, SegmentRef]
    groups: Groups
    """The partition groups that the slot owns."""
    reads: tuple[tuple[ExtentRef, ...], ...] = ()
    """In a stage of hops, per index: its extents, if another stage keeps it."""
    closing_us: int | None = None
    """In the stage of an aggregation: close the windows that end by this time, and take in no rows."""
    holds: tuple[int | None, ...] = ()
    """Per store: the earliest time of results that nodes below its siblings owe. Rows that could join them stay."""
    frontier_us: int | None = None
    """No row that arrives in this epoch or later, from a stream or from another stage, is earlier."""
    spill: tuple[int, ...] = ()
    """Groups to close before the epoch's rows are joined."""
    clean: tuple[int, int] | None = None
    """A range of groups whose owed results are emitted after the join. With `keep` they become active again."""
    keep: bool = False
    memory_bytes: int | None = None
    """The bytes that the stage may have in memory on this slot when the epoch ends."""
    host_bytes: int | None = None
    """The bytes that all slots may have in memory on a host."""
    build: tuple[int, ...] | None = None
    """In a build epoch: the stores to build from stored rows; the others are only read. None: rows are joined."""
    joins: bool = False
    """In a build epoch: whether results of the topmost node, or of the hops, are sent on."""
    completes: tuple[int, int] | None = None
    """A range of groups: the rows of these that stores lack are added after the join."""
    lacks: tuple[tuple[int, Groups], ...] = ()
    """Stores, and groups that come from slots without such a store: their rows are made before the join."""
    dropped: frozenset[str] = frozenset()
    """Segments that nobody needs any more, since groups have left all their stores. They leave memory."""
    handed_over: int = 0
    """Groups below this number are run by the plan to which groups are handed over (`plan/handover.py`)."""
    is_old: bool = False
    """Whether the rows come from stores: none of them is late or newly arrived."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """For segments that other slots use too: this slot's share of the bytes (`state/shares.py`)."""
    foreign: frozenset[str] = frozenset()
    """Those of them that another slot keeps. This slot is to write its part anew."""
    sketches: tuple[KeyClasses, ...] = ()
    """The key classes of which arriving rows are sketched (`epoch/key_sketch.py`)."""

    @property
    def closed(self) -> tuple[ExtentRef, ...]:
        """The extents that were closed before the epoch and have not expired."""
        return tuple(extent for extent in self.extents if not extent.is_active and not self.has_expired(extent))

    def expiry_us(self, store: int) -> int | None:
        """Rows of a store that end by this time cannot join a row that arrives later."""
        hold = self.holds[store] if self.holds else None
        if hold is None or self.watermark_us is None:
            return self.watermark_us
        return min(hold, self.watermark_us)

    def has_expired(self, extent: ExtentRef) -> bool:
        return expired(extent.expires_us, self.expiry_us(extent.store))


@dataclass(frozen=True, slots=True)
class SlotReport:
    """The work of one slot in one stage of one epoch: new extents and segments, and counts for people and policies."""

    epoch: int
    stage: int
    slot: int
    extents: tuple[ExtentRef, ...]
    segments: tuple[SegmentRef, ...]
    counts: Counts = field(default_factory=Counts)
    groups: GroupCounts = field(default_factory=dict)
    """Figures of partition groups, see `engine/statistics.py`."""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    """By stream, in the first stage that gets its rows."""
    files: tuple[ResultFile, ...] = ()
    """Durable files of results that the task has written."""
    inputs: Mapping[NodeInput, InputRows] = field(default_factory=dict)
    """The rows of all inputs, including empty ones (`epoch/pairs.py`)."""
    sketches: Mapping[SketchedKey, bytes] = field(default_factory=dict)
    """By stream and key, in the first stage that gets its rows (`epoch/key_sketch.py`)."""
    worker: Worker = IN_PROCESS


@dataclass(frozen=True, slots=True)
class Intake:
    """The rows of a batch and their latest event time, per stream and before any filter."""

    rows: tuple[int, ...]
    times_max_us: tuple[int | None, ...]


def no_intake(plan: JoinPlan) -> Intake:
    return Intake((0,) * len(plan.names), (None,) * len(plan.names))


def intake_of(plan: JoinPlan, reports: Iterable[SlotReport]) -> Intake:
    """The intake of a batch as the slots saw it: complete, unless filters removed rows before."""
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
    """The outcome of an epoch's job: the accepted report of every stage and slot, and the intake of the batch."""

    reports: Sequence[SlotReport]
    intake: Intake

    @property
    def segments(self) -> set[str]:
        """The names of the segments that accepted reports have written."""
        return {ref.name for report in self.reports for ref in report.segments}


def one_report_per_task(reports: Sequence[SlotReport], stages: Iterable[int], slots: int) -> list[SlotReport]:
    """Accept one report of each slot and stage. A task that ran twice reports the same under other file names."""
    accepted: dict[tuple[int, int], SlotReport] = {}
    for report in reports:
        accepted.setdefault((report.stage, report.slot), report)
    tasks = [(stage, slot) for stage in stages for slot in range(slots)]
    missing = [task for task in tasks if task not in accepted]
    if missing:
        raise RuntimeError(f"(stage, slot) {missing} sent no report")
    return [accepted[task] for task in tasks]


def stores_of(plan: JoinPlan, task: SlotTask) -> list[StoreLayout]:
    """The stores that a slot keeps in a stage; the index is the store's number."""
    return plan.layouts(task.stage, task.slot)
