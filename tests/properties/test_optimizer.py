"""The polynomial strategies find what there is to be found: qualified plans, wherever budgets are drawn."""

import math
import random
from collections import Counter

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.cost import PAPER_PRICES, CostModel, Plan
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.exhaustive import undominated_plans
from watersmeet.optimizer.strategies import STRATEGIES

POLYNOMIAL = ("mjoin-init", "bjtree-init")
SPREAD_MIN = 1.01
"""Graphs whose plans all cost the same, within a percent, leave nothing to choose."""


def spread(plans: list[Plan]) -> float:
    cpu, memory = [plan.cpu_s for plan in plans], [plan.memory_bytes for plan in plans]
    return min(max(cpu) / min(cpu), max(memory) / min(memory))


def drawn(plans: list[Plan], rng: random.Random) -> Budget:
    """Between the cheapest and the dearest of the undominated plans: hard, since every plan there exceeds one of two
    budgets somewhere in between."""

    def between(values: list[float]) -> float:
        return math.exp(rng.uniform(math.log(min(values)), math.log(max(values))))

    return Budget(between([plan.cpu_s for plan in plans]), between([plan.memory_bytes for plan in plans]))


@pytest.mark.parametrize(("keeping", "graphs"), [("paper", 168), ("engine", 126)])
def test_polynomial_strategies_find_qualified_plans(keeping, graphs):
    """In at least 95 % of the settings in which the exhaustive one finds one; with more settings and up to 7 streams,
    `benchmarks/optimizer_quality.py` measures it."""
    rng = random.Random(71)
    found: Counter[str] = Counter()
    for number in range(graphs):
        shape = list(SHAPES)[number % len(SHAPES)]
        graph = random_graph(rng.choice((4, 5, 5, 6)), shape, rng, wide=number % 2 == 0)
        prices = {"prices": PAPER_PRICES} if keeping == "paper" else {"slots": 2, "cartesian": False}
        model = CostModel(graph, keeping=keeping, **prices)
        best = undominated_plans(model)
        for _ in range(4 if spread(best) > SPREAD_MIN else 0):
            budget = drawn(best, rng)
            if any(map(budget.admits, best)):
                found["exhaustive"] += 1
                for strategy in POLYNOMIAL:
                    found[strategy] += any(map(budget.admits, STRATEGIES[strategy](model, budget)))
    assert found["exhaustive"] > 50
    for strategy in POLYNOMIAL:
        assert found[strategy] >= 0.95 * found["exhaustive"]
