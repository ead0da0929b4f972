"""Aggregates over a join: grouping keys, aggregates, and windows of the result time.

An aggregation lies between the joined rows and the select list. Its keys and arguments are *values* of joined rows. The
select list and HAVING are Spark SQL over one row per group, whose columns are named here:

    joined row ── values ──▶ group: `_k0` .. `_kn`, `_a0` .. `_am`, `window` ── having, select ──▶ result row

The *result time* of a joined row is the latest event time of its parts. A window of it is closed, and its groups are
final, when the watermark has passed its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from watersmeet.query.expressions import Column, Expression

AggregateName: TypeAlias = Literal["count", "sum", "min", "max", "avg", "count_distinct"]

WINDOW = "window"
"""The name of the struct (start, end) in the rows of groups of a windowed aggregation."""
RESULT_TIME = "result_time"
"""The name of the result time in queries."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value computed from a joined row.

    If the engine can compute it, `expression` is set. Otherwise Spark evaluates `sql`, over internal names.
    """

    sql: str
    refs: tuple[Column, ...]
    type: pa.DataType
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate; COUNT(*) has no argument."""

    function: AggregateName
    argument: Value | None
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class ResultWindow:
    """Windows [start, start + length) of the result time; a start is a multiple of `slide_us` since 1970."""

    length_us: int
    slide_us: int

    @property
    def is_tumbling(self) -> bool:
        return self.length_us == self.slide_us


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Grouping keys and aggregates. Without keys and window there is one group."""

    keys: tuple[Value, ...]
    aggregates: tuple[Aggregate, ...]
    window: ResultWindow | None = None
    having: str | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        """Keys and arguments."""
        return (*self.keys, *(a.argument for a in self.aggregates if a.argument is not None))


@dataclass(frozen=True, slots=True)
class Confidence:
    """The level of the intervals, how many rows each stream will have, and the aggregates that have one."""

    level: float
    totals: tuple[int, ...]
    aggregates: tuple[int, ...]
    row_ids: tuple[Column, ...]


def key_column(number: int) -> str:
    return f"_k{number}"


def aggregate_column(number: int) -> str:
    return f"_a{number}"
