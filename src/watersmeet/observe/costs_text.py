"""The candidates for the plan of a join side by side: what each would cost a slot, and why one was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.observe.estimates_text import IN_CODE, Saying, assumed
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.cost import CostModel
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.measured_prices import Calibration
from watersmeet.optimizer.shapes import states_of, tree_of
from watersmeet.optimizer.strategies import Candidate, Choice, bjtree, mjoin
from watersmeet.plan.tree import Join, tree_text
from watersmeet.query.logical import JoinQuery
from watersmeet.units import format_bytes

SHOWN_MAX = 12
"""Candidates; if there are more, those next to the winner are shown."""


@dataclass(frozen=True, slots=True)
class _Row:
    mark: str
    tree: Join
    cpu_s: float
    memory_bytes: float
    remarks: tuple[str, ...]


def costs_text(
    query: JoinQuery,
    known: Assumptions,
    model: CostModel,
    budget: Budget,
    choice: Choice,
    *,
    running: Join | None = None,
    calibration: Calibration | None = None,
    say: Saying | None = IN_CODE,
) -> str:
    """The section of `explain("cost")`: all candidates, the budgets, why the winner won, and what it rests on.

    `running` is the tree that runs, whatever would be chosen now, `calibration` what it has shown of prices; without
    `say`, what the figures rest on is told elsewhere.
    """
    names = [stream.name for stream in query.streams]
    rows = _rows(model, budget, choice, running)
    texts = [tree_text(row.tree, names) for row in rows]
    width = max(len("plan"), *map(len, texts))
    lines = ["== Costs per slot =="]
    lines.append(f"  {'plan':<{width}} {'CPU s/s':>9} {'state':>10}")
    for row, text in zip(rows, texts, strict=True):
        figures = f"{row.cpu_s:>9.3g} {format_bytes(round(row.memory_bytes)):>10}"
        lines.append(f"{row.mark} {text:<{width}} {figures}  {', '.join(row.remarks)}".rstrip())
    lines.append(f"  {'budget':<{width}} {_cpu(budget.cpu_s):>9} {_bytes(budget.memory_bytes):>10}")
    lines.append(f"chosen: {tree_text(choice.winner.tree, names)}: {choice.reason}")
    plans = "1 plan" if choice.plans_seen == 1 else f"{choice.plans_seen:,} plans"
    lines.append(f"the search ({choice.strategy}) came down to {plans}")
    lines.append(f"prices: {_prices(calibration)}")
    return "\n".join([*lines, *(f"known: {line}" for line in (assumed(query, known, say) if say else ()))])


def _rows(model: CostModel, budget: Budget, choice: Choice, running: Join | None) -> list[_Row]:
    """The plans that none dominates, and for comparison the simplest of both kinds and the one that runs."""
    everyone = model.graph.everyone
    plans = {states_of(c.tree): model.plan(states_of(c.tree)) for c in _next_to(choice)}
    kinds = {mjoin(model, budget)[0].states: "one node over all", bjtree(model, budget)[0].states: "small binary tree"}
    undominated = frozenset(plans)
    for states in (*kinds, *([states_of(running)] if running is not None else [])):
        plans.setdefault(states, model.plan(states))
    rows = []
    for states, plan in sorted(plans.items(), key=lambda item: (item[1].cpu_s, item[1].memory_bytes)):
        is_winner = states == states_of(choice.winner.tree)
        remarks = [kinds[states]] if states in kinds else []
        if running is not None and states == states_of(running) and not is_winner:
            remarks.append("the plan now")
        if plan.cpu_s > budget.cpu_s:
            remarks.append("too much CPU")
        if budget.needed_bytes(plan) > budget.memory_bytes:
            remarks.append("too much state")
        if states not in undominated:
            remarks.append("dominated")
        mark = "*" if is_winner else " "
        rows.append(_Row(mark, tree_of(states, everyone), plan.cpu_s, plan.memory_bytes, tuple(remarks)))
    return rows


def _next_to(choice: Choice) -> Sequence[Candidate]:
    candidates = choice.candidates
    at = next(i for i, each in enumerate(candidates) if each.tree == choice.winner.tree)
    first = max(0, min(at - SHOWN_MAX // 2, len(candidates) - SHOWN_MAX))
    return candidates[first : first + SHOWN_MAX]


def _prices(calibration: Calibration | None) -> str:
    """Whether the constants of the cost model are those measured here."""
    groups = {"storing rows": calibration.storing, "joining them": calibration.joining} if calibration else {}
    measured = [f"{name} {factor:.2g} times" for name, factor in groups.items() if factor is not None]
    if not measured:
        return "by default, since no query that runs has measured any"
    return f"as measured by this query, {' and '.join(measured)} the default; exchanges and stages by default"


def _cpu(budget: float) -> str:
    return "none" if math.isinf(budget) else f"{budget:.3g}"


def _bytes(budget: float) -> str:
    return "none" if math.isinf(budget) else format_bytes(round(budget))
