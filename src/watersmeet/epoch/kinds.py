"""The kinds of epochs, and the orders they carry out besides joining: closed unions of values.

| epoch    | takes in rows | stages that run    | shows                                                   |
|----------|---------------|--------------------|---------------------------------------------------------|
| Batch    | of a batch    | all                | its results, even if there are none                     |
| Cleaning | no            | all, if it orders  | owed results, if there are any                          |
| Closing  | no            | of the aggregation | the windows that end                                    |
| Takeover | no            | none               | nothing: it fences a driver that may still be running   |
| Build    | no            | all of a new plan  | nothing: it makes stores                                |
| Backfill | stored rows   | those that build   | nothing: it makes stores                                |
| Complete | no            | of the join        | nothing: it adds rows to stores that lack them          |
| Switch   | no            | none               | nothing: a migration begins, ends or is given up        |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from watersmeet.epoch.task import SlotReport
from watersmeet.plan.placement import Move
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import Built, Feed, Rebuild
from watersmeet.plan.transition import build_alone
from watersmeet.query.logical import JoinQuery
from watersmeet.state.measures import JOINED, RESULTS
from watersmeet.state.spark_log import Offsets


@dataclass(frozen=True, slots=True)
class Spill:
    """Before a slot joins, it closes groups of a stage. They leave memory."""

    stage: int
    slot: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clean:
    """After a slot has joined, it emits the owed results of its groups in [low, high) of a stage."""

    stage: int
    slot: int
    low: int
    high: int
    keep: bool = False
    """Whether the groups become active again. Otherwise they stay closed, and owe nothing."""


Order: TypeAlias = Spill | Clean


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of a micro-batch are joined. `number` is Spark's."""

    number: int
    orders: tuple[Order, ...] = ()
    offsets: Offsets | None = None
    """The offsets in Spark's log at which the batch ends."""
    completes: tuple[int, int] | None = None
    """A range of groups whose missing rows are added to stores as well, or that are handed over."""
    moves: tuple[Move, ...] = ()
    """Groups that change slots before the rows are joined."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Moves and orders are carried out without rows."""

    orders: tuple[Order, ...]
    reason: str
    moves: tuple[Move, ...] = ()
    entry: int | None = None
    """The number of its entry in the rehearsal script, if it has one."""
    slots: int | None = None
    """The number of slots from then on, if it changes."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The windows of an aggregation that end by `until_us` are closed."""

    until_us: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """The state does not change, but the previous driver can no longer commit."""


@dataclass(frozen=True, slots=True)
class Build:
    """The state of another plan is built from the stored rows. From then on the query runs by that plan."""

    plan: JoinPlan
    rebuild: Rebuild
    strategy: str
    reason: str
    entry: int | None = None
    """The number of its entry in the rehearsal script, if it has one."""
    asked: str | None = None
    """The option `plan`, if its change is the reason."""
    gives_up: bool = False
    """Whether it leads back to the plan before a migration that is given up."""
    query: JoinQuery | None = None
    """The query that is in force from then on, if it changes."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """The stored rows of groups in [low, high) go to the building stages of a plan in transition."""

    low: int
    high: int
    feeds: tuple[Feed, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """While sources are silent, the rows of groups in [low, high) that stores lack are added (`plan/completion.py`), or
    the groups are handed over to another plan (`plan/handover.py`)."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Switch:
    """From now on the state belongs to another plan, but no row is touched. A migration begins (its plan is in
    transition), ends, or is given up."""

    plan: JoinPlan
    move: Literal["begin", "end", "give up"]
    strategy: str
    reason: str
    entry: int | None = None
    asked: str | None = None
    built: Built | None = None
    """At the end of a migration: the stores of the plan that are on the build track."""

    @property
    def gives_up(self) -> bool:
        return self.move == "give up"


Epoch: TypeAlias = Batch | Cleaning | Closing | Takeover | Build | Backfill | Complete | Switch


def plan_after(plan: JoinPlan, epoch: Epoch) -> JoinPlan:
    """The plan of the state after an epoch."""
    return epoch.plan if isinstance(epoch, Build | Switch) else plan


def query_after(query: JoinQuery, epoch: Epoch) -> JoinQuery:
    """The query in force after an epoch."""
    return epoch.query if isinstance(epoch, Build) and epoch.query is not None else query


def changes_query(epoch: Epoch | None) -> bool:
    return isinstance(epoch, Build) and epoch.query is not None


def plan_run(plan: JoinPlan, epoch: Epoch) -> JoinPlan:
    """The plan whose stages an epoch runs."""
    if isinstance(epoch, Build):
        return epoch.plan
    return build_alone(plan) if isinstance(epoch, Backfill) else plan


def orders_of(epoch: Epoch) -> tuple[Order, ...]:
    match epoch:
        case Batch(orders=orders) | Cleaning(orders=orders):
            return orders
        case Closing() | Takeover() | Build() | Backfill() | Complete() | Switch():
            return ()
        case _:
            assert_never(epoch)


def moves_of(epoch: Epoch) -> tuple[Move, ...]:
    return epoch.moves if isinstance(epoch, Batch | Cleaning) else ()


def has_rows(epoch: Epoch) -> bool:
    return isinstance(epoch, Batch)


def chunk_of(epoch: Epoch) -> tuple[int, int] | None:
    """The range of groups that an epoch feeds, completes or hands over; None if there is none."""
    match epoch:
        case Backfill(low, high) | Complete(low, high):
            return low, high
        case Batch(completes=chunk):
            return chunk
        case _:
            return None


def stages_of(plan: JoinPlan, epoch: Epoch) -> range:
    """The stages that an epoch runs."""
    match epoch:
        case Batch():
            return range(plan.stage_count)
        case Cleaning(orders, _, moves):
            return range(plan.stage_count if orders or moves else 0)
        case Closing():
            return range(len(plan.stages), plan.stage_count)
        case Takeover() | Switch():
            return range(0)
        case Build(new):
            return range(len(new.stages))
        case Backfill():
            return range(plan.build_count)
        case Complete():
            return range(len(plan.stages))
        case _:
            assert_never(epoch)


def shows(plan: JoinPlan, epoch: Epoch, reports: Sequence[SlotReport]) -> bool:
    """Whether an epoch has output for the sink, perhaps empty."""
    match epoch:
        case Batch() | Closing():
            return True
        case Cleaning():
            found = RESULTS if plan.aggregate is None else JOINED
            return any(report.counts.of(found) for report in reports)
        case Takeover() | Build() | Backfill() | Complete() | Switch():
            return False
        case _:
            assert_never(epoch)
