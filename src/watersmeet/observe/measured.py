"""What a running join has shown of its data: rates and selectivities, as the optimiser takes them.

Rates are of the last epochs, in rows a second of event time (of the clock, without windows). Selectivities are over the
life of the query: matches by pairs where two inputs met under one key class, passed by tested for residuals.
Under a key of several classes only their product shows, and each gets an equal part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from watersmeet.observe.progress import EpochProgress
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery


def measured(query: JoinQuery, plan: JoinPlan, epochs: Sequence[EpochProgress]) -> Assumptions:
    """What the last epochs have shown; there must be one. What they have not shown is not said."""
    totals = epochs[-1].totals
    return Assumptions(
        rates=_rates(query, epochs),
        filters=dict.fromkeys(range(len(query.filters)), 1.0),
        keys=_key_selectivities(plan, totals),
        residuals={
            i: max(totals.get(f"passed.residual {i}", 0), 0.5) / tested
            for i in range(len(query.residuals))
            if (tested := totals.get(f"tested.residual {i}", 0))
        },
    )


def _rates(query: JoinQuery, epochs: Sequence[EpochProgress]) -> dict[str, float]:
    """Rows by seconds, over the epochs that say how many seconds they took."""
    unit = "rowsPerEventSecond" if query.windowed else "rowsPerSecond"
    rows: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for epoch in epochs:
        for name, found in epoch.statistics.get("arrivals", {}).items():
            if found.get(unit):
                rows[name] += found["rows"]
                seconds[name] = seconds.get(name, 0.0) + found["rows"] / found[unit]
    return {name: rows[name] / seconds[name] for name in seconds}


def _key_selectivities(plan: JoinPlan, totals: Mapping[str, int]) -> dict[int, float]:
    pairs: Counter[int] = Counter()
    equal: Counter[int] = Counter()
    products: dict[int, list[float]] = {}
    for stage in plan.stages:
        for node in (*(n for shape in stage.shapes for n in shape), *(hop.node for hop in stage.hops)):
            for i, left in enumerate(node.inputs):
                for right in node.inputs[:i]:
                    name = "~".join(sorted((left.label, right.label)))
                    met, matched = totals.get(f"pairs.{name}", 0), totals.get(f"matches.{name}", 0)
                    if not met:
                        continue
                    if len(node.key) == 1:
                        pairs[node.key[0]] += met
                        equal[node.key[0]] += matched
                    for key_class in node.key:
                        share = (max(matched, 0.5) / met) ** (1 / len(node.key))
                        products.setdefault(key_class, []).append(share)
    found = {key_class: sum(shares) / len(shares) for key_class, shares in products.items()}
    return found | {key_class: max(equal[key_class], 0.5) / pairs[key_class] for key_class in pairs}
