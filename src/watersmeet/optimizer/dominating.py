"""The choice among plans: the preferred one of those that are within both budgets (O6; Zhu 2006, 6.3).

A plan is *qualified* if its CPU and its memory are within their budgets: it keeps up with its streams, in memory. It
*dominates* another if it needs no more of either and less of one (the paper: less of both). Plans that none dominates
cannot be compared with each other without saying what matters; `PREFERENCES` says it:

| preference | of the qualified plans that none dominates, the one with                               |
|------------|----------------------------------------------------------------------------------------|
| `cpu`      | least CPU: memory is a promise that has to be kept, CPU is what every row costs        |
| `memory`   | least memory: room for what else runs there                                            |
| `balanced` | the least of its larger share of a budget: room for whichever resource gets scarce     |

Where nothing qualifies there is still a plan: the one that exceeds its budgets by the least factor. But a query that
needs CPU_HOPELESS times its CPU falls behind by any plan: beyond that, more CPU counts as no worse, so that memory
decides, and CPU only among plans that memory does not tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from watersmeet.optimizer.cost import Plan

MEMORY_MARGIN = 0.05
"""For the budgets of people: chosen by `benchmarks/cost_model.py`."""
CPU_HOPELESS = 3.0
"""Estimates of CPU are off by a factor of two on another machine; beyond three, no such error explains the excess."""
Preference = Literal["cpu", "memory", "balanced"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a slot may use: CPU seconds a second, and bytes of state."""

    cpu_s: float = math.inf
    memory_bytes: float = math.inf
    memory_margin: float = 0.0
    """A plan needs so much more memory than is expected of it, as a share: a budget is a promise, and how many results
    there are follows from shares that were learned."""

    @property
    def is_set(self) -> bool:
        return min(self.cpu_s, self.memory_bytes) < math.inf

    def needed_bytes(self, plan: Plan) -> float:
        """Memory of a plan, with the margin."""
        return plan.memory_bytes * (1 + self.memory_margin)

    def excess(self, plan: Plan) -> float:
        """The larger of the factors by which a plan uses its budgets; qualified up to 1."""
        return max(self.cpu_share(plan), self.memory_share(plan))

    def cpu_share(self, plan: Plan) -> float:
        """How many times its CPU budget a plan uses."""
        return _ratio(plan.cpu_s, self.cpu_s)

    def memory_share(self, plan: Plan) -> float:
        """How many times its memory budget a plan uses, with the margin."""
        return _ratio(self.needed_bytes(plan), self.memory_bytes)

    def admits(self, plan: Plan) -> bool:
        return plan.cpu_s <= self.cpu_s and self.needed_bytes(plan) <= self.memory_bytes


@dataclass(frozen=True, slots=True)
class Miss:
    """A budget that a plan exceeds."""

    resource: Literal["cpu", "memory"]
    needed: float
    budget: float

    @property
    def factor(self) -> float:
        return _ratio(self.needed, self.budget)


def dominates(one: Plan, other: Plan) -> bool:
    no_more = one.cpu_s <= other.cpu_s and one.memory_bytes <= other.memory_bytes
    return no_more and (one.cpu_s < other.cpu_s or one.memory_bytes < other.memory_bytes)


def dominating(plans: Iterable[Plan]) -> list[Plan]:
    """The plans that none dominates, by memory ascending and so by CPU descending; of equal ones, one."""
    found: list[Plan] = []
    for plan in sorted(plans, key=lambda each: (each.memory_bytes, each.cpu_s, sorted(each.states))):
        if not found or plan.cpu_s < found[-1].cpu_s:
            found.append(plan)
    return found


def misses(plan: Plan, budget: Budget) -> tuple[Miss, ...]:
    """The budgets that a plan exceeds; none if it is qualified."""
    found = []
    if plan.cpu_s > budget.cpu_s:
        found.append(Miss("cpu", plan.cpu_s, budget.cpu_s))
    if budget.needed_bytes(plan) > budget.memory_bytes:
        found.append(Miss("memory", budget.needed_bytes(plan), budget.memory_bytes))
    return tuple(found)


PREFERENCES: dict[Preference, Callable[[Plan, Budget], tuple[float, ...]]] = {
    "cpu": lambda plan, _: (plan.cpu_s, plan.memory_bytes),
    "memory": lambda plan, _: (plan.memory_bytes, plan.cpu_s),
    "balanced": lambda plan, budget: (budget.excess(plan), plan.cpu_s, plan.memory_bytes),
}


def rating(plan: Plan, budget: Budget, preference: Preference = "cpu") -> tuple[float, ...]:
    """Of two plans the better one has the lesser rating: qualified plans by preference, the others by excess; those
    equally far beyond, by memory if they exceed that, and then by CPU."""
    if budget.admits(plan):
        return (0.0, *PREFERENCES[preference](plan, budget))
    memory = budget.memory_share(plan)
    nearest = max(min(budget.cpu_share(plan), CPU_HOPELESS), memory)
    return (1.0, nearest, plan.memory_bytes if memory > 1 else 0.0, plan.cpu_s)


def _ratio(needed: float, budget: float) -> float:
    if needed <= budget:
        return needed / budget if 0 < budget < math.inf else 0.0
    return needed / budget if budget > 0 else math.inf
