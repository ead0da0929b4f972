"""Prices calibrated by a running join: C_i, C_d and C_j as measured on this machine and this data.

The engine measures the time to store a row, to expire one and to match one. Each contains several prices of the model,
so it cannot replace a single price. Instead, the prices of a group are scaled together:

| measured, by row               | prices it contains    | counted by the model in |
|--------------------------------|-----------------------|-------------------------|
| to store and to expire: C_i+C_d| insert, delete, store | rows stored             |
| to match: C_j                  | join, probe, lookup   | pairs joined            |

The factor makes the model's time per row, for the running plan, equal to the measured one. Exchanges and stages are
Spark's work, which the engine does not see, so their prices stay. So do those of a group without a measurement.

A factor lies between 1 / FACTOR_MAX and FACTOR_MAX. Beyond that, something else was measured (the first micro-batch of
a process, a busy machine), and the ratios of the default prices compare plans better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from watersmeet.optimizer.cost import CostModel, Prices
from watersmeet.optimizer.shapes import States

FACTOR_MAX = 10.0
STORING = ("insert_s", "delete_s", "store_s")
JOINING = ("join_s", "probe_s", "lookup_s")
_NOTHING = Prices(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Prices, and the factors by which they were scaled; None for a group without a measurement."""

    prices: Prices
    storing: float | None = None
    joining: float | None = None


def calibrated(model: CostModel, running: States, costs: Mapping[str, float]) -> Calibration:
    """The prices of a model, scaled by seconds a row that the tree with these states has shown: to `insert` one, to
    `delete` one and to `join` one, as far as they are known."""
    stored_s = costs["insert"] + costs.get("delete", 0.0) if "insert" in costs else None
    storing = _factor(model, running, STORING, "insert_s", stored_s)
    joining = _factor(model, running, JOINING, "join_s", costs.get("join"))
    prices = _scaled(_scaled(model.prices, STORING, storing or 1.0), JOINING, joining or 1.0)
    return Calibration(prices, storing, joining)


def _factor(
    model: CostModel, running: States, group: tuple[str, ...], counted: str, measured_s: float | None
) -> float | None:
    if not measured_s:
        return None
    others = {each.name: 0.0 for each in fields(Prices) if each.name not in group}
    expected_s = replace(model, prices=replace(model.prices, **others)).plan(running).cpu_s
    rows = replace(model, prices=replace(_NOTHING, **{counted: 1.0})).plan(running).cpu_s
    if not (expected_s > 0 and rows > 0):
        return None
    return min(max(measured_s * rows / expected_s, 1 / FACTOR_MAX), FACTOR_MAX)


def _scaled(prices: Prices, group: tuple[str, ...], factor: float) -> Prices:
    return replace(prices, **{name: getattr(prices, name) * factor for name in group})
