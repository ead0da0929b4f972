"""The accumulators of a group: which of them an aggregate needs, how they are made, and how two combine.

| aggregate         | accumulators                                                                                    |
|-------------------|-------------------------------------------------------------------------------------------------|
| COUNT(*)          | rows                                                                                            |
| COUNT(x)          | rows in which x is not NULL                                                                     |
| SUM(x), AVG(x)    | that count, and the sum: for BIGINT of its high and low halves (no sum of halves overflows),    |
|                   | for DECIMAL with all digits of Arrow                                                            |
| MIN(x), MAX(x)    | the least or greatest; of floats an integer in their order, NaN being the greatest as in Spark, |
|                   | of intervals their microseconds                                                                 |
| COUNT(DISTINCT x) | the list of distinct values                                                                     |
| with an interval  | as doubles: the sum, the sum of magnitudes, and a sketch (`engine/sketch.py`); for AVG also     |
|                   | those of the count                                                                              |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from watersmeet.query.aggregates import Aggregate
from watersmeet.query.logical import JoinQuery
from watersmeet.query.types import is_decimal, is_duration, is_floating

Combine: TypeAlias = Literal["sum", "min", "max", "unite", "add"]
Made: TypeAlias = Literal["rows", "known", "value", "high", "low", "ordered", "magnitude", "sketch", "known sketch"]
DIGITS_MAX = 38
SAFE_DIGITS = 28
"""With at most this many digits, no realistic sum of a DECIMAL has more than Arrow's 38."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A column of the store of groups: how it is made from the value of an argument, and how two combine.

    rows: 1.  known: 1 unless NULL.  value: as it is.  high, low: the halves of an integer.  ordered: a float as an
    integer of the same order.  magnitude: without its sign.  sketch: of values, or of known ones, with row ids.
    """

    made: Made
    argument: int | None
    combine: Combine
    type: pa.DataType


def engine_aggregates(query: JoinQuery) -> bool:
    """Whether the engine itself computes group keys and arguments; if not, Spark does, from joined rows."""
    values = () if query.aggregation is None else query.aggregation.values
    return not query.spark_residuals and all(value.expression is not None for value in values)


def needed(aggregate: Aggregate, value: int | None) -> list[Accumulator]:
    """The accumulators of an aggregate whose argument has this number."""
    argument = aggregate.argument
    if argument is None:
        return [Accumulator("rows", None, "sum", pa.int64())]
    count = Accumulator("known", value, "sum", pa.int64())
    match aggregate.function:
        case "count":
            return [count]
        case "sum" | "avg":
            return [count, *_sums(argument.type, value)]
        case "min" | "max":
            ordered = is_floating(argument.type)
            kind = pa.int64() if ordered or is_duration(argument.type) else argument.type
            return [Accumulator("ordered" if ordered else "value", value, aggregate.function, kind)]
        case "count_distinct":
            return [Accumulator("value", value, "unite", pa.list_(argument.type))]


def _sums(kind: pa.DataType, value: int | None) -> list[Accumulator]:
    if is_floating(kind):
        return [Accumulator("value", value, "sum", pa.float64())]
    if is_decimal(kind):
        wide = pa.decimal128(DIGITS_MAX, kind.scale)
        return [Accumulator("value", value, "sum", wide if kind.precision <= SAFE_DIGITS else _widest(kind))]
    if kind == pa.int64():
        return [Accumulator("high", value, "sum", kind), Accumulator("low", value, "sum", kind)]
    return [Accumulator("value", value, "sum", pa.int64())]


def _widest(kind: pa.DataType) -> pa.DataType:
    return pa.decimal256(76, kind.scale)
