"""Searches for a plan within its budgets, by name.

| strategy      | looks at                                                                 | time                    |
|---------------|--------------------------------------------------------------------------|-------------------------|
| `mjoin`       | one node over all streams (O2)                                           | polynomial              |
| `bjtree`      | one small binary tree (O4)                                               | polynomial              |
| `mjoin-init`  | one node over all streams, then with state after state added (O3)        | polynomial              |
| `bjtree-init` | small binary trees, then with state after state removed (O4)             | polynomial              |
| `exhaustive`  | all trees (O5)                                                           | seconds from 8 streams  |
| `auto`        | all trees up to EXHAUSTIVE_STREAMS_MAX streams, beyond that both others  |                         |

Of all plans looked at, the preferred one wins (`dominating.py`). Deviations from the paper:

- The paper returns the first qualified plan. Here a strategy finishes, in milliseconds, and chooses among all.
- If no plan of a polynomial strategy is qualified, its neighbourhood is searched until one is (`exploration.py`),
  for EXPLORED / n^5 plans at most: 297 for 7 streams and one for 20.
- Binary trees are the smaller of the paper's and of one that is divided from the top (`state_splitting.py`).
- `bjtree-init` starts from the smaller of two such trees, without Cartesian products or with them (`min_state.py`).
  If no plan is qualified then, and there are RESTARTED_STREAMS_MAX streams at most, it also starts from the other.
- `auto` searches the neighbourhood even if some plans are qualified, because a preferred one may be there.

After that the search goes on for `exploration_seconds`. The clock is a parameter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from watersmeet.errors import unknown_name
from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.dominating import CPU_HOPELESS, Budget, Miss, Preference, dominating, misses, rating
from watersmeet.optimizer.exhaustive import undominated_plans
from watersmeet.optimizer.exploration import explore
from watersmeet.optimizer.shapes import tree_and_inputs
from watersmeet.optimizer.state_removal import remove_states
from watersmeet.optimizer.state_selection import select_states
from watersmeet.optimizer.state_splitting import small_tree
from watersmeet.plan.probe_orders import ProbeOrder
from watersmeet.plan.tree import Join, nodes_of
from watersmeet.units import format_bytes, format_times

EXHAUSTIVE_STREAMS_MAX = 6
EXPLORED = 5_000_000
RESTARTED_STREAMS_MAX = 16

Clock: TypeAlias = Callable[[], float]
"""Seconds that pass."""
Search: TypeAlias = Callable[[CostModel, Budget], list[Plan]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan as it would run: the tree, and for every node the probe orders of its inputs, by their numbers."""

    tree: Join
    orders: tuple[tuple[ProbeOrder, ...], ...]
    """By node, children first, as `nodes_of` has them."""
    cpu_s: float
    memory_bytes: float

    @property
    def probe_orders(self) -> dict[Join, tuple[ProbeOrder, ...]]:
        return dict(zip(nodes_of(self.tree), self.orders, strict=True))


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen plan, the candidates, and the reason."""

    winner: Candidate
    candidates: tuple[Candidate, ...]
    """The plans that none of those looked at dominates, by memory ascending; the winner is one of them."""
    misses: tuple[Miss, ...]
    """The budgets that the winner exceeds: none if it is qualified."""
    plans_seen: int | None
    """None where all trees were looked at."""
    strategy: str
    reason: str


def mjoin(model: CostModel, budget: Budget) -> list[Plan]:
    return [model.plan(frozenset())]


def bjtree(model: CostModel, budget: Budget) -> list[Plan]:
    return [model.plan(small_tree(model, cartesian=False))]


def mjoin_init(model: CostModel, budget: Budget) -> list[Plan]:
    return _searched_around(model, list(select_states(model)), budget)


def bjtree_init(model: CostModel, budget: Budget) -> list[Plan]:
    starts = {small_tree(model, cartesian=cartesian) for cartesian in ((False, True) if model.cartesian else (False,))}
    smaller, *larger = sorted(starts, key=lambda start: (sum(map(model.kept_bytes, start)), sorted(start)))
    plans = list(remove_states(model, smaller))
    if len(model.graph.streams) <= RESTARTED_STREAMS_MAX and not any(map(budget.admits, plans)):
        for start in larger:
            plans += remove_states(model, start)
    return _searched_around(model, plans, budget)


def exhaustive(model: CostModel, budget: Budget) -> list[Plan]:
    """Also plans beyond the budgets where that takes no time: people want to see what they cannot afford."""
    if len(model.graph.streams) <= EXHAUSTIVE_STREAMS_MAX:
        return undominated_plans(model)
    return undominated_plans(model, budget) or undominated_plans(model)


def auto(model: CostModel, budget: Budget) -> list[Plan]:
    if len(model.graph.streams) <= EXHAUSTIVE_STREAMS_MAX:
        return exhaustive(model, budget)
    return [*mjoin_init(model, budget), *bjtree_init(model, budget)]


AUTO = "auto"
STRATEGIES: dict[str, Search] = {
    "mjoin": mjoin,
    "bjtree": bjtree,
    "mjoin-init": mjoin_init,
    "bjtree-init": bjtree_init,
    "exhaustive": exhaustive,
    AUTO: auto,
}
EXPLORED_FURTHER = (mjoin_init, bjtree_init, auto)


def optimise(
    model: CostModel,
    budget: Budget,
    strategy: str = "auto",
    *,
    preference: Preference = "cpu",
    exploration_seconds: float = 0.0,
    clock: Clock = time.monotonic,
) -> Choice:
    """The plan to run, by a named strategy. There always is one; whether it is within its budgets, `misses` says."""
    search = STRATEGIES.get(strategy.strip().lower())
    if search is None:
        raise unknown_name("optimiser strategy", "strategies", strategy, STRATEGIES, "UNKNOWN_STRATEGY")
    is_small = len(model.graph.streams) <= EXHAUSTIVE_STREAMS_MAX
    if is_small or search is exhaustive:
        model = replace(model, exact_inputs_max=len(model.graph.streams))
    plans = search(model, budget)
    if search is auto and not is_small:
        plans += islice(explore(model, plans, budget, preference), _explored_max(model))
    if exploration_seconds > 0 and search in EXPLORED_FURTHER and not (search is auto and is_small):
        end = clock() + exploration_seconds
        for plan in explore(model, plans, budget, preference):
            plans.append(plan)
            if clock() >= end:
                break
    has_seen_all = search is exhaustive or (search is auto and is_small)
    seen = None if has_seen_all and len(model.graph.streams) > 2 else len({plan.states for plan in plans})
    return _chosen(model, plans, seen, budget, strategy.strip().lower(), preference)


def _searched_around(model: CostModel, plans: list[Plan], budget: Budget) -> list[Plan]:
    """Some plans, with more around them up to the first that is qualified, if none of them is."""
    if not any(map(budget.admits, plans)):
        for plan in islice(explore(model, plans, budget), _explored_max(model)):
            plans.append(plan)
            if budget.admits(plan):
                break
    return plans


def _explored_max(model: CostModel) -> int:
    return EXPLORED // len(model.graph.streams) ** 5


def _chosen(
    model: CostModel,
    plans: Sequence[Plan],
    seen: int | None,
    budget: Budget,
    strategy: str,
    preference: Preference,
) -> Choice:
    undominated = dominating(plans)
    winner = min(undominated, key=lambda plan: rating(plan, budget, preference))
    missed = misses(winner, budget)
    return Choice(
        winner=candidate(model, winner),
        candidates=tuple(candidate(model, plan) for plan in undominated),
        misses=missed,
        plans_seen=seen,
        strategy=strategy,
        reason=_reason(undominated, seen, budget, missed, preference),
    )


def candidate(model: CostModel, plan: Plan) -> Candidate:
    """A plan as it would run."""
    tree, inputs = tree_and_inputs(plan.states, model.graph.everyone)
    return Candidate(tree, tuple([model.node(each).orders for each in inputs]), plan.cpu_s, plan.memory_bytes)


_PREFERRED = {"cpu": "least CPU", "memory": "least state", "balanced": "most room in both budgets"}


def _reason(
    undominated: Sequence[Plan], seen: int | None, budget: Budget, missed: Sequence[Miss], preference: Preference
) -> str:
    if missed:
        return f"{_least_bad(undominated, seen, budget)}: {', '.join(map(_missed, missed))}"
    if seen == 1:
        return "the only plan looked at"
    qualified = sum(map(budget.admits, undominated))
    best = "least CPU and least state" if qualified == 1 else _PREFERRED[preference]
    plans = "all plans" if seen is None else "the plans looked at"
    return f"{best} of {plans}{' within the budgets' if budget.is_set else ''}"


def _least_bad(undominated: Sequence[Plan], seen: int | None, budget: Budget) -> str:
    if seen == 1:
        return "the only plan looked at, beyond its budgets"
    if all(budget.cpu_share(plan) > CPU_HOPELESS for plan in undominated):
        return "no plan keeps up, so memory decides"
    return "no plan fits; this one is nearest its budgets"


def _missed(miss: Miss) -> str:
    if miss.resource == "cpu":
        return f"CPU {format_times(miss.factor)} of {miss.budget:.3g} s/s"
    needed = format_times(miss.factor) if miss.budget else format_bytes(round(miss.needed))
    return f"state {needed} of {format_bytes(round(miss.budget))}"
