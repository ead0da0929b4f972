"""A simulated run, epoch by epoch: what was there at which virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from watersmeet.epoch.events import Event
from watersmeet.simulation.clock import ClockPrices, Floats, VirtualClock, Work, epoch_s


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """An epoch that has been run."""

    results: float
    """Emitted in the epoch; the counter model has no owed results."""
    active_bytes: Floats
    """Of active state, by slot."""
    closed_bytes: Floats
    work: Work
    events: Sequence[Event]


class Simulated(Protocol):
    """A query that runs an epoch over the rows of a span of arrival times."""

    @property
    def stages(self) -> int: ...

    def run(self, since_s: float, until_s: float, now_s: float) -> Done: ...


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """The state of a run at the end of an epoch."""

    at_s: float
    epoch_s: float
    lag_s: float
    arrived_s: float
    """Rows that arrived before are joined."""
    done: Done


def simulated(
    query: Simulated,
    clock: VirtualClock,
    seconds: float,
    prices: ClockPrices,
    watch: Callable[[Moment], None] | None = None,
) -> list[Moment]:
    """Run a query until the arrivals of so many virtual seconds are joined."""
    found: list[Moment] = []
    while clock.taken_s < seconds:
        since_s, until_s = clock.next_batch()
        done = query.run(since_s, until_s, clock.now_s)
        length = epoch_s(prices, done.work, query.stages)
        clock.spend(length)
        found.append(Moment(clock.now_s, length, clock.lag_s, until_s, done))
        if watch is not None:
            watch(found[-1])
    return found


def events_of(moments: Sequence[Moment], kind: str) -> list[tuple[float, Event]]:
    """All events of a kind, with their times."""
    return [(moment.at_s, event) for moment in moments for event in moment.done.events if event.kind == kind]


def relocations(moments: Sequence[Moment]) -> int:
    """How often groups changed slots: epochs with moves."""
    return sum(any(event.kind == "relocate" for event in moment.done.events) for moment in moments)


def results(moments: Sequence[Moment]) -> float:
    return sum(moment.done.results for moment in moments)


def unevenness(by_slot: Floats) -> float:
    """The most over the mean; 1 if there is nothing."""
    mean = float(np.mean(by_slot))
    return float(np.max(by_slot)) / mean if mean > 0 else 1.0
