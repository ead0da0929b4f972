"""The smallest binary trees: the walk-through of 6.1, stars against all connected trees, and Cartesian products."""

import random

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from tests.unit.optimizer.trees import all_trees
from watersmeet.optimizer.cost import PAPER_PRICES, CostModel
from watersmeet.optimizer.join_graph import JoinGraph, bits, pairwise_graph
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.shapes import states_of, tree_of
from watersmeet.plan.tree import Join, nodes_of, tree_text


def text(graph: JoinGraph, states) -> str:
    return tree_text(tree_of(states, graph.everyone), [stream.name for stream in graph.streams])


def model_of(graph: JoinGraph, keeping="paper") -> CostModel:
    return CostModel(graph, PAPER_PRICES, keeping=keeping)


def is_binary(tree: Join) -> bool:
    return all(len(node.inputs) == 2 for node in nodes_of(tree))


# Figure 6.1 is lost. Its text: AD is the smallest edge; B is linked to A and to D, so its edge to AD has both
# selectivities; then CE is the smallest, and the tree gets bushy.
FIGURE_6_1 = pairwise_graph(
    {"A": 10, "B": 40, "C": 20, "D": 5, "E": 3}, {"AD": 0.1, "AB": 0.5, "BD": 0.5, "CE": 0.1, "BC": 0.2}
)


def test_figure_6_1():
    """Weights: AD 5, CE 6, BD 100, BC 160, AB 200. With AD joined, its edge to B is 5 x 40 x 0.25 = 50; with CE joined,
    the one to B is 6 x 40 x 0.2 = 48."""
    assert text(FIGURE_6_1, min_state(model_of(FIGURE_6_1), cartesian=False)) == "((A D) (B (C E)))"


def least_memory(model: CostModel, *, connected: bool) -> float:
    """Of all binary trees, by looking at each."""
    n = len(model.graph.streams)
    found = []
    for tree in all_trees(tuple(range(n))):
        assert isinstance(tree, Join)
        if is_binary(tree):
            states = states_of(tree)
            if not connected or all(model.graph.connected(state) for state in states):
                found.append(sum(model.kept_bytes(state) for state in states))
    return min(found)


@pytest.mark.parametrize("keeping", ["paper", "engine"])
def test_no_connected_tree_of_a_star_is_smaller(keeping):
    """With one window and one row width; 150 stars of 3 to 6 streams."""
    rng = random.Random(31)
    for number in range(150):
        graph = random_graph(rng.choice((3, 4, 5, 5, 6) if number < 20 else (3, 4, 5)), "star", rng, windows=(5.0,))
        model = model_of(graph, keeping)
        memory = sum(model.kept_bytes(state) for state in min_state(model, cartesian=False))
        assert memory == pytest.approx(least_memory(model, connected=True))


def test_cartesian_edges_can_help_and_harm():
    """Figure 6.2 is lost; its point: two small streams around a large one are better joined with each other first. But
    a product that is small by itself can lead astray: here BC comes first, and A has to be joined with all of it."""
    helps = pairwise_graph({"A": 100, "B": 2, "C": 1, "D": 1}, {"AB": 0.5, "AC": 0.5, "AD": 0.5})
    harms = pairwise_graph({"A": 8, "B": 2, "C": 2, "D": 50}, {"AB": 0.3, "AC": 0.3, "AD": 0.0001})
    for graph, is_better in ((helps, True), (harms, False)):
        model = model_of(graph)
        without, with_edges = (
            sum(model.kept_bytes(state) for state in min_state(model, cartesian=cartesian))
            for cartesian in (False, True)
        )
        assert (with_edges < without) == is_better


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
