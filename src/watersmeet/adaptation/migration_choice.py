"""`auto`: the strategy of a migration, by what it costs and how long rows would wait (M3; dissertation 12.3-12.4).

| strategy         | CPU                                           | rows wait     |
|------------------|-----------------------------------------------|---------------|
| `moving-state`   | the build                                     | for the build |
| `just-in-time`   | the build, and rows that are made on demand   | for a chunk   |
| `backfill`       | the build, and the new plan's nodes meanwhile | for a chunk   |
| `parallel-track` | the new plan for a whole window               | never         |

Moving state is the cheapest of all, as the paper says, so it is taken under overload (`adaptation/pace.py`), and if the
wait is short beside a micro-batch: at most `WAIT_MAX` of it. Otherwise the first of `just-in-time` and `backfill` that
fits is taken. A parallel track costs a whole window of the new plan, where the others read each stored row once, so it
is not chosen. (In the paper a build costs products; here stores are hash tables, and it costs matches.)
"""

from __future__ import annotations

from watersmeet.adaptation.migration_cost import migration_cost
from watersmeet.optimizer.cost import DEFAULT_PRICES
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import rebuild
from watersmeet.plan.tree import streams_of
from watersmeet.state.manifest import Manifest

WAIT_MAX = 0.5
"""Of the CPU time of a micro-batch on a slot."""


def predicted_s(plan: JoinPlan, last: Manifest, new: JoinPlan) -> float:
    """The CPU time of the build on a slot, by the rows that are stored now. A store of results that does not exist yet
    is taken to be as large as the largest of its streams."""
    known: dict[frozenset[int], int] = {}
    for slot in range(last.slots):
        for stage in range(len(plan.stages)):
            for layout in plan.layouts(stage, slot):
                streams = frozenset(streams_of(layout.tree))
                rows = sum(extent.rows for extent in last.extents[slot].get(layout.name, ()))
                known[streams] = known.get(streams, 0) + rows

    def stored(streams: frozenset[int]) -> float:
        return known.get(streams, max(known.get(frozenset({stream}), 0) for stream in streams))

    return migration_cost(plan, new, stored, DEFAULT_PRICES, last.slots)


def is_short(wait_s: float, batch_s: float) -> bool:
    """Whether rows may wait for a build, beside a micro-batch of so much CPU time on a slot."""
    return wait_s <= WAIT_MAX * batch_s


def needs_exchange(plan: JoinPlan, new: JoinPlan, slots: int) -> bool:
    """Whether stored rows must be sent to other slots or stages before the new plan can run."""
    how = rebuild(plan, new, slots)
    return bool(how.feeds) or any(how.joins)
