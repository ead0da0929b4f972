"""The prices under which the model's CPU comes nearest to the measured one, none of them negative.

The model is linear in its prices: what it says with one price at 1 and the others at 0 is a column, the measured CPU is
the right side, and both are divided by it, so that what counts is the relative error. Letting rows go is priced with
storing them, because as many go as come; probes are searches of single partial results, which cost what pairs do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from watersmeet.optimizer.cost import CostModel, Prices
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import States

Floats = npt.NDArray[np.float64]
NOTHING = Prices(0.0, 0.0, 0.0)
FITTED = ("insert_s", "join_s", "exchange_s", "stage_s", "lookup_s", "store_s")


def counts_of(graph: JoinGraph, states: Sequence[States]) -> Floats:
    """By tree and price: how much of it the model says there is."""
    models = [CostModel(graph, replace(NOTHING, **{price: 1.0})) for price in FITTED]
    return np.array([[model.plan(each).cpu_s for model in models] for each in states])


def fitted(counts: Floats, cpu_s: Floats) -> Prices:
    found = _least_squares(counts / cpu_s[:, None], np.ones(len(cpu_s)))
    return replace(NOTHING, **{price: float(f"{value:.3g}") for price, value in zip(FITTED, found, strict=True)})


def _least_squares(columns: Floats, target: Floats) -> Floats:
    """Non-negative least squares by an active set (Lawson and Hanson 1974, chapter 23)."""
    scale = columns.max(axis=0) + 1e-300
    columns = columns / scale
    found = np.zeros(columns.shape[1])
    free = np.zeros(columns.shape[1], dtype=bool)
    while not free.all():
        gradient = np.where(free, -np.inf, columns.T @ (target - columns @ found))
        if gradient.max() <= 1e-9:
            break
        free[gradient.argmax()] = True
        found = _without_negatives(columns, target, found, free)
    return found / scale


def _without_negatives(columns: Floats, target: Floats, start: Floats, free: npt.NDArray[np.bool_]) -> Floats:
    """The best in the free coordinates, of which those that would become negative are bound again."""
    found = start
    while True:
        best = np.zeros_like(found)
        best[free] = np.linalg.lstsq(columns[:, free], target, rcond=None)[0]
        negative = free & (best <= 0)
        if not negative.any():
            return best
        step = (found[negative] / (found[negative] - best[negative])).min()
        found = found + step * (best - found)
        free &= found > 1e-15
        found[~free] = 0.0
