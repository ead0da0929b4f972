"""Whole-array evaluation agrees with an obvious row-by-row evaluator, NULL, NaN and overflow included."""

import datetime
import math
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.engine.expressions import evaluate
from watersmeet.errors import WatersmeetError
from watersmeet.plan.residual_order import cannot_raise
from watersmeet.query.coercion import type_of
from watersmeet.query.expressions import (
    Abs,
    And,
    Arithmetic,
    Column,
    Compare,
    InList,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
    columns_of,
)

UTC = pa.timestamp("us", "UTC")
DURATION = pa.duration("us")
INTEGERS = (pa.int8(), pa.int32(), pa.int64())
FLOATS = (pa.float32(), pa.float64())
DECIMAL = pa.decimal128(5, 2)
DAY_US = 86_400_000_000


# --- the obvious evaluator -------------------------------------------------------------------------------------------
# A row is a dict from column to Python value: int for integers, times (microseconds) and dates (days).


class RowError(Exception):
    pass


def row_value(expr, row, types):
    def value(child):
        return row_value(child, row, types)

    match expr:
        case Column():
            return row[expr]
        case Literal(constant, _):
            return constant
        case Compare(op, left, right):
            return row_compare(op, value(left), value(right))
        case InList(operand, options):
            values = [value(member) for member in (operand, *options)]
            if any(type_of(member, types.__getitem__) in FLOATS for member in (operand, *options)):
                values = [None if member is None else float(member) for member in values]
            answers = [row_compare("=", values[0], option) for option in values[1:]]
            return True if True in answers else None if None in answers else False
        case IsNull(operand, negated):
            return (value(operand) is None) != negated
        case Not(operand):
            answer = value(operand)
            return None if answer is None else not answer
        case And(left, right):
            first = value(left)
            if first is False:
                return False
            second = value(right)
            return False if second is False else None if None in (first, second) else True
        case Or(left, right):
            first = value(left)
            if first is True:
                return True
            second = value(right)
            return True if second is True else None if None in (first, second) else False
        case Negate(operand) | Abs(operand):
            number = value(operand)
            if number is None:
                return None
            return fitted(-number if isinstance(expr, Negate) else abs(number), type_of(expr, types.__getitem__))
        case Arithmetic(op, left, right):
            first, second = value(left), value(right)
            sides = [type_of(side, types.__getitem__) for side in (left, right)]
            return row_arithmetic(op, first, second, sides, type_of(expr, types.__getitem__))


def row_compare(op, left, right):
    if op == "<=>" and (left is None or right is None):
        return left is None and right is None
    if left is None or right is None:
        return None
    left, right = comparable(left, right)
    return {
        "=": left == right,
        "<=>": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def comparable(left, right):
    if isinstance(left, str):
        return left.encode(), right.encode()
    if isinstance(left, float) or isinstance(right, float):
        return tuple((math.isnan(float(x)), 0.0 if math.isnan(float(x)) else float(x)) for x in (left, right))
    return left, right


def row_arithmetic(op, left, right, sides, result):
    if left is None or right is None:
        return None
    if result == pa.date32():
        left, right = (x // DAY_US if side == DURATION else x for x, side in zip((left, right), sides, strict=True))
    if result in FLOATS:
        left, right = float(left), float(right)
    if op in "/%" and right == 0:
        raise RowError
    with np.errstate(all="ignore"):
        if result == pa.float32():
            left, right = np.float32(left), np.float32(right)
        elif result == pa.float64():
            left, right = np.float64(left), np.float64(right)
        answer = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "/": lambda: left / right,
            "%": lambda: (
                np.fmod(left, right) if result in FLOATS else int(math.copysign(1, left)) * (abs(left) % abs(right))
            ),
        }[op]()
    if sides == [pa.date32(), pa.date32()]:
        answer *= DAY_US
    return fitted(answer, result)


def fitted(answer, type_):
    if type_ in FLOATS:
        return float(answer)
    if isinstance(answer, int):
        bits = (32 if type_ == pa.date32() else type_.bit_width) - 1
        if not -(2**bits) <= answer < 2**bits:
            raise RowError
    return answer


# --- random predicates over random columns ---------------------------------------------------------------------------


def integers(type_):
    bits = type_.bit_width - 1
    return st.one_of(st.integers(-3, 3), st.sampled_from([-(2**bits), 2**bits - 1]))


VALUES = {
    **{type_: integers(type_) for type_ in INTEGERS},
    **{
        type_: st.sampled_from([math.nan, 0.0, -0.0, 1.5, -2.0, math.inf, -math.inf]) | st.floats(width=type_.bit_width)
        for type_ in FLOATS
    },
    DECIMAL: st.integers(-99999, 99999).map(lambda n: Decimal(n).scaleb(-2)) | st.integers(-3, 3).map(Decimal),
    pa.string(): st.sampled_from(["", "a", "b", "é", "\uffff", "\U0001f600"]),
    pa.bool_(): st.booleans(),
    UTC: st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1]),
    DURATION: st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1, DAY_US]),
    pa.date32(): st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1]),
}
TYPES = {Column("ab"[i % 2], f"{type_}"): type_ for i, type_ in enumerate(VALUES)}
TYPES |= {Column("ba"[i % 2], f"{type_}'"): type_ for i, type_ in enumerate(VALUES)}
NUMERIC = (*INTEGERS, *FLOATS, DECIMAL)
TEMPORAL_SUMS = (("-", UTC, UTC), ("-", pa.date32(), pa.date32()), ("+", DURATION, DURATION), ("-", DURATION, DURATION))


