"""Measured statistics of a running join, in the optimiser's form: rates, selectivities and costs of a row.

Rates are of the last epochs, in rows per second of event time (of the clock, without windows). Selectivities are over
the life of the query: matches by pairs where two inputs met under one key class, passed by tested for residuals.
A key of several classes shows only their product, and each class gets an equal part of it. Costs are over the life of
the query as well, from ROWS_MIN rows on: the first rows pay for the start of a process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from watersmeet.observe.progress import EpochProgress
from watersmeet.observe.statistics import costs, meetings
from watersmeet.optimizer.assumptions import Assumptions, rate_of
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.state.measures import INSERTED, MATCHES, PAIRS, PASSED, TESTED, Counts, residual_name

ROWS_MIN = 1000


def measured(query: JoinQuery, plan: JoinPlan, epochs: Sequence[EpochProgress]) -> Assumptions:
    """The statistics of the last epochs, of which there must be one; figures not measured are left out."""
    totals = epochs[-1].totals
    arrivals = _arrivals(query, epochs)
    return Assumptions(
        rates={name: rate_of(rows, seconds) for name, (rows, seconds, _) in arrivals.items()},
        filters=dict.fromkeys(range(len(query.filters)), 1.0),
        keys=_key_selectivities(plan, totals),
        residuals={
            i: max(totals.of(PASSED, residual_name(i)), 0.5) / tested
            for i in range(len(query.residuals))
            if (tested := totals.of(TESTED, residual_name(i)))
        },
        costs=_costs(totals),
        batch_s=max((seconds / count for _, seconds, count in arrivals.values()), default=None),
    )


def _costs(totals: Counts) -> dict[str, float]:
    """Seconds per row."""
    if totals.of(INSERTED) < ROWS_MIN:
        return {}
    return {name: ns / 1e9 for name, ns in costs(totals).items()}


def _arrivals(query: JoinQuery, epochs: Sequence[EpochProgress]) -> dict[str, tuple[int, float, int]]:
    """By stream: rows, seconds and epochs, over the epochs with a known duration."""
    unit = "rowsPerEventSecond" if query.windowed else "rowsPerSecond"
    found: dict[str, tuple[int, float, int]] = {}
    for epoch in epochs:
        for name, arrived in epoch.statistics.get("arrivals", {}).items():
            if arrived.get(unit):
                rows, seconds, count = found.get(name, (0, 0.0, 0))
                found[name] = (rows + arrived["rows"], seconds + arrived["rows"] / arrived[unit], count + 1)
    return found


def _key_selectivities(plan: JoinPlan, totals: Counts) -> dict[int, float]:
    pairs: Counter[int] = Counter()
    equal: Counter[int] = Counter()
    products: dict[int, list[float]] = {}
    for name, (key, _, _) in meetings(plan).items():
        met, matched = totals.of(PAIRS, name), totals.of(MATCHES, name)
        if not met:
            continue
        if len(key) == 1:
            pairs[key[0]] += met
            equal[key[0]] += matched
        for key_class in key:
            products.setdefault(key_class, []).append((max(matched, 0.5) / met) ** (1 / len(key)))
    found = {key_class: sum(shares) / len(shares) for key_class, shares in products.items()}
    return found | {key_class: max(equal[key_class], 0.5) / pairs[key_class] for key_class in pairs}
