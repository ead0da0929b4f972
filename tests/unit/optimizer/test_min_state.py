"""The smallest binary trees: stars against all connected trees, and Cartesian products."""

import random
from dataclasses import replace

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from tests.unit.optimizer.trees import binary_trees, is_binary
from watersmeet.optimizer.cost import PAPER_PRICES, CostModel
from watersmeet.optimizer.join_graph import JoinGraph, bits, pairwise_graph
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.shapes import States, tree_of


def model_of(graph: JoinGraph, keeping="paper") -> CostModel:
    return CostModel(graph, PAPER_PRICES, keeping=keeping)


def least_memory(model: CostModel) -> float:
    """Of all connected binary trees, by looking at each."""
    trees = binary_trees(len(model.graph.streams))
    return min(taken(model, states) for states in trees if all(map(model.graph.connected, states)))


def taken(model: CostModel, states: States) -> float:
    return sum(map(model.kept_bytes, states))


@pytest.mark.parametrize("keeping", ["paper", "engine"])
def test_no_connected_tree_of_a_star_is_smaller(keeping):
    """With one window and one row width; 150 stars of 3 to 6 streams."""
    rng = random.Random(31)
    for number in range(150):
        graph = random_graph(rng.choice((3, 4, 5, 5, 6) if number < 20 else (3, 4, 5)), "star", rng, windows=(5.0,))
        model = model_of(graph, keeping)
        assert taken(model, min_state(model, cartesian=False)) == pytest.approx(least_memory(model))


def test_cartesian_edges_can_harm():
    """A product that is small by itself can lead astray: here that of A and D, the ends of a chain, comes first, and B
    has to be joined with all of it."""
    graph = pairwise_graph({"A": 2, "B": 25, "C": 30, "D": 2}, {"AB": 0.1, "BC": 0.5, "CD": 0.1})
    without, with_edges = (min_state(model_of(graph), cartesian=cartesian) for cartesian in (False, True))
    assert {state: graph.live(state) for state in without} == pytest.approx({0b0011: 5, 0b1100: 6})
    assert {state: graph.live(state) for state in with_edges} == pytest.approx({0b1001: 4, 0b1011: 10})


def test_bytes_decide_where_rows_and_bytes_disagree():
    """A deviation: by the paper's weight, rows, AB would come first (50 against 80)."""
    plain = pairwise_graph({"A": 10, "B": 10, "C": 10}, {"AB": 0.5, "BC": 0.8})
    wide = replace(plain, streams=(replace(plain.streams[0], row_bytes=100.0), *plain.streams[1:]))
    assert min_state(model_of(plain), cartesian=False) == {0b011}
    assert wide.live(0b011) == 50 < wide.live(0b110) == 80
    assert min_state(model_of(wide), cartesian=False) == {0b110}


@pytest.mark.parametrize("shape", SHAPES)
def test_trees_are_binary_and_connected(shape):
    rng = random.Random(32)
    for _ in range(20):
        graph = random_graph(rng.randint(2, 9), shape, rng)
        for cartesian in (False, True):
            states = min_state(model_of(graph), cartesian=cartesian)
            assert is_binary(tree_of(states, graph.everyone))
            assert cartesian or all(graph.connected(state) for state in states)
            assert all(len(list(bits(state))) > 1 for state in states)
