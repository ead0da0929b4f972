"""Join trees are read as they are written, and every mistake in the text is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import OptionError
from watersmeet.plan.tree import Join, Leaf, Tree, mjoin, nodes_of, parse_tree, streams_of, tree_text, without_words

NAMES = ("A", "B", "C", "D", "E_1")
A, B, C, D, E = (Leaf(i) for i in range(5))


@st.composite
def trees(draw: st.DrawFn) -> Join:
    items: list[Tree] = list(draw(st.permutations((A, B, C, D, E))))
    while len(items) > 1:
        size = draw(st.integers(2, len(items)))
        items = [Join(tuple(items[:size])), *items[size:]]
        items = list(draw(st.permutations(items)))
    (tree,) = items
    assert isinstance(tree, Join)
    return tree


@given(trees())
def test_a_tree_survives_being_written(tree):
    assert parse_tree(tree_text(tree, NAMES), NAMES) == tree


@pytest.mark.parametrize("text", ["((group(A) B) C weighted(D) E_1)", "(A B C D group(E_1))"])
def test_a_stream_may_stand_in_a_word(text):
    tree = parse_tree(text.replace("group(", "GROUP ( "), NAMES)
    assert tree_text(tree, NAMES) == text
    assert tree_text(without_words(tree), NAMES) == text.replace("group(A)", "A").replace("weighted(D)", "D").replace(
        "group(E_1)", "E_1"
    )


@pytest.mark.parametrize(
    "text", ["(group((A B)) C D E_1)", "(group(A B) C D E_1)", "(group() A B C D E_1)", "(group(A"]
)
def test_a_word_holds_one_stream(text):
    with pytest.raises(OptionError, match=r"'group\(...\)' holds one stream"):
        parse_tree(text, NAMES)


def test_a_stream_may_have_the_name_of_a_word():
    assert parse_tree("(a group (b c))".replace("group (b c)", "(b c) group"), ("a", "b", "c", "group")).inputs[2] == D
    assert parse_tree("(group (a b))", ("a", "b", "group")).inputs[0] == C


@given(trees())
def test_nodes_come_children_first_and_hold_every_stream_once(tree):
    nodes = list(nodes_of(tree))
    assert nodes[-1] == tree
    assert streams_of(tree) == set(range(5))
    for i, node in enumerate(nodes):
        assert all(child in nodes[:i] for child in node.inputs if isinstance(child, Join))
        assert sum(len(streams_of(child)) for child in node.inputs) == len(streams_of(node))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("(A B C D E_1)", mjoin(5)),
        ("((((A B) C) D) E_1)", Join((Join((Join((Join((A, B)), C)), D)), E))),
        ("((A B C) (D E_1))", Join((Join((A, B, C)), Join((D, E))))),
        ("  ( e_1(d\tc)\n b a ) ", Join((E, Join((D, C)), B, A))),
    ],
)
def test_texts(text, tree):
    assert parse_tree(text, NAMES) == tree


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a ')' is missing"),
        ("(", "a ')' is missing"),
        ("((A B) C", "a ')' is missing"),
        (")", "a ')' stands where a stream or '(' should"),
        ("()", "a node needs two inputs or more"),
        ("((A) B C)", "a node needs two inputs or more"),
        ("(A B C) D", "nothing can follow at 'D'"),
        ("(A B C))", "nothing can follow at ')'"),
        ("(A B bank)", "there is no stream 'bank'"),
        ("(A B CC)", "there is no stream 'CC' (did you mean 'C'?)"),
        ("(A, B, C)", "cannot read ','"),
        ("(A B 1)", "cannot read '1'"),
        ("(A B)", "every one of the streams A, B, C must stand in it once"),
        ("(A B C C)", "every one of the streams A, B, C must stand in it once"),
        ("A", "every one of the streams A, B, C must stand in it once"),
    ],
)
def test_texts_that_are_no_tree(text, reason):
    with pytest.raises(OptionError) as caught:
        parse_tree(text, "ABC")
    assert str(caught.value) == (
        f"[INVALID_PLAN] option plan '{text}' is not a join tree: {reason}. "
        "write nested parentheses, such as (a b c) or ((a b) c)"
    )
