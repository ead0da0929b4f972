"""Probe orders: by rank, and with Cartesian edges, against looking at every order."""

import random
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.exact_ordering import exact_orders
from watersmeet.optimizer.greedy_ordering import greedy_orders
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, bits, pairwise_graph
from watersmeet.optimizer.links import input_graph, is_tree, spanning_links
from watersmeet.optimizer.mjoin_ordering import order_probes, probing
from watersmeet.optimizer.rank_ordering import rank_orders

ACYCLIC = ["tree", "star", "chain", "classes", "one class"]


def inputs_of(graph: JoinGraph) -> tuple[int, ...]:
    return tuple(1 << i for i in range(len(graph.streams)))


def by_rank(graph: JoinGraph, inputs: tuple[int, ...]):
    node = input_graph(graph, inputs)
    assert is_tree(node)
    return rank_orders(node.live, node.links)


def is_connected(graph, inputs, walk) -> bool:
    bound = inputs[walk[0]]
    for j in walk[1:]:
        if not graph.linked(bound, inputs[j]):
            return False
        bound |= inputs[j]
    return True


@cache
def all_orders(count: int, origin: int) -> np.ndarray:
    return np.array(list(permutations([j for j in range(count) if j != origin])))


def least_met(graph, inputs, origin, *, connected: bool) -> float:
    """By looking at every order."""
    orders = all_orders(len(inputs), origin)
    bound = [sum(inputs[j] for j in bits(members)) for members in range(1 << len(inputs))]
    walks = np.column_stack([np.full(len(orders), origin), orders])
    members = np.bitwise_or.accumulate(1 << walks, axis=1)
    if connected:
        linked = np.array([[graph.linked(before, each) for each in inputs] for before in bound])
        members = members[linked[members[:, :-1], orders].all(axis=1)]
    live = np.array([graph.live(each) for each in bound])
    return live[members[:, 1:]].sum(axis=1).min()


def test_rank_orders_are_the_best_of_all_connected_orders():
    """1,200 acyclic graphs of 3 to 8 streams; every order of all inputs up to 5 streams, of two inputs beyond."""
    rng = random.Random(11)
    for number in range(1200):
        graph = random_graph(rng.randint(3, 8), ACYCLIC[number % len(ACYCLIC)], rng, wide=number % 2 == 0)
        inputs = inputs_of(graph)
        met = probing(graph, inputs, by_rank(graph, inputs)).met
        best = probing(graph, inputs, exact_orders(graph, inputs, cartesian=False)).met
        assert met == pytest.approx(best, rel=1e-9)
        for i in range(len(inputs)) if len(inputs) <= 5 else rng.sample(range(len(inputs)), 2):
            assert met[i] == pytest.approx(least_met(graph, inputs, i, connected=True), rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_orders_are_the_best_of_all_orders(shape):
    rng = random.Random(12)
    for _ in range(20):
        graph = random_graph(rng.randint(3, 5), shape, rng)
        inputs = inputs_of(graph)
        met = probing(graph, inputs, exact_orders(graph, inputs)).met
        assert met == pytest.approx([least_met(graph, inputs, i, connected=False) for i in range(len(inputs))])


def test_inputs_may_be_intermediate_results():
    rng = random.Random(13)
    for _ in range(100):
        graph = random_graph(7, "tree", rng)
        merged = next(each.streams for each in graph.classes)
        inputs = (merged, *(1 << i for i in range(7) if not merged >> i & 1))
        met = probing(graph, inputs, by_rank(graph, inputs)).met
        assert met == pytest.approx(probing(graph, inputs, exact_orders(graph, inputs, cartesian=False)).met)


def test_within_one_class_the_order_is_by_live_rows():
    streams = tuple(StreamFigures(n, r, w) for n, r, w in zip("abcd", (4, 1, 3, 2), (1, 10, 2, 1), strict=True))
    graph = JoinGraph(streams, (Predicate(0b1111, 0.1),))
    # live rows: 4, 10, 6, 2
    assert by_rank(graph, inputs_of(graph)) == ((3, 2, 1), (3, 0, 2), (3, 0, 1), (0, 2, 1))


@pytest.mark.parametrize("shape", SHAPES)
def test_cartesian_edges_never_make_it_worse(shape):
    rng = random.Random(14)
    for _ in range(40):
        graph = random_graph(rng.randint(6, 9), shape, rng)
        inputs = inputs_of(graph)
        without = order_probes(graph, inputs, cartesian=False).met
        assert all(a <= b * (1 + 1e-9) for a, b in zip(order_probes(graph, inputs).met, without, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_met_is_what_the_orders_meet(shape):
    """The array computation against single products, with predicates over three streams."""
    rng = random.Random(15)
    for _ in range(10):
        plain = random_graph(7, shape, rng)
        graph = JoinGraph(plain.streams, plain.classes, (Predicate(0b10101, 0.3), Predicate(0b11, 0.2)))
        inputs = (0b1001, *(1 << i for i in (1, 2, 4, 5, 6)))
        found = order_probes(graph, inputs)
        assert found.met == pytest.approx(probing(graph, inputs, found.orders).met)
        assert [sorted((i, *order)) for i, order in enumerate(found.orders)] == [list(range(6))] * 6


def test_no_order_leaves_the_links_without_need():
    rng = random.Random(16)
    for shape in SHAPES:
        graph = random_graph(8, shape, rng)
        inputs = inputs_of(graph)
        for i, order in enumerate(order_probes(graph, inputs, cartesian=False).orders):
            assert is_connected(graph, inputs, (i, *order)), shape


def test_a_link_that_lets_all_pass_is_a_link():
    """C has fewer rows than B, but nothing links it to A."""
    graph = pairwise_graph({"A": 10, "B": 100, "C": 1}, {"AB": 1.0, "BC": 1.0})
    assert greedy_orders(graph, inputs_of(graph), cartesian=False) == ((1, 2), (2, 0), (1, 0))
    assert greedy_orders(graph, inputs_of(graph), cartesian=True)[0] == (2, 1)


def test_rates_of_zero_have_orders_too():
    graph = pairwise_graph(dict.fromkeys("ABCDEFG", 0.0), {"A" + name: 0.0 for name in "BCDEFG"})
    found = order_probes(graph, inputs_of(graph))
    assert all(sorted((i, *order)) == list(range(7)) for i, order in enumerate(found.orders))


def test_a_spanning_tree_takes_the_lightest_pairs():
    graph = pairwise_graph({"A": 10, "B": 1, "C": 2}, {"AB": 0.5, "BC": 0.5, "AC": 0.5})
    node = input_graph(graph, inputs_of(graph))
    assert not is_tree(node)
    assert {link.inputs for link in spanning_links(node, cartesian=False)} == {(1, 2), (0, 1)}


def test_pairs_of_one_class_are_one_link_of_a_spanning_tree():
    """A predicate beside the class makes a cycle; but the class still leaves the order of its other members open."""
    streams = tuple(StreamFigures(name, rate, 1.0) for name, rate in zip("abcde", (1, 2, 3, 4, 5), strict=True))
    graph = JoinGraph(streams, (Predicate(0b11111, 0.1),), (Predicate(0b11, 0.5),))
    links = spanning_links(input_graph(graph, inputs_of(graph)), cartesian=False)
    assert {(link.inputs, link.selectivity) for link in links} == {((0, 1), 0.05), ((0, 2, 3, 4), 0.1)}