def leaves(*kinds):
    columns = st.sampled_from([column for column, type_ in TYPES.items() if type_ in kinds])
    constants = st.sampled_from(kinds).flatmap(lambda kind: VALUES[kind].map(lambda value: Literal(value, kind)))
    return columns | columns | constants


def sums(operands):
    ops = st.sampled_from("+-*/%")
    return st.builds(Arithmetic, ops, operands, operands).filter(has_type)


def has_type(expr):
    try:
        type_of(expr, TYPES.__getitem__)
    except WatersmeetError:
        return False
    return True


def arithmetic(kinds):
    return st.recursive(
        leaves(*kinds),
        lambda inner: st.one_of(sums(inner), st.builds(Negate, inner), st.builds(Abs, inner)),
        max_leaves=3,
    )


NUMBERS = st.one_of(arithmetic(INTEGERS), arithmetic(FLOATS), arithmetic(NUMERIC))
DURATIONS = st.one_of(
    leaves(DURATION),
    st.sampled_from(TEMPORAL_SUMS).flatmap(lambda s: st.builds(Arithmetic, st.just(s[0]), leaves(s[1]), leaves(s[2]))),
    leaves(DURATION).map(Abs),
)
TIMES = leaves(UTC) | st.builds(Arithmetic, st.sampled_from("+-"), leaves(UTC), leaves(DURATION))
DAYS = st.integers(-3, 3).map(lambda n: Literal(n * DAY_US, DURATION)) | leaves(pa.int8(), pa.int32())
DATES = leaves(pa.date32()) | st.builds(Arithmetic, st.sampled_from("+-"), leaves(pa.date32()), DAYS)
FAMILIES = (NUMBERS, leaves(pa.string()), leaves(pa.bool_()), DURATIONS, TIMES, DATES)
OPS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


def atoms_over(operands):
    nullable = operands | st.just(Literal(None, pa.null()))
    return st.one_of(
        st.builds(Compare, OPS, operands, operands),
        st.builds(Compare, OPS, operands, nullable),
        st.builds(InList, operands, st.lists(nullable, min_size=1, max_size=3).map(tuple)),
        st.builds(IsNull, operands, st.booleans()),
    )


PREDICATES = st.recursive(
    st.one_of(*(atoms_over(family) for family in FAMILIES), leaves(pa.bool_())),
    lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)),
    max_leaves=4,
).filter(lambda expr: columns_of(expr) and has_type(expr))


@st.composite
def cases(draw):
    """A predicate, and all combinations of some values of its columns."""
    predicate = draw(PREDICATES)
    columns = {
        column: draw(st.lists(st.none() | VALUES[TYPES[column]], max_size=3)) for column in columns_of(predicate)
    }
    return predicate, [dict(zip(columns, row, strict=True)) for row in product(*columns.values())]


@settings(max_examples=600, deadline=None)
@given(cases())
def test_evaluation_agrees_with_rows(case):
    predicate, rows = case
    expected = []
    for row in rows:
        try:
            expected.append((row, row_value(predicate, row, TYPES) is True))
        except RowError:
            assert not cannot_raise(predicate, TYPES.__getitem__)
            with pytest.raises(WatersmeetError):
                evaluated(predicate, [row])
    if len(expected) < len(rows):
        with pytest.raises(WatersmeetError):
            evaluated(predicate, rows)
    answer = evaluated(predicate, [row for row, _ in expected])
    assert answer.dtype == np.bool_
    assert answer.tolist() == [holds for _, holds in expected]


def evaluated(predicate, rows):
    arrays = {column: pa.array([row[column] for row in rows], TYPES[column]) for column in columns_of(predicate)}
    return evaluate(predicate, arrays.__getitem__, len(rows))


# --- the cases worth a name ------------------------------------------------------------------------------------------

X, Y = Column("a", "x"), Column("b", "y")


def answers(predicate, x, y):
    return evaluate(predicate, {X: x, Y: y}.__getitem__, len(x)).tolist()


def both(op, left, right, type_, other=None):
    return answers(Compare(op, X, Y), pa.array([left], type_), pa.array([right], other or type_)) == [True]


