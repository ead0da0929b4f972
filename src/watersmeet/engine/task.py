"""What a slot is told for one stage of one epoch, and what it reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from watersmeet.engine.compaction import expired
from watersmeet.engine.statistics import GroupCounts, Seen
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef, Order, SegmentRef


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
    counts: Mapping[str, int] = field(default_factory=dict)
    groups: GroupCounts = field(default_factory=dict)
    """Figures of partition groups, see `engine/statistics.py`."""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    """By stream, in the first stage that its rows are sent to."""


def stores_of(plan: JoinPlan, task: SlotTask) -> list[StoreLayout]:
    """The stores that a slot keeps in a stage, by their number."""
    if plan.aggregate is not None and task.stage == plan.aggregate.stage:
        return [plan.aggregate.layout]
    return plan.stages[task.stage].stores(task.stage, task.slot)


def orders_of_stage(plan: JoinPlan, stage: int, orders: Iterable[Order]) -> dict[int, Order]:
    """By slot: what it does in a stage beside joining. What a stage cannot do raises an error."""
    found = {order.slot: order for order in orders if order.stage == stage}
    is_able = stage < len(plan.stages) and not plan.stages[stage].hops
    if not is_able and any(order.spill or order.clean is not None for order in found.values()):
        kind = "stage of hops" if stage < len(plan.stages) else "stage of an aggregation"
        raise ValueError(f"cannot spill or clean up in stage {stage}: a {kind} has no generations")
    return found
