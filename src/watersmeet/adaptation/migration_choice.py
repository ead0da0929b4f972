"""`auto`: the strategy of a migration, by what it costs and how long rows would wait (M3; dissertation 12.3-12.4).

| strategy         | CPU                                           | rows wait     |
|------------------|-----------------------------------------------|---------------|
| `moving-state`   | the build                                     | for the build |
| `just-in-time`   | the build, and rows that are made on demand   | for a chunk   |
| `backfill`       | the build, and the new plan's nodes meanwhile | for a chunk   |
| `parallel-track` | the new plan for a whole window               | never         |

Moving state is the cheapest of all, as the paper says, so it is taken under overload (`adaptation/pace.py`), and if the
wait is short beside a micro-batch: at most `WAIT_MAX` of it, or `EXCHANGED_WAIT_MAX`. Otherwise the first of
`just-in-time` and `backfill` that fits is taken. A parallel track costs a whole window of the new plan, where the
others read each stored row once, so it is chosen only where no other strategy leads to the new plan: combined rows
cannot be taken apart. (In the paper a build costs products; here stores are hash tables, and it costs matches.)
"""

from __future__ import annotations

from watersmeet.adaptation.migration_cost import migration_cost, price_factor
from watersmeet.adaptation.stored_rows import rows_of_stores
from watersmeet.optimizer.cost import DEFAULT_PRICES
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import rebuild
from watersmeet.state.manifest import Manifest

WAIT_MAX, EXCHANGED_WAIT_MAX = 0.5, 4.0
"""Of the counted CPU time of a micro-batch on a slot; the second one if rows must be exchanged. A backfill then has the
stages of both plans, and makes micro-batches longer by two to three times their whole time, of which about half is
counted where they are small (`benchmarks/migration_cost.py`)."""


def predicted_s(plan: JoinPlan, last: Manifest, new: JoinPlan) -> float:
    """The CPU time of the build on a slot, by the rows that are stored now and by the times of the running query."""
    stored = rows_of_stores(plan, last, new)
    cost_s = migration_cost(plan, new, stored, DEFAULT_PRICES, last.slots)
    return price_factor(plan, last, DEFAULT_PRICES) * cost_s


def is_short(wait_s: float, batch_s: float, *, is_exchanged: bool) -> bool:
    """Whether rows may wait for a build, beside a micro-batch of so much CPU time on a slot. If rows must be exchanged,
    they would wait longer for any other strategy: stages of both plans would run."""
    return wait_s <= (EXCHANGED_WAIT_MAX if is_exchanged else WAIT_MAX) * batch_s


def needs_exchange(plan: JoinPlan, new: JoinPlan, slots: int) -> bool:
    """Whether stored rows must be sent to other slots or stages before the new plan can run."""
    how = rebuild(plan, new, slots)
    return bool(how.feeds) or any(how.joins)
