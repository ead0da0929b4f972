"""Strategies by name, what a choice says, and exploration by a clock."""

import random
from itertools import count

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.errors import OptionError
from watersmeet.optimizer.cost import PAPER_PRICES, CostModel
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.exhaustive import undominated_plans
from watersmeet.optimizer.exploration import explore
from watersmeet.optimizer.join_graph import pairwise_graph
from watersmeet.optimizer.strategies import EXHAUSTIVE_STREAMS_MAX, STRATEGIES, optimise
from watersmeet.plan.tree import nodes_of, streams_of, tree_text

# Table 8.1, set 1: the bjtree has less CPU, the mjoin less memory.
SET_1 = CostModel(
    pairwise_graph({"A": 20, "B": 20, "C": 20}, {"AB": 0.05, "BC": 0.5}, window_s=5), PAPER_PRICES, keeping="paper"
)
MJOIN, BJTREE = SET_1.plan(frozenset()), SET_1.plan(frozenset({0b011}))


def chosen(strategy: str, budget: Budget, **more):
    choice = optimise(SET_1, budget, strategy, **more)
    return tree_text(choice.winner.tree, "ABC"), choice


def test_one_tree_of_each_kind_whatever_the_budgets():
    for budget in (Budget(), Budget(1e-9, 1e-9)):
        assert chosen("mjoin", budget)[0] == "(A B C)"
        assert chosen("bjtree", budget, exploration_seconds=0.01)[0] == "((A B) C)"


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in ("mjoin", "bjtree")])
def test_the_four_settings_of_figure_8_1(strategy):
    """Enough of both: least CPU. Little CPU: the tree. Little memory: the node. Little of both: the least bad."""
    assert MJOIN.cpu_s > BJTREE.cpu_s
    assert chosen(strategy, Budget(1e9, 1e9))[0] == "((A B) C)"
    assert chosen(strategy, Budget(1e9, 1e9), preference="memory")[0] == "(A B C)"
    assert chosen(strategy, Budget(BJTREE.cpu_s * 1.01, 1e9))[0] == "((A B) C)"
    assert chosen(strategy, Budget(1e9, MJOIN.memory_bytes * 1.01))[0] == "(A B C)"
    text, choice = chosen(strategy, Budget(BJTREE.cpu_s * 1.01, MJOIN.memory_bytes * 1.01))
    assert choice.misses
    assert text in ("((A B) C)", "(A B C)")


def test_a_choice_says_what_it_is_and_why():
    choice = optimise(SET_1, Budget())
    assert [tree_text(each.tree, "ABC") for each in choice.candidates] == ["(A B C)", "((A B) C)"]
    assert choice.winner == choice.candidates[1]
    assert choice.winner.orders == (((1,), (0,)), ((1,), (0,)))
    assert choice.reason == "least CPU of all plans"
    only = optimise(SET_1, Budget(memory_bytes=MJOIN.memory_bytes))
    assert only.winner == only.candidates[0]
    assert len(only.candidates) == 2
    assert only.reason == "least CPU and least state of all plans within the budgets"


def test_a_choice_says_which_budget_is_missed_and_by_how_much():
    choice = optimise(SET_1, Budget(cpu_s=BJTREE.cpu_s / 2))
    assert [(miss.resource, miss.factor) for miss in choice.misses] == [("cpu", pytest.approx(2))]
    assert choice.reason == (f"no plan fits; this one is nearest its budgets: CPU 2.00x of {BJTREE.cpu_s / 2:.3g} s/s")
    choice = optimise(SET_1, Budget(memory_bytes=MJOIN.memory_bytes / 3))
    assert choice.reason.endswith(": state 3.00x of 100 B")
    assert optimise(SET_1, Budget(memory_bytes=MJOIN.memory_bytes / 3), "mjoin").reason == (
        "the only plan looked at, beyond its budgets: state 3.00x of 100 B"
    )


def test_a_choice_says_that_no_plan_keeps_up():
    choice = optimise(SET_1, Budget(BJTREE.cpu_s / 10, MJOIN.memory_bytes * 1.01))
    assert tree_text(choice.winner.tree, "ABC") == "(A B C)"
    assert choice.reason.startswith("no plan keeps up, so memory decides: CPU ")


