"""Goals: what `Decide` of the commit protocol is asked to come nearer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from watersmeet.plan.stages import JoinPlan
from watersmeet.state.spark_log import Offsets


@dataclass(frozen=True, slots=True)
class Rest:
    """All that is due without new rows is done; if sources are silent, nothing waits meanwhile."""

    is_silent: bool = False


AT_REST = Rest()


@dataclass(frozen=True, slots=True)
class JoinBatch:
    """A micro-batch is in the state and its results are in the sink."""

    number: int
    offsets: Offsets | None
    """What it ends with."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Nothing is owed any more; why that is wanted."""

    reason: str


@dataclass(frozen=True, slots=True)
class Migrate:
    """The query runs by another plan; by which strategy, and why."""

    plan: JoinPlan
    strategy: str
    reason: str
    asked: str | None = None
    """The option `plan`, if that has changed and is the reason."""


@dataclass(frozen=True, slots=True)
class Abort:
    """No migration is under way; why that is wanted."""

    reason: str


Goal: TypeAlias = Rest | JoinBatch | CleanUp | Migrate | Abort
