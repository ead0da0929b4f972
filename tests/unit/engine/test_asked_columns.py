"""Which columns an expression asks for, and how often."""

import pyarrow as pa

from watersmeet.engine.expressions import evaluate
from watersmeet.query.expressions import (
    And,
    Arithmetic,
    Column,
    Compare,
    Literal,
    Or,
)

X, Y = Column("a", "x"), Column("b", "y")


def asked_for(predicate, rows):
    """The columns that an evaluation asks for, in order."""
    asked = []
    data = {X: pa.array(range(rows)), Y: pa.array(range(rows))}
    evaluate(predicate, lambda column: asked.append(column) or data[column], rows)
    return asked


def test_a_column_is_asked_for_once_and_only_if_it_is_read():
    one, two = (Literal(n, pa.int64()) for n in (1, 2))
    assert asked_for(And(Compare("<", X, Arithmetic("+", Y, X)), Compare("<>", X, Y)), 3) == [X, Y]
    assert asked_for(Or(Compare("<", X, one), Compare("=", Arithmetic("%", X, two), Arithmetic("-", X, Y))), 3) == [
        X,
        Y,
    ]
    assert asked_for(Compare("<", one, two), 3) == []
    assert asked_for(Or(Compare("<", one, two), Compare("<", X, Y)), 3) == []
    assert asked_for(Compare("<", X, Y), 0) == []


def test_a_predicate_of_constants_has_a_value_per_row():
    one, two = (Literal(n, pa.int64()) for n in (1, 2))
    assert evaluate(Compare("<", one, two), {}.__getitem__, 3).tolist() == [True] * 3
    assert evaluate(Literal(None, pa.null()), {}.__getitem__, 2).tolist() == [False] * 2
