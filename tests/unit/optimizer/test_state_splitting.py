"""Small binary trees, divided from the top."""

import random

import pytest

from benchmarks.optimizer_quality import least_state, paper_model
from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.cost import CostModel
from watersmeet.optimizer.join_graph import JoinGraph, StreamFigures
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.shapes import nodes_in
from watersmeet.optimizer.state_splitting import SPLIT_STREAMS_MAX, small_tree, split_states


def taken(model: CostModel, states) -> float:
    return sum(map(model.kept_bytes, states))


@pytest.mark.parametrize("shape", SHAPES)
def test_trees_are_binary_and_connected_and_no_larger_than_the_papers(shape):
    rng = random.Random(shape)
    for _ in range(10):
        graph = random_graph(rng.randint(3, 8), shape, rng)
        model = paper_model(graph)
        for cartesian in (False, True):
            states = small_tree(model, cartesian=cartesian)
            assert {len(inputs) for inputs in nodes_in(states, graph.everyone).values()} == {2}
            assert cartesian or all(map(graph.connected, states))
            assert taken(model, states) <= taken(model, min_state(model, cartesian=cartesian))


def test_on_one_key_the_tree_is_nearly_the_smallest():
    rng = random.Random(7)
    ratios = {"split": [], "smallest first": []}
    for _ in range(10):
        model = paper_model(random_graph(7, "one class", rng, windows=(1.0,), wide=False))
        least = least_state(model, cartesian=False)
        ratios["split"].append(taken(model, small_tree(model, cartesian=False)) / least)
        ratios["smallest first"].append(taken(model, min_state(model, cartesian=False)) / least)
    assert max(ratios["split"]) < 1.2
    assert max(ratios["smallest first"]) > 3


def test_streams_that_nothing_links_and_many_streams_have_a_tree():
    apart = JoinGraph(tuple(StreamFigures(name, 1.0, 1.0) for name in "ABCDE"))
    model = paper_model(apart)
    assert len(split_states(model, frozenset(), cartesian=False)) == 3
    many = paper_model(random_graph(SPLIT_STREAMS_MAX + 1, "star", random.Random(1)))
    assert small_tree(many, cartesian=False) == min_state(many, cartesian=False)
