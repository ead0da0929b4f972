"""Probe orders come out of a checkpoint as they went in, or not at all."""

import pytest

from watersmeet.errors import CheckpointError
from watersmeet.plan.probe_orders import orders_as_texts, orders_from_texts
from watersmeet.plan.tree import parse_tree

TREE = parse_tree("(a b c)", "abc")
ORDERS = {"(a b c)": [[2, 1], [0, 2], [1, 0]]}


def test_orders_come_back():
    assert orders_as_texts(orders_from_texts(ORDERS, [TREE], "abc"), "abc") == ORDERS
    assert orders_from_texts({"(x y)": [[9]]}, [TREE], "abc") == {}, "of other nodes"


@pytest.mark.parametrize("orders", [[], [[1, 2]], [[1, 2], [0, 2], [0, 9]], [[1], [0], [0]], [[1, 1], [0, 2], [0, 1]]])
def test_orders_of_other_inputs_are_refused(orders):
    with pytest.raises(CheckpointError, match=r"do not fit the inputs of \(a b c\)"):
        orders_from_texts({"(a b c)": orders}, [TREE], "abc")
