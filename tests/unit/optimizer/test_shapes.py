"""Trees as sets of intermediate states."""

import pytest

from watersmeet.optimizer.shapes import nodes_in, parent_of, states_of, tree_of
from watersmeet.plan.tree import parse_tree, tree_text

NAMES = "ABCDE"
TREES = {
    "(A B C D E)": set(),
    "((A B) C D E)": {0b11},
    "((((A B) C) D) E)": {0b11, 0b111, 0b1111},
    "((A D) B (C E))": {0b1001, 0b10100},
    "(((A C) E) (B D))": {0b101, 0b10101, 0b1010},
}


@pytest.mark.parametrize(("text", "states"), TREES.items())
def test_a_tree_is_its_states(text, states):
    assert states_of(parse_tree(text, NAMES)) == states
    assert tree_text(tree_of(frozenset(states), 0b11111), NAMES) == text


def test_inputs_and_parents():
    states = frozenset({0b11, 0b111, 0b11000})
    assert nodes_in(states, 0b11111)[0b11111] == (0b111, 0b11000)
    assert nodes_in(states, 0b11111)[0b111] == (0b11, 0b100)
    assert parent_of(nodes_in(states, 0b11111), 0b11) == 0b111
    assert parent_of(nodes_in(states, 0b11111), 0b11000) == 0b11111
