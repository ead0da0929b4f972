"""Residual predicates on whole Arrow arrays, with Spark's semantics.

NULL follows SQL's three-valued logic inside and means "no result" at the top. NaN equals NaN and is greater than every
number, -0.0 equals 0.0, strings compare by their UTF-8 bytes, integer overflow and division by zero are errors (as in
Spark's ANSI mode).

If the right side of AND or OR could fail, it is evaluated only for rows that the left side does not decide. So
`b.n <> 0 AND a.n / b.n > 2` is as safe as in Spark. Any registered predicate could fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.calls import call
from watersmeet.errors import WatersmeetError
from watersmeet.query.as_sql import to_sql
from watersmeet.query.coercion import DAY_US, arithmetic_type, comparison_type, list_type
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
    walk,
)
from watersmeet.query.types import as_decimal, is_decimal, is_duration, is_floating, is_integer

Columns = Callable[[Column], pa.Array]
Value = Any  # a pa.Array, or a pa.Scalar if it depends on literals only

_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}


def evaluate(expr: Expression, column: Columns, rows: int) -> npt.NDArray[np.bool_]:
    """True for each row that satisfies the predicate. Each column is requested at most once, and only if its values are
    needed."""
    if rows == 0:
        return np.zeros(0, dtype=np.bool_)  # no row, no error either
    value = _as_condition(_value(expr, _Rows(column, rows)))
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, rows)
    return np.asarray(value.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def compute(expr: Expression, column: Columns, rows: int) -> pa.Array:
    """The values of an expression, one per row; columns are requested as in `evaluate`."""
    if isinstance(expr, Column):
        return column(expr)
    value = _value(expr, _Rows(column, rows))
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


class _Rows:
    """A number of rows and their columns. A column is requested when it is first read, and then kept."""

    __slots__ = ("_column", "_known", "count")

    def __init__(self, column: Columns, count: int) -> None:
        self._column, self.count = column, count
        self._known: dict[Column, pa.Array] = {}

    def column(self, ref: Column) -> pa.Array:
        found = self._known.get(ref)
        if found is None:
            found = self._known[ref] = self._column(ref)
        return found

    def where(self, mask: pa.BooleanArray) -> _Rows:
        return _Rows(lambda ref: self.column(ref).filter(mask), pc.sum(mask).as_py())


def _value(expr: Expression, rows: _Rows) -> Value:
    match expr:
        case Column():
            return rows.column(expr)
        case Literal(value, type_):
            return pa.scalar(value, type_)
        case Compare(op, left, right):
            return _compare(op, _value(left, rows), _value(right, rows))
        case InList(operand, options):
            return _in_list(_value(operand, rows), [_value(option, rows) for option in options])
        case IsNull(operand, negated):
            value = _value(operand, rows)
            return pc.is_valid(value) if negated else pc.is_null(value)
        case Not(operand):
            return pc.invert(_as_condition(_value(operand, rows)))
        case And(left, right):
            known = _as_condition(_value(left, rows))
            return pc.and_kleene(known, _where_open(known, False, right, rows))
        case Or(left, right):
            known = _as_condition(_value(left, rows))
            return pc.or_kleene(known, _where_open(known, True, right, rows))
        case Arithmetic(op, left, right):
            return _or_overflow(expr, lambda: _arithmetic(op, _value(left, rows), _value(right, rows)))
        case Negate(operand):
            return _or_overflow(expr, lambda: _on_numbers(pc.negate_checked, _value(operand, rows)))
        case Abs(operand):
            return _or_overflow(expr, lambda: _on_numbers(pc.abs_checked, _value(operand, rows)))
        case Call(_, operands, function):
            arguments = [_value(operand, rows) for operand in operands]
            if all(isinstance(argument, pa.Scalar) for argument in arguments):
                return call(function, arguments, 1)[0]
            return call(function, arguments, rows.count)


def _as_condition(value: Value) -> Value:
    return _cast(value, pa.bool_())


def _where_open(known: Value, decisive: bool, expr: Expression, rows: _Rows) -> Value:
    """A condition for the rows that `known` does not decide; for the others NULL, which does not matter."""
    undecided = pc.fill_null(pc.not_equal(known, decisive), True)
    if isinstance(undecided, pa.Scalar):
        return _as_condition(_value(expr, rows)) if undecided.as_py() else pa.scalar(None, pa.bool_())
    if not any(isinstance(node, Arithmetic | Negate | Abs | Call) for node in walk(expr)):
        return _as_condition(_value(expr, rows))
    if not pc.any(undecided).as_py():
        return pa.scalar(None, pa.bool_())
    value = _as_condition(_value(expr, rows.where(undecided)))
    if isinstance(value, pa.Scalar):
        return value
    mask = undecided.to_numpy(zero_copy_only=False)
    return value.take(pa.array(np.cumsum(mask) - 1, mask=~mask))


def _compare(op: str, left: Value, right: Value) -> Value:
    type_ = comparison_type(left.type, right.type)
    if type_ is None:
        raise TypeError(f"{left.type} and {right.type} cannot be compared")
    left, right = _cast(left, type_), _cast(right, type_)
    match op:
        case "=":
            return _equal(left, right)
        case "<>":
            return pc.invert(_equal(left, right))
        case "<":
            return _less(left, right)
        case ">":
            return _less(right, left)
        case "<=":
            return pc.invert(_less(right, left))
        case ">=":
            return pc.invert(_less(left, right))
        case "<=>":
            return pc.coalesce(_equal(left, right), pc.and_(pc.is_null(left), pc.is_null(right)))
        case _:
            raise ValueError(f"unknown comparison {op}")


def _in_list(tested: Value, options: Sequence[Value]) -> Value:
    type_ = list_type(value.type for value in (tested, *options))
    if type_ is None:
        raise TypeError(f"{tested.type} cannot be compared with a list")
    tested, found = _cast(tested, type_), pa.scalar(False)
    for option in options:
        found = pc.or_kleene(found, _compare("=", tested, _cast(option, type_)))
    return found


def _equal(left: Value, right: Value) -> Value:
    equal = pc.equal(left, right)
    return pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right))) if is_floating(left.type) else equal


def _less(left: Value, right: Value) -> Value:
    less = pc.less(left, right)
    if not is_floating(left.type):
        return less
    return pc.or_(less, pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))


def _cast(value: Value, type_: pa.DataType) -> Value:
    if value.type == type_:
        return value
    if value.type == pa.null():
        return pa.scalar(None, type_) if isinstance(value, pa.Scalar) else pa.nulls(len(value), type_)
    if value.type in (pa.large_string(), pa.large_binary()):
        return value  # Arrow compares both widths of offsets
    if is_decimal(value.type) and is_floating(type_):
        # Arrow's own cast is not rounded correctly; parsing the digits is.
        return value.cast(pa.string()).cast(type_)
    return value.cast(type_, safe=not is_floating(type_))


def _arithmetic(op: str, left: Value, right: Value) -> Value:
    type_ = arithmetic_type(op, left.type, right.type)
    if type_ is None:
        raise TypeError(f"cannot compute {left.type} {op} {right.type}")
    if is_decimal(type_):
        return _CHECKED[op](_to_decimal(left), _to_decimal(right))
    if not (is_integer(type_) or is_floating(type_)):
        return _temporal(op, left, right, type_)
    left, right = _cast(left, type_), _cast(right, type_)
    match op:
        case "/":
            _refuse_zero(left, right, "division")
            return pc.divide(left, right)
        case "%":
            _refuse_zero(left, right, "remainder")
            return _remainder(left, right, type_)
        case _:
            return _CHECKED[op](left, right)


def _to_decimal(value: Value) -> Value:
    return value if is_decimal(value.type) else value.cast(pa.decimal128(*as_decimal(value.type)))


def _temporal(op: str, left: Value, right: Value, type_: pa.DataType) -> Value:
    """Dates count in days, everything else in microseconds."""
    in_days = type_ == pa.date32()
    result = _CHECKED[op](_to_count(left, in_days), _to_count(right, in_days))
    if left.type == right.type == pa.date32():
        result = pc.multiply_checked(result, DAY_US)
    return result.cast(pa.int32()).cast(type_) if in_days else result.cast(type_)


def _to_count(value: Value, in_days: bool) -> Value:
    if value.type == pa.date32():
        return value.cast(pa.int32()).cast(pa.int64())
    count = value.cast(pa.int64())
    return pc.divide(count, DAY_US) if in_days and is_duration(value.type) else count


def _refuse_zero(left: Value, right: Value, what: str) -> None:
    """As in Spark: an error if a divisor is zero, unless its dividend is NULL."""
    at_fault = pc.and_kleene(pc.equal(right, pa.scalar(0).cast(right.type)), pc.is_valid(left))
    if at_fault.as_py() if isinstance(at_fault, pa.Scalar) else pc.any(at_fault).as_py():
        raise WatersmeetError(
            f"{what} by zero in a join condition",
            hint="guard it, as in 'b.n <> 0 AND a.n / b.n > 2'",
            error_class=f"{'DIVIDE' if what == 'division' else 'REMAINDER'}_BY_ZERO",
        )


def _remainder(left: Value, right: Value, type_: pa.DataType) -> Value:
    """Truncated, with the sign of the dividend, as in Java."""
    valid = pc.and_(pc.is_valid(left), pc.is_valid(right))
    with np.errstate(all="ignore"):  # where the dividend is NULL the divisor may be zero
        result = np.fmod(_numbers(left), _numbers(right))
    if isinstance(valid, pa.Scalar):
        return pa.scalar(result.item() if valid.as_py() else None, type_)
    return pa.array(result, type_, mask=~valid.to_numpy(zero_copy_only=False))


def _numbers(value: Value) -> npt.NDArray[Any]:
    """Values with 1 for NULL: as a dividend or divisor it causes no error."""
    if isinstance(value, pa.Scalar):
        return np.asarray(1 if value.as_py() is None else value.as_py(), dtype=value.type.to_pandas_dtype())
    return np.asarray(pc.fill_null(value, pa.scalar(1).cast(value.type)).to_numpy(zero_copy_only=False))


def _on_numbers(function: Callable[[Value], Value], value: Value) -> Value:
    return function(value.cast(pa.int64())).cast(value.type) if is_duration(value.type) else function(value)


def _or_overflow(expr: Expression, compute: Callable[[], Value]) -> Value:
    try:
        return compute()
    except pa.ArrowInvalid as error:
        raise WatersmeetError(
            f"overflow in {to_sql(expr)}",
            hint="cast its columns to a wider type in the DataFrame first",
            error_class="ARITHMETIC_OVERFLOW",
        ) from error
