"""The types of residual predicates: what may be compared or added, and in which type that happens.

The rules are Spark's in ANSI mode, minus those that depend on a session time zone (dates against timestamps, TIMESTAMP
against TIMESTAMP_NTZ) or that guess (strings against numbers): those are refused before the query starts.
The evaluator calls the same functions, so the checked types are those that run.

| operation                          | type of the result                                              |
|------------------------------------|-----------------------------------------------------------------|
| integer op integer                 | the wider; overflow is an error                                 |
| decimal op decimal or integer      | Spark's exact decimal, refused beyond 38 digits; no `/`, no `%` |
| float or double op number          | double (two floats: float); `/` always gives double             |
| timestamp - timestamp, date - date | interval                                                        |
| timestamp +- interval              | timestamp; a day is 24 hours                                    |
| date +- whole days or integer      | date                                                            |

Known limitation: Spark adds days to a TIMESTAMP, and subtracts two, on the wall clock of the session's zone. Here time
is elapsed time. The two differ only across a change to or from daylight saving time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.query.as_sql import to_sql
from watersmeet.query.expressions import (
    Abs,
    And,
    Arithmetic,
    ArithmeticOp,
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
from watersmeet.query.types import (
    DECIMAL_DIGITS_MAX,
    as_decimal,
    common_key_type,
    is_atomic,
    is_decimal,
    is_duration,
    is_floating,
    is_integer,
    is_numeric,
    is_timestamp,
    spark_name,
    wider_decimal,
)

DAY_US = 86_400_000_000
CAST_HINT = "cast one of them in the DataFrame first, with withColumn"

ColumnType = Callable[[Column], pa.DataType]


def comparison_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Like `common_key_type`, but also for NULL, and exact for decimals of any two precisions."""
    if left == pa.null() or right == pa.null():
        other = right if left == pa.null() else left
        return other if other == pa.null() or is_atomic(other) or is_decimal(other) else None
    common = common_key_type(left, right)
    if common is None and all(is_decimal(type_) or is_integer(type_) for type_ in (left, right)):
        return pa.decimal256(*wider_decimal(left, right))
    return common


def list_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type in which `x IN (...)` compares: Spark casts the whole list to one, so one double makes all doubles."""
    known = sorted((type_ for type_ in types if type_ != pa.null()), key=lambda type_: not is_floating(type_))
    common = pa.null()
    for type_ in known:
        common = comparison_type(common, type_)
        if common is None:
            return None
    return common


def arithmetic_type(op: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of `left op right`, or None if it is refused."""
    if is_numeric(left) and is_numeric(right):
        return _numeric_type(op, left, right)
    return _temporal_type(op, left, right)


def _numeric_type(op: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if is_floating(left) or is_floating(right) or (is_integer(left) and is_integer(right)):
        return pa.float64() if op == "/" else common_key_type(left, right)
    (left_precision, left_scale), (right_precision, right_scale) = as_decimal(left), as_decimal(right)
    match op:
        case "+" | "-":
            precision, scale = wider_decimal(left, right)
            precision += 1
        case "*":
            precision, scale = left_precision + right_precision + 1, left_scale + right_scale
        case _:
            return None
    return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None


def _temporal_type(op: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    date = pa.date32()
    match op:
        case "-" if left == right == date or (is_timestamp(left) and common_key_type(left, right) is not None):
            return pa.duration("us")
        case "+" if is_duration(left) and (is_timestamp(right) or right == date):
            return right
        case "+" if right == date and _counts_days(left):
            return right
        case "+" | "-" if is_duration(right) and (is_timestamp(left) or is_duration(left) or left == date):
            return left
        case "+" | "-" if left == date and _counts_days(right):
            return left
    return None


def _counts_days(type_: pa.DataType) -> bool:
    return is_integer(type_) and type_ != pa.int64()


def type_of(expr: Expression, column_type: ColumnType) -> pa.DataType:
    """The type of an expression; QueryError if it has none."""
    match expr:
        case Column():
            return column_type(expr)
        case Literal(_, type_):
            return type_
        case Compare(_, left, right):
            return _compared(left, right, column_type)
        case InList(operand, options):
            for option in options:
                _compared(operand, option, column_type)
            return pa.bool_()
        case Arithmetic(op, left, right):
            return _computed(op, left, right, column_type)
        case Negate(operand) | Abs(operand):
            type_ = type_of(operand, column_type)
            if not (is_numeric(type_) or is_duration(type_)):
                raise _mismatch(f"{to_sql(operand)} is {spark_name(type_)}, not a number")
            return type_
        case And(left, right) | Or(left, right):
            _check_condition(left, column_type)
            _check_condition(right, column_type)
            return pa.bool_()
        case Not(operand):
            _check_condition(operand, column_type)
            return pa.bool_()
        case IsNull(operand, _):
            type_of(operand, column_type)
            return pa.bool_()
        case Call(_, operands):
            for operand in operands:
                type_of(operand, column_type)
            return pa.bool_()


def check_predicate(expr: Expression, column_type: ColumnType) -> None:
    """Raise QueryError unless the expression is a condition without type errors."""
    _check_condition(expr, column_type)


def _check_condition(expr: Expression, column_type: ColumnType) -> None:
    type_ = type_of(expr, column_type)
    if type_ not in (pa.bool_(), pa.null()):
        raise _mismatch(f"{to_sql(expr)} is {spark_name(type_)}, not a condition", "compare it with something")


def _compared(left: Expression, right: Expression, column_type: ColumnType) -> pa.DataType:
    left_type, right_type = type_of(left, column_type), type_of(right, column_type)
    if comparison_type(left_type, right_type) is None:
        sides = (f"{to_sql(left)} ({spark_name(left_type)})", f"{to_sql(right)} ({spark_name(right_type)})")
        raise _mismatch(f"cannot compare {sides[0]} with {sides[1]}")
    return pa.bool_()


def _computed(op: ArithmeticOp, left: Expression, right: Expression, column_type: ColumnType) -> pa.DataType:
    left_type, right_type = type_of(left, column_type), type_of(right, column_type)
    result = arithmetic_type(op, left_type, right_type)
    types = f"({spark_name(left_type)} {op} {spark_name(right_type)})"
    what = f"cannot compute {to_sql(Arithmetic(op, left, right))} {types}"
    if result is None and is_numeric(left_type) and is_numeric(right_type):
        raise _mismatch(what, "between streams a decimal result must be exact and fit 38 digits: cast to DOUBLE first")
    if result is None:
        raise _mismatch(what)
    if result == pa.date32() and not all(_whole_days(side, column_type) for side in (left, right)):
        raise _mismatch(what, "a date moves by whole days: cast it to TIMESTAMP in the DataFrame first")
    return result


def _whole_days(expr: Expression, column_type: ColumnType) -> bool:
    if not is_duration(type_of(expr, column_type)):
        return True
    return isinstance(expr, Literal) and expr.value % DAY_US == 0


def _mismatch(message: str, hint: str = CAST_HINT) -> QueryError:
    return QueryError(message, hint=hint, error_class="TYPE_MISMATCH")
