"""Goals: `Decide` of the commit protocol chooses epochs that lead to a goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from watersmeet.plan.carrying import Carry
from watersmeet.plan.query_change import PlannedQuery, carry
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.state.spark_log import Offsets


@dataclass(frozen=True, slots=True)
class Rest:
    """All work that is due without new rows is done. If the sources are silent, no rows wait for it."""

    is_silent: bool = False


AT_REST = Rest()


@dataclass(frozen=True, slots=True)
class JoinBatch:
    """A micro-batch is in the state and its results are in the sink."""

    number: int
    offsets: Offsets | None
    """The offsets at which it ends."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """No results are owed any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Migrate:
    """The query runs by another plan."""

    plan: JoinPlan
    strategy: str
    reason: str
    asked: str | None = None
    """The option `plan`, if its change is the reason."""


@dataclass(frozen=True, slots=True)
class ChangeQuery:
    """The query is another one, and runs by its plan."""

    old: JoinQuery
    new: PlannedQuery
    reason: str
    stuffs: bool = False
    """See `plan/query_change.py`."""

    def carry(self, plan: JoinPlan) -> Carry:
        """How the state of a plan of the old query is carried over; CheckpointError if it cannot be."""
        return carry(PlannedQuery(self.old, plan), self.new, stuffs=self.stuffs)


@dataclass(frozen=True, slots=True)
class Relocate:
    """A share of the bytes that a slot has in use is on another slot."""

    sender: int
    receiver: int
    share: float
    reason: str


@dataclass(frozen=True, slots=True)
class SpillShare:
    """A share of the bytes that a slot has in use has left memory."""

    slot: int
    share: float
    reason: str


@dataclass(frozen=True, slots=True)
class Abort:
    """No migration is under way."""

    reason: str


Asked: TypeAlias = CleanUp | Migrate | ChangeQuery | Relocate | SpillShare | Abort
"""What a running query may be asked for."""
Goal: TypeAlias = Rest | JoinBatch | CleanUp | Migrate | ChangeQuery | Relocate | SpillShare | Abort
