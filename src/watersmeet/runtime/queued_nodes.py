"""A node of a plan on its own: its stores, and a queue of rows per input (M6; dissertation, 15.2).

Rows are inserted and probed as in an epoch (`engine/work.py`), one queue entry at a time. They expire by *frontiers*,
not by a watermark. A queue is in the order of no time, but of any two rows the later one has some part that is not
earlier than the same part of the other (timestamp order lemma). So a row that is taken promises something of all rows
behind it: their latest time is not before its own earliest time. That is the frontier of the input, and

    a stored row goes when the frontiers of all other inputs have reached its end

is the purging lemma: min(t_L) - max(t_R) > W. The engine's intervals are exact, so a row ends at min(t_R) + W here.
Where streams are out of order, frontiers are earlier by the bound on that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.engine.compaction import by_bucket, last_of
from watersmeet.engine.partials import Joined
from watersmeet.engine.rebuild import Rows
from watersmeet.engine.work import Work
from watersmeet.epoch.task import later
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.nodes import NodePlan
from watersmeet.state.moments import before_us, first_moments
from watersmeet.state.run import Run

ONE_BUCKET_US = 1 << 62
"""A width of time buckets by which rows are hardly ever divided."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Rows in a queue."""

    arrival: int
    """The number of the arrival that completed them."""
    runs: Sequence[Run]
    source: tuple[str, pa.Table] | None = None
    """The stream and its rows as they arrived: another plan may lay them out in another way."""


@dataclass(frozen=True, slots=True)
class Punctuation:
    """Stands behind all rows that arrived before a migration."""


PUNCTUATION = Punctuation()


@dataclass(eq=False)
class QueuedNode:
    """A node, its stores (in `work`), and per input a queue and a frontier."""

    stage: int
    node: NodePlan
    work: Work
    outlets: list[tuple[QueuedNode, int]] = field(default_factory=list)
    """The inputs that take its results; none for the topmost node of the query."""
    has_forwarded: bool = False
    """Whether it has sent the punctuation on."""

    def __post_init__(self) -> None:
        self.queues: list[deque[Entry | Punctuation]] = [deque() for _ in self.node.inputs]
        self.frontiers: list[int | None] = [None for _ in self.node.inputs]

    def ready(self) -> list[int]:
        """The inputs whose queue begins with rows. Rows behind a punctuation wait for the new plan."""
        return [i for i, queue in enumerate(self.queues) if queue and isinstance(queue[0], Entry)]

    def in_order(self) -> list[int]:
        """The input whose first row arrived first; none while that is unknown, because some queue is empty."""
        firsts = [queue[0] if queue else None for queue in self.queues]
        if None in firsts:
            return []
        arrivals = {i: first.arrival for i, first in enumerate(firsts) if isinstance(first, Entry)}
        return sorted(arrivals, key=arrivals.__getitem__)[:1]

    def is_synchronised(self) -> bool:
        """Whether all rows before the punctuation are joined, and it has not been sent on yet."""
        return not self.has_forwarded and all(queue and isinstance(queue[0], Punctuation) for queue in self.queues)

    def take(self, i: int, disorder_us: int) -> tuple[int, list[Joined]]:
        """Join and store the first entry of a queue, then purge. Returns its arrival, and the results."""
        entry = self.queues[i].popleft()
        assert isinstance(entry, Entry)
        deltas: Rows = [[] for _ in self.queues]
        deltas[i] = list(entry.runs)
        found = list(self.work.results(0, deltas))
        self.work.take_arrived()
        for run in entry.runs if self.node.windowed else ():
            self.frontiers[i] = later(self.frontiers[i], frontier_us(run, self.node.inputs[i], disorder_us))
        self._purge()
        return entry.arrival, found

    def _purge(self) -> None:
        for i, layout in enumerate(self.node.inputs):
            others = [frontier for j, frontier in enumerate(self.frontiers) if j != i]
            known = [frontier for frontier in others if frontier is not None]
            if len(known) == len(others):
                parts = [by_bucket(run, layout, ONE_BUCKET_US, min(known)) for run in self.work.stores[i]]
                self.work.stores[i] = [run for found in parts for _, run in found]


def frontier_us(run: Run, layout: StoreLayout, disorder_us: int) -> int | None:
    """No row behind these in their queue has all its times before this. None: unknown, since a window is unbounded.

    The earliest time of a joined row is not stored. It is at least its last moment minus the longest window.
    """
    earliest = run.times(run.rows_slice())
    if layout.limit is not None:
        if (last := last_of(run, layout)) is None:
            return None
        earliest = first_moments(last, layout.span_us)
    return before_us(int(earliest.max()), disorder_us)
