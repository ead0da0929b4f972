"""What an epoch is, and what it is told to do beside joining: closed unions of values.

| epoch    | takes in rows | stages that run    | shows                                                   |
|----------|---------------|--------------------|---------------------------------------------------------|
| Batch    | of a batch    | all                | its results, even if they are none                      |
| Cleaning | no            | all                | what was owed, if it was any                            |
| Closing  | no            | of the aggregation | the windows that end                                    |
| Takeover | no            | none               | nothing: it fences a driver that may still be running   |
| Build    | no            | all of a new plan  | nothing: what it makes are stores                       |
| Backfill | stored ones   | those that build   | nothing: the same                                       |
| Switch   | no            | none               | nothing: a migration begins, ends or is given up        |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from watersmeet.epoch.task import SlotReport
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import Built, Feed, Rebuild
from watersmeet.plan.transition import build_alone
from watersmeet.state.measures import JOINED, RESULTS
from watersmeet.state.spark_log import Offsets


@dataclass(frozen=True, slots=True)
class Spill:
    """A slot closes groups in a stage before it joins: they leave memory."""

    stage: int
    slot: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clean:
    """A slot emits what its groups in [low, high) owe in a stage, after it has joined."""

    stage: int
    slot: int
    low: int
    high: int
    keep: bool = False
    """Whether the groups are active again; otherwise they are closed, and owe nothing."""


Order: TypeAlias = Spill | Clean


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a micro-batch are joined; Spark's number of it."""

    number: int
    orders: tuple[Order, ...] = ()
    offsets: Offsets | None = None
    """What it ends with, in Spark's log."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Orders are carried out without rows; why."""

    orders: tuple[Order, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Closing:
    """Windows of an aggregation are closed that end by then."""

    until_us: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """Nothing changes, but whoever ran the query before can commit no more."""


@dataclass(frozen=True, slots=True)
class Build:
    """The state of another plan is made of the stored rows; from then on the query runs by that plan."""

    plan: JoinPlan
    rebuild: Rebuild
    strategy: str
    reason: str
    entry: int | None = None
    """Its number in the rehearsal script, if it is a part of one."""
    asked: str | None = None
    """The option `plan`, if that has changed and is the reason."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """Stored rows, of groups in [low, high), go to the stages of a plan in transition that build."""

    low: int
    high: int
    feeds: tuple[Feed, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """The state is another plan's from now on, without any row being touched: a migration begins (the plan is in
    transition then), ends, or is given up."""

    plan: JoinPlan
    move: Literal["begin", "end", "give up"]
    strategy: str
    reason: str
    entry: int | None = None
    asked: str | None = None
    built: Built | None = None
    """At the end: which stores of the plan were built."""


Epoch: TypeAlias = Batch | Cleaning | Closing | Takeover | Build | Backfill | Switch


def plan_after(plan: JoinPlan, epoch: Epoch) -> JoinPlan:
    """The plan that the state is of after an epoch."""
    return epoch.plan if isinstance(epoch, Build | Switch) else plan


def plan_run(plan: JoinPlan, epoch: Epoch) -> JoinPlan:
    """The plan that the stages of an epoch are of."""
    if isinstance(epoch, Build):
        return epoch.plan
    return build_alone(plan) if isinstance(epoch, Backfill) else plan


def orders_of(epoch: Epoch) -> tuple[Order, ...]:
    match epoch:
        case Batch(_, orders, _) | Cleaning(orders, _):
            return orders
        case Closing() | Takeover() | Build() | Backfill() | Switch():
            return ()
        case _:
            assert_never(epoch)


def has_rows(epoch: Epoch) -> bool:
    return isinstance(epoch, Batch)


def stages_of(plan: JoinPlan, epoch: Epoch) -> range:
    """The stages that an epoch runs."""
    match epoch:
        case Batch() | Cleaning():
            return range(plan.stage_count)
        case Closing():
            return range(len(plan.stages), plan.stage_count)
        case Takeover() | Switch():
            return range(0)
        case Build(new):
            return range(len(new.stages))
        case Backfill():
            return range(plan.build_count)
        case _:
            assert_never(epoch)


def shows(plan: JoinPlan, epoch: Epoch, reports: Sequence[SlotReport]) -> bool:
    """Whether an epoch shows anything, if only that there is nothing new."""
    match epoch:
        case Batch() | Closing():
            return True
        case Cleaning():
            found = RESULTS if plan.aggregate is None else JOINED
            return any(report.counts.of(found) for report in reports)
        case Takeover() | Build() | Backfill() | Switch():
            return False
        case _:
            assert_never(epoch)
