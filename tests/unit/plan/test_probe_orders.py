"""Probe orders: by default those of the tree, and the same after a checkpoint has kept them."""

import pytest

from tests.unit.observe.test_estimates import query_of
from watersmeet.plan.probe_orders import default_orders, orders_as_texts, orders_from_texts
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import nodes_of, parse_tree

NAMES = ["a", "b", "c", "d"]
TREE = parse_tree("((a b c) d)", NAMES)
INNER = next(nodes_of(TREE))


def test_every_input_probes_the_others_in_the_order_of_the_tree():
    assert default_orders(INNER) == ((1, 2), (0, 2), (0, 1))


def test_orders_that_are_given_reach_their_node():
    query = query_of("abcd", ["a.k = b.k AND b.k = c.k AND c.k = d.k"])
    given = {INNER: ((2, 1), (0, 2), (1, 0))}
    inner, outer = plan_join(query, (TREE,), 4, None, given).stages[0].shape(0)
    assert inner.probe_orders == given[INNER]
    assert outer.probe_orders == ((1,), (0,))


def test_orders_survive_as_texts():
    orders = {INNER: ((2, 1), (0, 2), (1, 0)), TREE: ((1,), (0,))}
    texts = orders_as_texts(orders, NAMES)
    assert texts == {"(a b c)": [[2, 1], [0, 2], [1, 0]], "((a b c) d)": [[1], [0]]}
    assert orders_from_texts(texts, [TREE], NAMES) == orders


@pytest.mark.parametrize("text", ["(a b c d)", "(((a b) c) d)"])
def test_orders_of_nodes_that_are_gone_are_forgotten(text):
    texts = orders_as_texts({INNER: ((2, 1), (0, 2), (1, 0))}, NAMES)
    assert orders_from_texts(texts, [parse_tree(text, NAMES)], NAMES) == {}