def test_nan_equals_nan_and_is_the_greatest():
    assert both("=", math.nan, math.nan, pa.float64())
    assert both(">", math.nan, math.inf, pa.float64())
    assert both(">=", math.nan, math.nan, pa.float32(), pa.float64())
    assert not both("<", math.nan, math.nan, pa.float64())
    assert both("=", -0.0, 0.0, pa.float64())
    assert not both("<", -0.0, 0.0, pa.float64())


def test_mixed_numbers_compare_as_in_spark():
    assert both("=", 2**53 + 1, float(2**53), pa.int64(), pa.float64())
    assert not both("=", 2**53 + 1, 2**53, pa.int64())
    assert both("<", 2**63 - 1, Decimal("9223372036854775807.5"), pa.int64(), pa.decimal128(38, 10))
    assert both("<", 1, Decimal("1.000000000000000000000000000001"), pa.int64(), pa.decimal128(38, 30))


def test_decimals_become_the_nearest_double():
    assert both("=", Decimal("-8.616980150214577"), -8.616980150214577, pa.decimal128(16, 15), pa.float64())


def test_list_is_compared_in_one_type():
    # Next to a double, the integers of the list are doubles too, and these two are one.
    among = InList(X, (Y, Literal(2**53, pa.int64())))
    assert answers(among, pa.array([2**53 + 1]), pa.array([0.5])) == [True]
    assert answers(among, pa.array([2**53 + 1]), pa.array([0])) == [False]


def test_remainder_has_the_sign_of_the_dividend():
    remainder = Compare("=", Arithmetic("%", X, Literal(3, pa.int32())), Y)
    assert answers(remainder, pa.array([-7, 7, None], pa.int32()), pa.array([-1, 1, 1])) == [True, True, False]
    assert answers(remainder, pa.array([-7.5, 7.5]), pa.array([-1.5, 1.5])) == [True, True]


def test_strings_compare_by_bytes():
    assert both("<", "\uffff", "\U0001f600", pa.string())
    assert both("=", "x", "x", pa.string(), pa.large_string())
    assert both("<", b"\x01", b"\xff", pa.binary())


def test_null_is_no_result_but_negation_does_not_make_it_one():
    null = pa.array([None], pa.int32())
    assert answers(Compare("=", X, Y), null, null) == [False]
    assert answers(Not(Compare("=", X, Y)), null, null) == [False]
    assert answers(Compare("<=>", X, Y), null, null) == [True]


def test_timestamps_of_different_zones_are_instants():
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    assert both("=", noon, noon, UTC, pa.timestamp("us", "Europe/Oslo"))


def test_interval_between_timestamps():
    near = Compare("<", Abs(Arithmetic("-", X, Y)), Literal(5, DURATION))
    assert answers(near, pa.array([0, 0, 9], UTC), pa.array([4, 5, None], UTC)) == [True, False, False]


@pytest.mark.parametrize(
    ("predicate", "type_", "value", "message"),
    [
        (
            Compare(">", Arithmetic("+", X, Y), Y),
            pa.int8(),
            127,
            "[ARITHMETIC_OVERFLOW] overflow in a.x + b.y",
        ),
        (
            Compare(">", Arithmetic("*", X, Y), Y),
            pa.int64(),
            2**62,
            "[ARITHMETIC_OVERFLOW] overflow in a.x * b.y",
        ),
        (Compare(">", Negate(X), Y), pa.int32(), -(2**31), "[ARITHMETIC_OVERFLOW] overflow in - a.x"),
        (Compare(">", Abs(X), Y), pa.int32(), -(2**31), "[ARITHMETIC_OVERFLOW] overflow in abs(a.x)"),
        (
            Compare(">", Arithmetic("/", X, Y), Y),
            pa.int32(),
            0,
            "[DIVIDE_BY_ZERO] division by zero in a join condition",
        ),
        (
            Compare(">", Arithmetic("%", X, Y), Y),
            pa.int32(),
            0,
            "[REMAINDER_BY_ZERO] remainder by zero in a join condition",
        ),
    ],
)
def test_arithmetic_fails_as_in_ansi_mode(predicate, type_, value, message):
    array = pa.array([value], type_)
    with pytest.raises(WatersmeetError) as caught:
        answers(predicate, array, array)
    assert str(caught.value).startswith(message + ". ")


def test_a_guard_protects_what_follows():
    zero = Literal(0, pa.int32())
    ratio = Compare(">", Arithmetic("/", X, Y), Literal(2, pa.int32()))
    x, y = pa.array([9, 9, 9], pa.int32()), pa.array([0, 3, None], pa.int32())
    assert answers(And(Compare("<>", Y, zero), ratio), x, y) == [False, True, False]
    assert answers(Or(Compare("=", Y, zero), ratio), x, y) == [True, True, False]
