"""The order in which a node applies its residual predicates: cheap before expensive, without new failures.

A predicate that may raise is evaluated only on rows that all predicates before it in the text have let pass, so that
`b.n <> 0 AND a.n / b.n > 2` is as safe as it reads. A predicate that cannot raise may run earlier than in the text. So
any two stay in the order of the text if the later one may raise; of the others the cheapest is next.

Spark evaluates LIKE, regular expressions and the like, at the source or on the results: no residual has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import pyarrow as pa

from watersmeet.query.coercion import ColumnType, type_of
from watersmeet.query.expressions import (
    Abs,
    And,
    Arithmetic,
    Call,
    Column,
    Compare,
    Expression,
    InList,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
)
from watersmeet.query.types import is_floating


class Cost(IntEnum):
    """The cost of a predicate per row, by its most expensive part."""

    NUMBERS = 0
    """Values of a fixed width: numbers, times, booleans."""
    STRINGS = 1
    """Values of any length, and decimals, which are compared digit by digit."""
    ARRAY_CALL = 2
    """A registered predicate that takes whole arrays."""
    ROW_CALL = 3
    """A registered predicate that is called row by row."""


def evaluation_order(predicates: Sequence[Expression], column_type: ColumnType) -> list[int]:
    """The positions of the predicates, given in the order of the text, in the order in which to apply them."""
    costs = [cost_of(predicate, column_type) for predicate in predicates]
    is_safe = [cannot_raise(predicate, column_type) for predicate in predicates]
    waiting = list(range(len(predicates)))
    order = []
    while waiting:
        free = [i for i in waiting if is_safe[i] or i == waiting[0]]
        order.append(min(free, key=lambda i: (costs[i], i)))
        waiting.remove(order[-1])
    return order


def cost_of(expr: Expression, column_type: ColumnType) -> Cost:
    match expr:
        case Column():
            return _cost_of_values(column_type(expr))
        case Literal():
            return Cost.NUMBERS  # made once, not per row
        case Compare(_, left, right) | Arithmetic(_, left, right) | And(left, right) | Or(left, right):
            return max(cost_of(left, column_type), cost_of(right, column_type))
        case Negate(operand) | Abs(operand) | Not(operand) | IsNull(operand, _):
            return cost_of(operand, column_type)
        case InList(operand, options):
            return max(cost_of(each, column_type) for each in (operand, *options))
        case Call(_, _, function):
            return Cost.ARRAY_CALL if function.vectorized else Cost.ROW_CALL


def cannot_raise(expr: Expression, column_type: ColumnType) -> bool:
    """Whether evaluation succeeds for all values that the columns can have. In doubt it may raise.

    Types were checked before the query started, and comparisons cast to types that hold all values of both sides.
    """
    match expr:
        case Column() | Literal():
            return True
        case Compare(_, left, right) | And(left, right) | Or(left, right):
            return cannot_raise(left, column_type) and cannot_raise(right, column_type)
        case Not(operand) | IsNull(operand, _):
            return cannot_raise(operand, column_type)
        case InList(operand, options):
            return all(cannot_raise(each, column_type) for each in (operand, *options))
        case Arithmetic(op, left, right):
            # Integers and times overflow; a divisor may be zero.
            never_fails = op in ("+", "-", "*") and is_floating(type_of(expr, column_type))
            return never_fails and cannot_raise(left, column_type) and cannot_raise(right, column_type)
        case Negate(operand) | Abs(operand):
            return is_floating(type_of(expr, column_type)) and cannot_raise(operand, column_type)
        case Call():
            return False


def _cost_of_values(type_: pa.DataType) -> Cost:
    return Cost.NUMBERS if pa.types.is_primitive(type_) else Cost.STRINGS
