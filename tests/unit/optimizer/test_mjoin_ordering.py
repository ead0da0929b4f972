"""Probe orders: the dissertation's examples, and ordering by rank against looking at every order."""

import random
from itertools import permutations

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.combinations_met import Meetings
from watersmeet.optimizer.exact_ordering import exact_orders
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, pairwise_graph
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


def least_met(graph, inputs, origin, *, connected: bool) -> float:
    """By looking at every order."""
    others = [j for j in range(len(inputs)) if j != origin]
    found = []
    for order in permutations(others):
        if not connected or is_connected(graph, inputs, (origin, *order)):
            bound, total = inputs[origin], 0.0
            for j in order:
                bound |= inputs[j]
                total += graph.live(bound)
            found.append(total)
    return min(found)


def test_rank_orders_are_the_best_of_all_connected_orders():
    """1,200 acyclic graphs of 3 to 8 streams; single orders are looked at up to 5, sets of streams beyond."""
    rng = random.Random(11)
    for number in range(1200):
        graph = random_graph(rng.randint(3, 8), ACYCLIC[number % len(ACYCLIC)], rng)
        inputs = inputs_of(graph)
        met = probing(graph, inputs, by_rank(graph, inputs)).met
        best = probing(graph, inputs, exact_orders(graph, inputs, cartesian=False)).met
        assert met == pytest.approx(best, rel=1e-9)
        if len(inputs) <= 5:
            assert met == pytest.approx([least_met(graph, inputs, i, connected=True) for i in range(len(inputs))])


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


# Figure 5.3 is lost. Its text: B and C are much smaller than A, only A is linked to both, and with W = 5 a row of B
# needs 750 joins by way of A and 550 by way of C. C at 10 a second makes it 250 + 500 and 50 + 500.
FIGURE_5_3 = pairwise_graph({"A": 100, "B": 10, "C": 10}, {"AB": 0.5, "AC": 0.04}, window_s=5)


def test_a_cartesian_product_can_be_worth_it():
    """Figure 5.3."""
    inputs = inputs_of(FIGURE_5_3)
    without, with_it = (order_probes(FIGURE_5_3, inputs, cartesian=cartesian) for cartesian in (False, True))
    assert (without.orders[1], with_it.orders[1]) == ((0, 2), (2, 0))
    assert without.met[1] / FIGURE_5_3.live(inputs[1]) == pytest.approx(750)
    assert with_it.met[1] / FIGURE_5_3.live(inputs[1]) == pytest.approx(550)


# Figures 5.1 and 5.2 are lost. Their text: below A there is B, and a branch C, D whose D has several children; those
# come in order of rank; D ranks before C, so the two are one sequence, and it comes before B, though C does not.
FIGURE_5_1 = pairwise_graph(
    {"A": 10, "B": 20, "C": 50, "D": 10, "E": 30, "F": 20},
    {"AB": 0.1, "AC": 0.1, "CD": 0.01, "DE": 0.2, "DF": 0.15},
)


def test_figure_5_2():
    """Factors of B, C, D, E, F are 2, 5, 0.1, 6, 3; ranks 0.5, 0.8, -9, 0.83, 0.67; that of CD is (0.5 - 1) / 5.5."""
    names = "ABCDEF"
    order = by_rank(FIGURE_5_1, inputs_of(FIGURE_5_1))[0]
    assert "".join(names[j] for j in order) == "CDBFE"
    greedy = Meetings(FIGURE_5_1, inputs_of(FIGURE_5_1)).greedy_orders(cartesian=False)[0]
    assert "".join(names[j] for j in greedy) == "BCDFE"


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
