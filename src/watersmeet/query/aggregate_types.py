"""Which aggregates take which types, and the type of the result: Spark's rules.

| aggregate             | argument        | type of the result                                   |
|-----------------------|-----------------|------------------------------------------------------|
| count, count_distinct | any, comparable | BIGINT                                               |
| sum                   | integer         | BIGINT                                               |
|                       | DECIMAL(p,s)    | DECIMAL(p + 10, s), within 38 digits                 |
|                       | float, double   | DOUBLE                                               |
| avg                   | DECIMAL(p,s)    | DECIMAL(p + 4, s + 4), each within 38                |
|                       | other numbers   | DOUBLE                                               |
| min, max              | comparable      | that of the argument                                 |

Spark would also read strings as numbers, and add intervals: both are refused here.
"""

from __future__ import annotations

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.query.aggregates import AggregateName
from watersmeet.query.types import DECIMAL_DIGITS_MAX, is_atomic, is_decimal, is_integer, is_numeric, spark_name


def aggregate_type(function: AggregateName, argument: pa.DataType) -> pa.DataType:
    """The result type of an aggregate; QueryError if it does not take such an argument."""
    match function:
        case "count":
            return pa.int64()
        case "sum" | "avg" if not is_numeric(argument):
            hint = f"it takes numbers: {function}(CAST(... AS DOUBLE)), say"
            raise _unfit(function, argument, hint)
        case "sum":
            return _sum_type(argument)
        case "avg":
            return _bounded(argument.precision + 4, argument.scale + 4) if is_decimal(argument) else pa.float64()
        case _ if not is_atomic(argument):
            raise _unfit(function, argument, "it takes values that can be compared: aggregate a part of it")
        case "count_distinct":
            return pa.int64()
        case _:
            return argument


def _sum_type(argument: pa.DataType) -> pa.DataType:
    if is_decimal(argument):
        return _bounded(argument.precision + 10, argument.scale)
    return pa.int64() if is_integer(argument) else pa.float64()


def _bounded(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, DECIMAL_DIGITS_MAX), min(scale, DECIMAL_DIGITS_MAX))


def _unfit(function: str, argument: pa.DataType, hint: str) -> QueryError:
    call = "count(DISTINCT ...)" if function == "count_distinct" else f"{function}(...)"
    return QueryError(f"there is no {call} of {spark_name(argument)}", hint=hint, error_class="TYPE_MISMATCH")