def test_a_budget_of_no_memory_is_missed_by_all_that_a_plan_needs():
    choice = optimise(SET_1, Budget(memory_bytes=0))
    assert tree_text(choice.winner.tree, "ABC") == "(A B C)"
    assert choice.reason == "no plan fits; this one is nearest its budgets: state 300 B of 0 B"


def test_a_choice_says_whether_all_trees_were_looked_at():
    assert optimise(SET_1, Budget(), "exhaustive").plans_seen is None
    assert optimise(SET_1, Budget(), "mjoin").plans_seen == 1
    some = optimise(SET_1, Budget(1e9), "mjoin-init")
    assert some.plans_seen == 2
    assert some.reason == "least CPU of the plans looked at within the budgets"


def test_unknown_strategies_are_refused_with_the_nearest():
    with pytest.raises(OptionError, match=r"unknown optimiser strategy 'exhaustiv'.*did you mean 'exhaustive'"):
        optimise(SET_1, Budget(), "exhaustiv")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_strategy_beats_all_trees_and_all_say_what_their_trees_cost(shape, strategy):
    rng = random.Random(61)
    for n in (4, 6):
        model = CostModel(random_graph(n, shape, rng), slots=2)
        best = undominated_plans(model)
        choice = optimise(model, Budget(), strategy)
        assert choice.winner.cpu_s >= min(plan.cpu_s for plan in best) * (1 - 1e-9)
        for each in choice.candidates:
            assert streams_of(each.tree) == frozenset(range(n))
            orders = dict(zip(nodes_of(each.tree), each.orders, strict=True))
            again = model.plan_with_orders(each.tree, orders)
            assert (again.cpu_s, again.memory_bytes) == pytest.approx((each.cpu_s, each.memory_bytes))


def test_auto_finds_the_best_of_all_trees_while_streams_are_few():
    rng = random.Random(62)
    for shape in SHAPES:
        model = CostModel(random_graph(EXHAUSTIVE_STREAMS_MAX, shape, rng), PAPER_PRICES, keeping="paper")
        best = min(plan.cpu_s for plan in undominated_plans(model))
        assert optimise(model, Budget()).winner.cpu_s == pytest.approx(best)


def test_auto_has_what_both_polynomial_strategies_have_beyond():
    rng = random.Random(63)
    model = CostModel(random_graph(EXHAUSTIVE_STREAMS_MAX + 3, "tree", rng), PAPER_PRICES, keeping="paper")
    single = [optimise(model, Budget(), strategy).winner.cpu_s for strategy in ("mjoin-init", "bjtree-init")]
    assert optimise(model, Budget()).winner.cpu_s <= min(single)


def test_exploration_ends_with_its_time():
    model = CostModel(random_graph(9, "cyclic", random.Random(64)), PAPER_PRICES, keeping="paper")
    ticks = count()
    plain = optimise(model, Budget())
    more = optimise(model, Budget(), exploration_seconds=100, clock=lambda: float(next(ticks)))
    assert more.plans_seen == plain.plans_seen + 100
    assert more.winner.cpu_s <= plain.winner.cpu_s


def test_exploration_reaches_every_tree_once():
    model = CostModel(random_graph(4, "chain", random.Random(65)), PAPER_PRICES, keeping="paper")
    start = model.plan(frozenset())
    found = list(explore(model, [start], Budget()))
    assert len(found) == len({plan.states for plan in found}) == 26 - 1


def test_exploration_tries_other_states_before_it_goes_on_from_worse_plans():
    """Around the best binary tree of four streams: two trees with a state fewer, then the four with one other state."""
    rng = random.Random(67)
    models = (CostModel(random_graph(4, "chain", rng), PAPER_PRICES, keeping="paper") for _ in count())
    model, start = next((m, best) for m in models if len((best := undominated_plans(m)[-1]).states) == 2)
    found = [plan for plan, _ in zip(explore(model, [start], Budget()), range(6), strict=False)]
    assert [len(plan.states) for plan in found] == [1, 1, 2, 2, 2, 2]


def test_without_cartesian_products_no_state_is_one():
    rng = random.Random(66)
    for strategy in STRATEGIES:
        model = CostModel(random_graph(6, "tree", rng), PAPER_PRICES, keeping="paper", cartesian=False)
        choice = optimise(model, Budget(1e-9, 1e-9), strategy, exploration_seconds=50, clock=count().__next__)
        for each in choice.candidates:
            assert all(model.graph.connected(sum(1 << i for i in streams_of(node))) for node in nodes_of(each.tree))
