"""Registered predicates: what they are called with, what may come back, and where they count."""

import operator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.engine.expressions import evaluate
from watersmeet.errors import QueryError, error_from_worker
from watersmeet.plan.layout import fields_above
from watersmeet.plan.nodes import plan_node
from watersmeet.plan.tree import Leaf, parse_tree
from watersmeet.query.expressions import And, Arithmetic, Call, Column, Compare, Literal, Not, Or
from watersmeet.query.logical import Stream, build_query
from watersmeet.query.registered import registered

X, Y = Column("a", "x"), Column("b", "y")
DATA = {X: pa.array([1, 2, None, 4]), Y: pa.array(["a", None, "c", "d"])}
ONE = Literal(1, pa.int64())


def called(function, *operands, vectorized=True):
    return Call("f", operands, registered("f", function, vectorized=vectorized))


def holds(expr):
    return evaluate(expr, DATA.__getitem__, 4).tolist()


def refusal(expr):
    with pytest.raises(QueryError) as caught:
        holds(expr)
    assert caught.value.error_class == "PREDICATE_FAILED"
    # as it reaches the driver from a worker
    again = error_from_worker(f"Traceback ...\nwatersmeet.errors.QueryError: {caught.value}\n\tat org.apache")
    assert str(again) == str(caught.value)
    return str(caught.value)


def line_of(text):
    """The first line of this file that has a text."""
    return next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def test_it_gets_one_array_per_argument_with_literals_repeated():
    seen = []
    answer = pa.array([True, False, None, True])
    expr = called(lambda *arrays: (seen.extend(arrays), answer)[1], X, Arithmetic("+", X, ONE), Y, ONE)
    assert holds(expr) == [True, False, False, True]
    assert seen == [DATA[X], pa.array([2, 3, None, 5]), DATA[Y], pa.array([1, 1, 1, 1])]


@pytest.mark.parametrize(
    "answer",
    [
        pa.array([True, False, None, True]),
        pa.chunked_array([[True], [False, None, True]]),
        np.array([True, False, False, True]),
        np.array([True, False, None, True], dtype=object),
    ],
)
def test_truth_comes_in_several_forms(answer):
    assert holds(called(lambda x: answer, X)) == [True, False, False, True]


def test_null_is_unknown():
    answer = pa.array([True, False, None, None])
    assert holds(Not(called(lambda x: answer, X))) == [False, True, False, False]
    assert holds(Or(called(lambda x: pa.nulls(4), X), Compare("=", X, ONE))) == [True, False, False, False]


def test_row_by_row_it_gets_python_values():
    seen = []
    expr = called(lambda *row: (seen.append(row), row[1] and row[0] == 1)[1] and None, X, Y, ONE, vectorized=False)
    assert holds(expr) == [False] * 4
    assert seen == [(1, "a", 1), (2, None, 1), (None, "c", 1), (4, "d", 1)]
    assert holds(called(lambda x: np.bool_(x == 1), X, vectorized=False)) == [True, False, False, False]


def test_it_is_not_asked_for_rows_that_are_decided():
    seen = []
    expr = And(Compare(">", X, ONE), called(lambda x: seen.append(x.to_pylist()) or pa.array([True] * len(x)), X))
    assert holds(expr) == [False, True, False, True]
    assert seen == [[2, None, 4]]


def test_a_call_of_constants_is_one_value():
    assert holds(Or(called(lambda x: pa.array([True]), ONE), Compare("=", X, ONE))) == [True] * 4


DUE = "a vectorised predicate returns a boolean pyarrow or NumPy array with one value per row"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (pa.array([True]), "1 values for 4 rows"),
        (pa.array([1, 2, 3, 4]), "values of type int64"),
        (np.ones(4), "values of type double"),
        (np.array([True, "x", None, 1], dtype=object), "a NumPy array of object"),
        (np.ones((2, 2), dtype=bool), "a ndarray"),
        ([True] * 4, "a list"),
        (None, "a NoneType"),
    ],
)
def test_wrong_answers_are_named(answer, what):
    def wrong(x):
        return answer

    place = f"{__file__}, line {line_of('def wrong')}"
    assert refusal(called(wrong, X)) == f"[PREDICATE_FAILED] predicate 'f' returned {what} ({place}). {DUE}"


def test_wrong_answers_row_by_row_are_named():
    assert refusal(called(lambda x: 1, X, vectorized=False)) == (
        f"[PREDICATE_FAILED] predicate 'f' returned a int ({__file__}, line {line_of('lambda x: 1,')}). "
        "a predicate that is called row by row returns True, False or None"
    )


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_failure_is_named(vectorized):
    def fail(x):
        raise ValueError("not\n  this")

    place = f"{__file__}, line {line_of('raise ValueError')}"
    assert refusal(called(fail, X, vectorized=vectorized)).startswith(
        f"[PREDICATE_FAILED] predicate 'f' failed with ValueError: not this ({place}). NULL comes as None"
    )


class Failing:
    def __call__(self, x):
        return pa.array(["a", 1])  # fails in pyarrow


@pytest.mark.parametrize("function", [Failing(), partial(Failing.__call__, None)], ids=["object", "partial"])
def test_a_failure_is_shown_where_the_users_code_called_a_library(function):
    assert f"({__file__}, line {line_of('# fails in pyarrow')})" in refusal(called(function, X))


def test_a_failure_of_a_function_without_python_code_is_named():
    text = refusal(called(operator.index, X))
    assert "failed with TypeError" in text
    assert "(in a function without Python code)" in text


def test_a_predicate_over_one_stream_is_applied_where_the_stream_is_an_input():
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    query = build_query(
        [Stream(name, schema) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k", "f(a.x)", "f(c.x)", "a.x < b.x"],
        within=None,
        windows={},
        select=["b.k"],
        functions={"f": registered("f", print)},
    )
    tree = parse_tree("((a b) c)", "abc")
    inner, outer = (
        plan_node(query, t, (0,), children=[None] * 2, stage_inputs=[None] * 2, first_store=0)
        for t in (tree.inputs[0], tree)
    )
    assert [(r.number, r.inputs) for r in inner.residuals] == [(2, {0, 1}), (0, {0})]
    assert [(r.number, r.inputs) for r in outer.residuals] == [(1, {1})]
    assert Column("a", "x") in fields_above(query, Leaf(0))
    assert Column("a", "x") not in fields_above(query, tree.inputs[0])
