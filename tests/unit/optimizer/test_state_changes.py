"""State selection and state removal: each step by its own rule."""

import itertools
import random

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.cost import PAPER_PRICES, CostModel, Prices
from watersmeet.optimizer.join_graph import pairwise_graph
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.state_removal import remove_states
from watersmeet.optimizer.state_selection import select_states


def paper_model(graph) -> CostModel:
    return CostModel(graph, PAPER_PRICES, keeping="paper")


@pytest.mark.parametrize("shape", SHAPES)
def test_states_are_removed_one_by_one_down_to_one_node(shape):
    rng = random.Random(41)
    for _ in range(10):
        model = paper_model(random_graph(rng.randint(3, 8), shape, rng))
        start = min_state(model, cartesian=False)
        plans = list(remove_states(model, start))
        assert plans[0].states == start
        assert [len(plan.states) for plan in plans] == list(range(len(start), -1, -1))
        for before, after in itertools.pairwise(plans):
            assert after.states < before.states
            assert after.memory_bytes <= before.memory_bytes * (1 + 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_state_that_goes_saves_least_cpu_for_its_size(shape):
    rng = random.Random(42)
    model = paper_model(random_graph(7, shape, rng, wide=False))
    plans = list(remove_states(model, min_state(model, cartesian=False)))
    for before, after in itertools.pairwise(plans):
        qualities = {
            state: (model.plan(before.states - {state}).cpu_s - before.cpu_s) / model.kept_bytes(state)
            for state in before.states
        }
        (gone,) = before.states - after.states
        assert qualities[gone] == pytest.approx(min(qualities.values()), rel=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_selected_states_save_cpu(shape):
    rng = random.Random(43)
    for _ in range(10):
        model = paper_model(random_graph(rng.randint(3, 8), shape, rng))
        plans = list(select_states(model))
        assert plans[0].states == frozenset()
        assert all(after.cpu_s < before.cpu_s for before, after in itertools.pairwise(plans))


def test_the_most_frequent_and_lightest_edge_is_selected_first():
    """Table 8.1, set 1: AB is small and all orders make it; so the hybrid with AB, as in Figure 8.2."""
    graph = pairwise_graph({"A": 20, "B": 20, "C": 20}, {"AB": 0.05, "BC": 0.5}, window_s=5)
    model = CostModel(graph, Prices(1, 1, 1), keeping="paper", cartesian=False)
    plans = list(select_states(model))
    assert [plan.states for plan in plans] == [frozenset(), frozenset({0b011})]
