"""Filters as expressions of the engine: a filter is Spark's, but rows that are stored already are tested by the engine
when the query changes."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.query.coercion import check_predicate
from watersmeet.query.expressions import Column, Expression
from watersmeet.query.logical import JoinQuery
from watersmeet.query.names import find_stream, type_of_column
from watersmeet.query.relations import Filter
from watersmeet.query.residual import to_expression
from watersmeet.query.sqltext import parse, read


def filter_expression(query: JoinQuery, wanted: Filter) -> Expression | None:
    """The filter in the engine's language; None if only Spark can evaluate it."""
    streams = [find_stream(query.streams, wanted.stream)]

    def column_type(column: Column) -> pa.DataType:
        return type_of_column(streams, column)

    try:
        sql = read(wanted.sql, parse(wanted.sql, into=exp.Condition), streams)
        found = to_expression(sql.tree, sql.reference, column_type)
        check_predicate(found, column_type)
    except QueryError:
        return None
    return found
