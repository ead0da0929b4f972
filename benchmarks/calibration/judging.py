"""How near the model comes to what was measured, and how good the plans are that it picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.calibration.fitting import Floats
from benchmarks.calibration.measuring import Measured
from benchmarks.calibration.queries import Workload
from benchmarks.calibration.trees import FAMILIES, Compared, family_of
from watersmeet.optimizer.cost import CostModel, Plan, Prices
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import States, nodes_in
from watersmeet.optimizer.stage_keys import node_key


@dataclass(frozen=True, slots=True)
class Point:
    """A tree of a query, predicted and measured."""

    workload: Workload
    tree: Compared
    measured: Measured
    predicted: Plan
    """With the figures that the data is made from."""

    @property
    def group(self) -> str:
        """What it is judged with."""
        graph = self.workload.true_graph()
        if any(node_key(graph, inputs).is_mixed for inputs in nodes_in(self.tree.states, graph.everyone).values()):
            return "hop by hop"
        return "one key" if self.workload.kind == "one-key" else "several keys"

    @property
    def family(self) -> str:
        return family_of(self.tree.states, len(self.workload.rates))


def accuracy(points: Sequence[Point]) -> dict[str, Any]:
    """Rank correlation over all trees and within queries, and errors as factors."""
    found: dict[str, Any] = {"trees": len(points)}
    for name, predicted, measured in (
        ("cpu", [p.predicted.cpu_s for p in points], [p.measured.cpu_s for p in points]),
        ("memory", [p.predicted.memory_bytes for p in points], [p.measured.state_bytes_max for p in points]),
    ):
        error = np.abs(np.log(np.array(predicted) / np.array(measured)))
        found[name] = {
            "rank_correlation": _rounded(spearman(np.array(predicted), np.array(measured))),
            "error_median": _rounded(np.exp(np.median(error)) - 1),
            "error_p90": _rounded(np.exp(np.quantile(error, 0.9)) - 1),
            "predicted_over_measured_median": _rounded(np.median(np.array(predicted) / np.array(measured))),
        }
    return found


def within_queries(points: Sequence[Point]) -> dict[str, Any]:
    """Rank correlations over the trees of each query, and how far ratios between its trees are off."""
    found: dict[str, Any] = {}
    by_query = _by_query(points)
    for name, figure in (("cpu", _cpu), ("memory", _memory)):
        correlations, errors = [], []
        for mine in by_query:
            predicted, measured = np.array([figure(p) for p in mine]).T
            correlations.append(spearman(predicted, measured))
            ratio = np.log(predicted / measured)
            errors += list(np.abs(ratio - ratio.mean()))
        found[name] = {
            "rank_correlation_median": _rounded(np.median(correlations)),
            "rank_correlation_mean": _rounded(np.mean(correlations)),
            "rank_correlation_min": _rounded(np.min(correlations)),
            "ratio_error_median": _rounded(np.exp(np.median(errors)) - 1),
            "ratio_error_p90": _rounded(np.exp(np.quantile(errors, 0.9)) - 1),
        }
    return found


def accuracy_by_group(points: Sequence[Point]) -> dict[str, Any]:
    groups = dict.fromkeys(point.group for point in points)
    return {group: accuracy([p for p in points if p.group == group]) for group in sorted(groups)}


def over_best(points: Sequence[Point], pick: Compared) -> float:
    """CPU of the tree picked for a query by that of the cheapest family: the median over stretches, in each of which
    all trees ran side by side."""
    chosen = next(p for p in points if p.tree == pick).measured
    families = [p.measured for p in points if p.tree.label in FAMILIES]
    ratios = [mine / min(other.repeats_cpu_s[i] for other in families) for i, mine in enumerate(chosen.repeats_cpu_s)]
    return float(np.median(ratios))


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": _rounded(np.median(values)),
        "p90": _rounded(np.quantile(values, 0.9)),
        "max": _rounded(np.max(values)),
    }


def spearman(one: Floats, other: Floats) -> float:
    """The correlation of ranks; 1 where all are equal in both."""
    ranks = [_ranks(one), _ranks(other)]
    if min(np.ptp(each) for each in ranks) == 0:
        return 1.0 if max(np.ptp(each) for each in ranks) == 0 else 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def predicted_by(prices: Prices, graph: JoinGraph, states: States) -> Plan:
    return CostModel(graph, prices).plan(states)


def _ranks(values: Floats) -> Floats:
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[at]


def _cpu(point: Point) -> tuple[float, float]:
    return point.predicted.cpu_s, point.measured.cpu_s


def _memory(point: Point) -> tuple[float, float]:
    return point.predicted.memory_bytes, float(point.measured.state_bytes_max)


def _by_query(points: Sequence[Point]) -> list[list[Point]]:
    names = dict.fromkeys(point.workload.name for point in points)
    return [[p for p in points if p.workload.name == name] for name in names]


def _rounded(value: float) -> float:
    return round(float(value), 3)
