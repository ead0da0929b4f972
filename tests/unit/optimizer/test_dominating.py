"""Qualified plans, dominating plans, and the choice among them."""

import random

import pytest

from watersmeet.optimizer.cost import Plan
from watersmeet.optimizer.dominating import Budget, Miss, dominates, dominating, misses, rating


def plan(cpu_s: float, memory_bytes: float, name: int = 3) -> Plan:
    return Plan(frozenset({name}), cpu_s, memory_bytes)


def test_a_plan_dominates_by_needing_no_more_and_less_of_one():
    assert dominates(plan(1, 1), plan(2, 2))
    assert dominates(plan(1, 2), plan(2, 2))
    assert not dominates(plan(2, 2), plan(2, 2))
    assert not dominates(plan(1, 3), plan(3, 1))


def test_dominating_plans_are_those_that_none_dominates():
    rng = random.Random(51)
    for _ in range(50):
        plans = [plan(rng.randint(1, 9), rng.randint(1, 9), i) for i in range(12)]
        found = dominating(plans)
        costs = {(each.cpu_s, each.memory_bytes) for each in found}
        assert costs == {
            (each.cpu_s, each.memory_bytes) for each in plans if not any(dominates(other, each) for other in plans)
        }
        assert len(found) == len(costs)
        assert [each.memory_bytes for each in found] == sorted(each.memory_bytes for each in found)


CHEAP_CPU, BALANCED, SMALL = plan(1, 90), plan(5, 50), plan(9, 10)


@pytest.mark.parametrize(("preference", "best"), [("cpu", CHEAP_CPU), ("memory", SMALL), ("balanced", BALANCED)])
def test_preferences_among_qualified_plans(preference, best):
    budget = Budget(10, 100)
    assert min((CHEAP_CPU, BALANCED, SMALL), key=lambda each: rating(each, budget, preference)) == best


def test_qualified_plans_come_before_all_others():
    budget = Budget(8, 60)
    assert min((CHEAP_CPU, BALANCED, SMALL), key=lambda each: rating(each, budget)) == BALANCED


def test_where_nothing_qualifies_the_least_excess_wins():
    budget = Budget(4, 40)
    # 90 / 40, 50 / 40, 9 / 4
    assert min((CHEAP_CPU, BALANCED, SMALL), key=lambda each: rating(each, budget)) == BALANCED
    assert misses(BALANCED, budget) == (Miss("cpu", 5, 4), Miss("memory", 50, 40))
    assert [miss.factor for miss in misses(BALANCED, budget)] == [1.25, 1.25]
    assert misses(BALANCED, Budget(5, 50)) == ()


def test_where_every_plan_is_hopelessly_beyond_its_cpu_memory_decides():
    budget = Budget(0.1, 40)
    assert min((CHEAP_CPU, BALANCED, SMALL), key=lambda each: rating(each, budget)) == SMALL
    # of those within memory, the least CPU
    assert min((CHEAP_CPU, BALANCED, SMALL), key=lambda each: rating(each, Budget(0.1, 60))) == BALANCED
    assert min((CHEAP_CPU, BALANCED, SMALL), key=lambda each: rating(each, Budget(0.1))) == CHEAP_CPU


def test_a_plan_that_may_keep_up_is_not_given_up_for_memory():
    assert min((plan(2, 50), plan(9, 10)), key=lambda each: rating(each, Budget(1, 40))) == plan(2, 50)


def test_without_any_memory_the_least_state_wins():
    assert min((CHEAP_CPU, BALANCED, SMALL), key=lambda each: rating(each, Budget(10, 0))) == SMALL


def test_no_budget_is_never_missed_and_a_budget_of_nothing_always():
    assert Budget().admits(plan(1e300, 1e300))
    assert Budget().excess(plan(1e300, 1e300)) == 0
    assert Budget(0.0).excess(plan(1, 1)) == float("inf")


def test_a_margin_is_asked_of_memory_and_not_of_cpu():
    budget = Budget(10, 100, memory_margin=0.25)
    assert budget.admits(plan(10, 80))
    assert not budget.admits(plan(10, 81))
    assert budget.excess(plan(1, 96)) == pytest.approx(1.2)
    (miss,) = misses(plan(1, 96), budget)
    assert (miss.resource, miss.needed, miss.factor) == ("memory", 120, pytest.approx(1.2))
