"""The exhaustive search against all trees, enumerated and priced independently."""

import random

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from tests.unit.optimizer.trees import all_trees, paper_cost
from watersmeet.optimizer.cost import CostModel, Prices
from watersmeet.optimizer.dominating import Budget, dominating
from watersmeet.optimizer.exhaustive import undominated_plans
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures
from watersmeet.optimizer.shapes import states_of, tree_of
from watersmeet.plan.tree import tree_text

PRICES = Prices(1.0, 0.5, 1.5, 0.7)


def costs(plans) -> list[tuple[float, float]]:
    return [(plan.cpu_s, plan.memory_bytes) for plan in plans]


def undominated(pairs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for cpu, memory in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        if not found or cpu < found[-1][0] * (1 - 1e-12):
            found.append((cpu, memory))
    return found


def with_more(graph: JoinGraph, rng: random.Random) -> JoinGraph:
    """A predicate over three streams, and one over two beside their classes."""
    three, two = (sum(1 << i for i in rng.sample(range(len(graph.streams)), k)) for k in (3, 2))
    return JoinGraph(graph.streams, graph.classes, (Predicate(three, 0.2), Predicate(two, 0.6)))


def test_there_are_as_many_trees_as_there_should_be():
    assert [len(list(all_trees(tuple(range(n))))) for n in (2, 3, 4, 5)] == [1, 4, 26, 236]


@pytest.mark.parametrize("shape", SHAPES)
def test_exhaustive_equals_independent_enumeration(shape):
    rng = random.Random(21)
    for n in (3, 3, 4, 4, 5):
        plain = random_graph(n, shape, rng)
        for graph in (plain, with_more(plain, rng)):
            model = CostModel(graph, PRICES, keeping="paper")
            found = undominated_plans(model)
            expected = undominated([paper_cost(graph, PRICES, tree) for tree in all_trees(tuple(range(n)))])
            assert [pytest.approx(pair) for pair in expected] == costs(found)
            for plan in found:  # the costs are those of the trees that are said to have them
                assert costs([model.plan(plan.states)]) == [pytest.approx((plan.cpu_s, plan.memory_bytes))]


@pytest.mark.parametrize("cartesian", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_and_stages_are_searched_exactly_too(shape, cartesian):
    """Where neighbours with the same key share a stage, what stands above matters: plans are told apart by that key."""
    rng = random.Random(22)
    prices = Prices(1e-6, 1e-6, 1e-6, 1e-6, exchange_s=5e-6, stage_s=1e-4)
    for n in (3, 4, 5):
        graph = random_graph(n, shape, rng)
        model = CostModel(graph, prices, slots=2, cartesian=cartesian)
        trees = [states_of(tree) for tree in all_trees(tuple(range(n)))]
        allowed = [states for states in trees if all(model.allows(state) for state in states)]
        expected = undominated(costs(model.plan(states) for states in allowed))
        assert [pytest.approx(pair) for pair in expected] == costs(undominated_plans(model))


def test_a_part_that_costs_more_may_be_the_better_one_for_its_key():
    """x makes A and D equal, y B, C and D. Of A, C and D by themselves, (A (C D)) costs less than ((A D) C); but the
    latter ends under y, where B is joined, and its results need not be sent."""
    streams = tuple(StreamFigures(name, rate, 10) for name, rate in zip("ABCD", (10, 20, 1, 1), strict=True))
    graph = JoinGraph(streams, (Predicate(0b1001, 0.02), Predicate(0b1110, 0.1)))
    model = CostModel(graph, Prices(1e-6, 0, 1e-5, exchange_s=1e-5), cartesian=False)
    best = undominated_plans(model)[-1]
    assert tree_text(tree_of(best.states, graph.everyone), "ABCD") == "(((A D) C) B)"
    costlier, cheaper = (
        [model.node(inputs).cpu_s for inputs in part] for part in (((1, 8), (9, 4)), ((4, 8), (1, 12)))
    )
    sent = [1e-5 * graph.found(streams) for streams in (0b1001, 0b1100)]
    assert sum(costlier) + sent[0] > sum(cheaper) + sent[1]


def test_early_filtering_keeps_every_qualified_plan():
    rng = random.Random(23)
    for shape in SHAPES:
        model = CostModel(random_graph(5, shape, rng), PRICES, keeping="paper")
        everything = undominated_plans(model)
        for plan in everything:
            budget = Budget(plan.cpu_s * 1.0001, plan.memory_bytes * 1.0001)
            within = [each for each in everything if budget.admits(each)]
            assert costs(undominated_plans(model, budget)) == costs(within)
        assert undominated_plans(model, Budget(everything[-1].cpu_s / 2)) == []


def test_undominated_plans_do_not_dominate_each_other():
    plans = undominated_plans(CostModel(random_graph(6, "star", random.Random(24)), PRICES, keeping="paper"))
    assert len(plans) > 3
    assert dominating(plans) == plans
