"""The candidate plans of a join side by side: the cost of each per slot, and the reason for the choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.observe.estimates import estimate
from watersmeet.observe.estimates_text import IN_CODE, Saying, basis, figure, files_text
from watersmeet.observe.tables import fitted, wrapped
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.cost import CostModel, Plan
from watersmeet.optimizer.dominating import Budget, misses
from watersmeet.optimizer.measured_prices import Calibration
from watersmeet.optimizer.shapes import States, states_of
from watersmeet.optimizer.strategies import EXHAUSTIVE_STREAMS_MAX, Candidate, Choice, bjtree, candidate, mjoin
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import Join, tree_text
from watersmeet.query.logical import JoinQuery
from watersmeet.units import format_bytes, format_times

TITLE = "== Costs per slot =="
SHOWN_MAX = 8
"""The maximum number of candidates shown; if there are more, those next to the winner."""


@dataclass(frozen=True, slots=True)
class Other:
    """A tree that runs, or will run, whatever the choice by cost, and the reason: `runs now` or `asked for`."""

    tree: Join
    why: str


RUNS_NOW = "runs now"
ASKED_FOR = "asked for"


def costs_text(
    query: JoinQuery,
    known: Assumptions,
    model: CostModel,
    budget: Budget,
    choice: Choice,
    *,
    other: Other | None = None,
    calibration: Calibration | None = None,
    before: CostModel | None = None,
    say: Saying | None = IN_CODE,
) -> str:
    """The section of `explain("cost")`: the candidates, the budgets, the reason for the choice, and the assumptions.

    For a running query, `calibration` are the measured prices, and `before` the assumptions at its start: a plan's
    figure by these (`CPU s/s`) is shown beside the measured one (`in run`). Without `say`, the assumptions and the size
    of files are left out.
    """
    lines = [
        f"{_chosen(choice, other)}: {choice.reason}",
        f"search ({choice.strategy}): {_search(model, choice)}",
        f"prices: {_prices(calibration)}",
    ]
    if say is not None:
        lines.append(files_text(estimate(query, _joined(query, choice.winner), known), model.slots))
        lines += basis(query, known, say)
    return "\n".join([TITLE, *_table(query, model, budget, choice, other, before), *wrapped(lines)])


def _joined(query: JoinQuery, run: Candidate) -> JoinPlan:
    return plan_join(query, (run.tree,), partitions=1, orders=run.probe_orders)


def _table(
    query: JoinQuery,
    model: CostModel,
    budget: Budget,
    choice: Choice,
    other: Other | None,
    before: CostModel | None,
) -> list[str]:
    """One line per plan, ordered by CPU; `vs *` is the ratio to the winner's CPU. State is bytes of rows."""
    names = [stream.name for stream in query.streams]
    winner, notes = model.plan(states_of(choice.winner.tree)), _notes(model, budget, choice, other)
    lines: list[tuple[str, ...]] = [("", "plan", "stages", "CPU s/s", "in run" if before else "", "vs *", "state", "")]
    for plan in sorted(map(model.plan, notes), key=lambda each: (each.cpu_s, each.memory_bytes)):
        run = candidate(model, plan)
        is_winner = plan.states == winner.states
        lines.append(
            (
                "*" if is_winner else "",
                tree_text(run.tree, names),
                str(_joined(query, run).stage_count),
                _cpu((before or model).plan(plan.states).cpu_s),
                _cpu(plan.cpu_s) if before else "",
                "" if is_winner or not winner.cpu_s else format_times(plan.cpu_s / winner.cpu_s),
                format_bytes(round(plan.memory_bytes)),
                "; ".join([*_over(plan, budget), *notes[plan.states]]),
            )
        )
    if budget.is_set:
        lines.append(_budget(budget))
    return fitted([(f"{mark:1} {plan}", *rest) for mark, plan, *rest in lines], has_notes=True)


def _budget(budget: Budget) -> tuple[str, ...]:
    """The last line of the table."""
    cpu = "none" if math.isinf(budget.cpu_s) else _cpu(budget.cpu_s)
    if math.isinf(budget.memory_bytes):
        return "", "budget", "", cpu, "", "", "none", ""
    margin = f"state must fit with {budget.memory_margin * 100:.0f} % to spare" if budget.memory_margin else ""
    return "", "budget", "", cpu, "", "", format_bytes(round(budget.memory_bytes)), margin


def _notes(model: CostModel, budget: Budget, choice: Choice, other: Other | None) -> dict[States, list[str]]:
    """The plans to show, with their notes: those that no other dominates, and for comparison the simplest of both kinds
    (by their option names) and the running plan."""
    notes: dict[States, list[str]] = {states_of(each.tree): [] for each in _next_to(choice)}
    if len(model.graph.streams) > 2:
        for name, kind in {"mjoin": mjoin, "bjtree": bjtree}.items():
            notes.setdefault(kind(model, budget)[0].states, []).append(name)
    if other is not None:
        notes.setdefault(states_of(other.tree), []).append(other.why)
    return notes


def _next_to(choice: Choice) -> Sequence[Candidate]:
    candidates = choice.candidates
    at = next(i for i, each in enumerate(candidates) if each.tree == choice.winner.tree)
    first = max(0, min(at - SHOWN_MAX // 2, len(candidates) - SHOWN_MAX))
    return candidates[first : first + SHOWN_MAX]


def _over(plan: Plan, budget: Budget) -> list[str]:
    over = []
    for miss in misses(plan, budget):
        times = f" {format_times(miss.factor)}" if miss.budget else ""
        over.append(f"{'CPU' if miss.resource == 'cpu' else 'state'}{times}")
    return [f"over budget: {', '.join(over)}"] if over else []


def _cpu(seconds: float) -> str:
    return f"{seconds:#.3g}" if seconds < 99.95 else figure(seconds)


def _chosen(choice: Choice, other: Other | None) -> str:
    if other is None or states_of(other.tree) == states_of(choice.winner.tree):
        return "* chosen"
    return "* would be chosen if no plan were asked for" if other.why == ASKED_FOR else "* would be chosen now"


def _search(model: CostModel, choice: Choice) -> str:
    """How many trees were searched, and how many candidates are left."""
    graph, left = model.graph, len(choice.candidates)
    if len(graph.streams) == 2:
        return "two streams have only one tree"
    if choice.plans_seen == 1:
        return "one tree; others are shown for comparison"
    looked_at = "all trees" if choice.plans_seen is None else f"{choice.plans_seen:,} trees of many more"
    is_within = choice.plans_seen is None and len(graph.streams) > EXHAUSTIVE_STREAMS_MAX and not choice.misses
    within = " within the budgets" if is_within else ""  # such a search keeps no others
    if left == 1:
        return f"{looked_at}; none{within} has less CPU or less state"
    shown = f", {SHOWN_MAX} are shown" if left > SHOWN_MAX else ""
    return f"{looked_at}; {left} remain{within}, beaten by none in both CPU and state{shown}"


def _prices(calibration: Calibration | None) -> str:
    """Whether the constants of the cost model were measured in this query."""
    groups = {"storing a row": calibration.storing, "joining": calibration.joining} if calibration else {}
    measured = [f"{name} {format_times(factor)}" for name, factor in groups.items() if factor is not None]
    if measured:
        return f"measured by this query: {', '.join(measured)} the default; exchanges and stages: default"
    return (
        f"default CPU by row, stage and micro-batch ({'too little measured yet' if calibration else 'nothing was run'})"
    )
