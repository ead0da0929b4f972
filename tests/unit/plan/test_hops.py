"""Nodes over several keys: which way every input goes, and in how few stages."""

import random
from itertools import combinations

import pytest

from tests.unit.plan.linked import linked_query
from watersmeet.plan.hops import hop_orders, hop_stages
from watersmeet.plan.keys import node_key
from watersmeet.plan.probe_orders import default_orders
from watersmeet.plan.tree import Join, Leaf

CHAIN = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
STAR = [(0, i) for i in range(1, 8)]


def one_node(count: int) -> Join:
    return Join(tuple(map(Leaf, range(count))))


@pytest.mark.parametrize("links", [CHAIN, STAR], ids=["chain", "star"])
@pytest.mark.parametrize("count", range(3, 9))
def test_chains_and_stars_take_as_few_stages_as_there_can_be(links, count):
    query = linked_query(count, links[: count - 1])
    assert len(hop_stages(query, one_node(count))) == 2 * count - 3


def test_whoever_has_one_way_to_go_goes_first_and_takes_others_along():
    """1 is between 0 and 2 and could begin with either: 0 has no choice, and 1 goes with it."""
    query = linked_query(3, [(0, 1), (1, 2)])
    found = [[(step.origin, step.targets) for step in stage.steps] for stage in hop_stages(query, one_node(3))]
    assert found == [[(0, (1,)), (1, (0,))], [(0, (2,)), (1, (2,)), (2, (1,))], [(2, (0,))]]


def test_what_no_key_covers_is_probed_one_by_one_when_there_is_no_key_left():
    """2 shares no key with 0 and 1, but once it holds 0 it does with 1."""
    stages = hop_stages(linked_query(3, [(0, 1)]), one_node(3))
    found = [(bool(stage.key), [(step.origin, step.targets) for step in stage.steps]) for stage in stages]
    assert found == [
        (True, [(0, (1,)), (1, (0,))]),
        (False, [(0, (2,)), (1, (2,)), (2, (0,))]),
        (True, [(2, (1,))]),
    ]


def test_orders_that_are_given_are_followed_in_as_few_stages():
    """1 begins with 2 instead of 0. Its steps are under the keys of the others', so it needs no stage of its own."""
    query = linked_query(3, [(0, 1), (1, 2)])
    stages = hop_stages(query, one_node(3), ((1, 2), (2, 0), (1, 0)))
    found = [[(step.origin, step.targets) for step in stage.steps] for stage in stages]
    assert found == [[(0, (1,))], [(0, (2,)), (1, (2,)), (2, (1,))], [(1, (0,)), (2, (0,))]]


@pytest.mark.parametrize("seed", range(40))
def test_every_input_meets_all_others_once_under_the_key_that_it_shares_with_them(seed):
    rng = random.Random(seed)
    count = rng.randint(3, 7)
    pairs = list(combinations(range(count), 2))
    links = [rng.sample(range(count), rng.randint(2, 3)) for _ in range(2)] + rng.sample(pairs, rng.randint(1, 3))
    query = linked_query(count, links)
    node = one_node(count)
    orders = tuple(tuple(rng.sample(order, len(order))) for order in default_orders(node))
    given = seed % 2 == 0
    stages = hop_stages(query, node, orders if given else None)
    assert not given or hop_orders(stages, count) == orders
    for origin in range(count):
        steps = [step for stage in stages for step in stage.steps if step.origin == origin]
        assert sorted(j for step in steps for j in step.targets) == [j for j in range(count) if j != origin]
        assert [step.last for step in steps] == [False] * (len(steps) - 1) + [True]
        for before, step in zip([None, *steps], steps, strict=False):
            assert step.rows == (node.inputs[origin] if before is None else before.joined(node))
            assert all(node_key(query, Join((step.rows, node.inputs[j]))) == step.key for j in step.targets)
    assert all(stage.steps for stage in stages)
