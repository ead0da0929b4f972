"""Prices by what a running join has measured: C_i, C_d and C_j as this engine has them, on this machine and this data.

The engine measures how long it takes to store a row, to let one go and to match one. These contain what the model
prices by itself, so no measured constant can stand for a price. Instead, the prices of a group are scaled together:

| measured, by row               | prices it contains    | counted by the model in |
|--------------------------------|-----------------------|-------------------------|
| to store and to let go: C_i+C_d| insert, delete, store | rows stored             |
| to match: C_j                  | join, probe, lookup   | pairs joined            |

by the factor under which the model's figure for the plan that runs, by row, is the measured one. What exchanges and
stages cost is Spark's work, which the engine does not see: these prices stay as they are. So do those of a group of
which nothing has been measured.

A factor is FACTOR_MAX at most, and one by FACTOR_MAX at least: beyond that, something else was measured (the first
micro-batch of a process, a machine that was busy otherwise), and plans had better be compared by the defaults' ratios.
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
    """Prices, and by which factors they are those that were assumed; None for what has not been measured."""

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
