"""The nouns of a join query: streams, key classes, filters, predicates and result columns.

All frozen values that refer to streams and columns by name, spelled as the streams declare them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watersmeet.query.expressions import Column

ColumnRef = Column


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that Spark computes at the source: Spark SQL over the stream's bare, backticked columns."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Stream:
    """An input. Rows more than `delay_us` behind the newest event time of their stream may be late.

    `derived` columns are the last ones of the schema; nothing that a user types can name them.
    """

    name: str
    schema: pa.Schema
    event_time: str | None = None
    delay_us: int = 0
    derived: tuple[Derived, ...] = ()
    is_delay_given: bool = False
    """Whether the delay was given, by the caller or by `withWatermark`."""


@dataclass(frozen=True, slots=True)
class Equality:
    """`left = right` between two plain columns."""

    left: Column
    right: Column


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Columns made equal by predicates: one per stream, in stream order (None: the stream has none), and the type all
    are cast to. A class has a column in two streams at least."""

    columns: tuple[str | None, ...]
    type: pa.DataType

    @property
    def streams(self) -> frozenset[int]:
        """The ordinals of the streams that have a column in the class."""
        return frozenset(i for i, column in enumerate(self.columns) if column is not None)


@dataclass(frozen=True, slots=True)
class Filter:
    """A predicate over one stream: Spark SQL text over the stream's bare, backticked columns, for Spark to evaluate."""

    stream: str
    sql: str


@dataclass(frozen=True, slots=True)
class SparkPredicate:
    """A predicate between streams that only Spark can evaluate: Spark SQL in which every column stands under its
    `internal_name`, in backticks. It is applied to the joined rows; all that the engine can evaluate is applied
    earlier, as soon as its columns are bound. (So statistics count results before these are applied.)"""

    sql: str
    refs: tuple[ColumnRef, ...]


@dataclass(frozen=True, slots=True)
class SelectItem:
    """A result column: either a plain column (`sql` is None), or Spark SQL in which every column stands under its
    `internal_name`, in backticks (`column` is None)."""

    name: str
    column: ColumnRef | None
    sql: str | None
    refs: tuple[ColumnRef, ...]


def internal_name(ref: ColumnRef) -> str:
    """The name of a column among joined rows."""
    return f"{ref.stream}_{ref.name}"
