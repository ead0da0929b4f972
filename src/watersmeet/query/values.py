"""Values of joined rows for aggregates and groups: computed by the engine where possible, else by Spark.

The engine computes an expression only if its type is Spark's, and never adds to a timestamp: Spark does that on the
wall clock of the session (see `query/coercion.py`). Without Spark, other expressions are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.query.aggregates import Value
from watersmeet.query.analysis import Analyse
from watersmeet.query.coercion import type_of
from watersmeet.query.expressions import Arithmetic, Column, Expression, walk
from watersmeet.query.names import field_of_column, type_of_column
from watersmeet.query.relations import Stream, internal_name
from watersmeet.query.residual import to_expression
from watersmeet.query.sqltext import SqlText, on_one_line, parse, read
from watersmeet.query.types import collation_of, is_atomic, is_duration, is_timestamp, spark_name


def value_of(text: str, streams: Sequence[Stream], analyse: Analyse | None) -> Value:
    """The value of a text; QueryError if neither the engine nor Spark can compute it."""
    sql = read(text, parse(text), streams)
    refs = tuple(dict.fromkeys(reference.column for _, _, _, reference in sorted(sql.columns, key=lambda c: c[1])))
    own = _by_engine(sql, streams)
    if own is not None and (isinstance(own[0], Column) or analyse is None):
        return Value(sql.with_names(internal_name), refs, own[1], own[0])
    if analyse is None:
        raise QueryError(
            f"only Spark can evaluate '{on_one_line(text)}'",
            hint="compute it as a column of the stream first, with withColumn",
            error_class="UNSUPPORTED_EXPRESSION",
        )
    fields = [field_of_column(streams, ref).with_name(internal_name(ref)) for ref in refs]
    type_ = analyse(sql.with_names(internal_name), fields)
    expression = own[0] if own is not None and own[1] == type_ else None
    return Value(sql.with_names(internal_name), refs, type_, expression)


def _by_engine(sql: SqlText, streams: Sequence[Stream]) -> tuple[Expression, pa.DataType] | None:
    def column_type(column: Column) -> pa.DataType:
        return type_of_column(streams, column)

    try:
        expression = to_expression(sql.tree, sql.reference, column_type)
        moved = [type_of(node, column_type) for node in walk(expression) if isinstance(node, Arithmetic)]
        if any(is_timestamp(type_) or is_duration(type_) for type_ in moved):
            return None
        return expression, type_of(expression, column_type)
    except QueryError:
        return None


def check_comparable(value: Value, streams: Sequence[Stream], use: str) -> None:
    """Raise QueryError unless the engine can compare values of this type for equality."""
    for column in value.refs:
        if (collation := collation_of(field_of_column(streams, column))) is not None:
            raise QueryError(
                f"column {column.stream}.{column.name} has collation {collation}, which {use} cannot use",
                hint="use a column with COLLATE UTF8_BINARY, made with withColumn",
                error_class="UNSUPPORTED_KEY_TYPE",
            )
    if not is_atomic(value.type):
        raise QueryError(
            f"{use} cannot use {spark_name(value.type)}",
            hint="use its parts, one by one",
            error_class="UNSUPPORTED_KEY_TYPE",
        )


def is_constant(text: str) -> bool:
    """Whether a text is a literal other than NULL."""
    return isinstance(parse(text), exp.Literal | exp.Boolean)
