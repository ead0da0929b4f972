"""A look at a running query: its plan and the best one, both priced by the same statistics (F1; dissertation 26.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from watersmeet.adaptation.migration_cost import migration_cost
from watersmeet.adaptation.reoptimizer import Look, Priced
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.hints import completed
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import as_streams
from watersmeet.optimizer.kept_rows import stored_bytes
from watersmeet.optimizer.shapes import states_of
from watersmeet.optimizer.strategies import AUTO, optimise
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.hops import is_mixed
from watersmeet.plan.probe_orders import ProbeOrder, default_orders
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import Join, nodes_of, streams_of
from watersmeet.planning.planner import Planner
from watersmeet.query.logical import JoinQuery

OTHER_ORDERS = "{} in other probe orders"
RANGE = 1.25
"""Statistics within this factor of those of the last search are within its validity range;"""
MATCHES_RANGE = 0.1
"""and so are selectivities by which the matches of a row change by less than this."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A look, and the best plan itself."""

    look: Look
    plan: JoinPlan


def look_at(
    planner: Planner,
    running: JoinPlan,
    measured: Assumptions,
    at_s: float,
    *,
    filled: float = 1.0,
    exploration_s: float = 0.0,
) -> Seen:
    """The running plan against the best that the optimiser finds; figures that were not measured are the user's
    hints. `filled` is the part of a window that the stores hold; `exploration_s` is extra time for the search."""
    model = replace(planner.model(completed(measured, planner.known)), cartesian=False)
    strategy = planner.asked if planner.is_choice else AUTO
    choice = optimise(model, planner.budget, strategy, exploration_seconds=exploration_s)
    winner, now = choice.winner, priced(model, planner.query, running)
    fits = planner.budget.needed_bytes(now) <= planner.budget.memory_bytes
    mine = Priced(plan_text(running), now.cpu_s, fits)
    is_same = states_of(winner.tree) == states_of(running.trees[0])
    is_asked_for = not is_same and not planner.asks_for(running.trees[0])
    is_no_better = winner.cpu_s >= now.cpu_s > 0 and fits and not is_asked_for
    if (is_same and winner.tree != running.trees[0]) or is_no_better:
        return Seen(Look(at_s, mine, mine), running)
    plan = planner.plan_chosen(choice)
    name = OTHER_ORDERS.format(plan_text(plan)) if is_same else plan_text(plan)
    best = Priced(name, winner.cpu_s, not any(miss.resource == "memory" for miss in choice.misses))
    cost_s = migration_cost(running, plan, lambda streams: filled * _stored(model, streams), model.prices, model.slots)
    return Seen(Look(at_s, mine, best, cost_s, is_asked_for), plan)


def priced(model: CostModel, query: JoinQuery, plan: JoinPlan) -> Plan:
    """The cost of a plan with the probe orders that it has."""
    (tree,) = plan.trees
    return model.plan_with_orders(tree, {node: _orders(model, query, plan, node) for node in nodes_of(tree)})


def has_left_range(query: JoinQuery, before: Assumptions, now: Assumptions) -> bool:
    """Whether statistics have left the validity range of those before: only then can the search find another plan that
    is better by much."""
    for stream in query.streams:
        if _factor(before.rates.get(stream.name, 0.0), now.rates.get(stream.name, 0.0)) > RANGE:
            return True
    rows = max((now.rates[stream.name] * _window_s(query, i) for i, stream in enumerate(query.streams)), default=0.0)
    for old, new in ((before.keys, now.keys), (before.residuals, now.residuals)):
        for number in old.keys() | new.keys():
            was, is_ = old.get(number, 0.0), new.get(number, 0.0)
            if _factor(was, is_) > RANGE and abs(was - is_) * rows > MATCHES_RANGE:
                return True
    return False


def _orders(model: CostModel, query: JoinQuery, plan: JoinPlan, node: Join) -> tuple[ProbeOrder, ...]:
    given = plan.orders.get(node)
    if given is not None:
        return given
    if not is_mixed(query, node):
        return default_orders(node)
    return hop_walks(model.graph, tuple(as_streams(streams_of(child)) for child in node.inputs)).orders


def _stored(model: CostModel, streams: frozenset[int]) -> float:
    """Rows of a store."""
    found = as_streams(streams)
    return model.kept_bytes(found) / stored_bytes(model.graph, found)


def _window_s(query: JoinQuery, stream: int) -> float:
    return (query.windows_us[stream] or 0) / 1e6


def _factor(one: float, other: float) -> float:
    low, high = sorted((one, other))
    return high / low if low > 0 else float("inf") if high > 0 else 1.0
