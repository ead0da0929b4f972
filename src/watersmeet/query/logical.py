"""The join query, checked as a whole: streams, key, windows, filters, residual predicates, aggregates, result columns.

`build_query` finds every mistake in a query before anything runs, and shows it in the text. Its result needs no further
checks: names are spelled as the streams declare them, and every predicate has exactly one place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from watersmeet.errors import QueryError
from watersmeet.query.aggregates import Aggregation, Confidence
from watersmeet.query.analysis import Analyse
from watersmeet.query.expressions import Column, Expression, columns_of
from watersmeet.query.fragments import Fragment
from watersmeet.query.functions import calls_aggregate
from watersmeet.query.grouping import aggregate_query
from watersmeet.query.implied_windows import implied_windows
from watersmeet.query.joingraph import join_keys
from watersmeet.query.names import field_of_column
from watersmeet.query.placing import Placement
from watersmeet.query.registered import RegisteredFunction
from watersmeet.query.relations import (
    ColumnRef,
    Filter,
    KeyClass,
    SelectItem,
    SparkPredicate,
    Stream,
    internal_name,
)
from watersmeet.query.selection import check_internal_names, select_items
from watersmeet.query.sqltext import Condition, on_one_line, parse_condition, parser_errors
from watersmeet.query.types import collation_of
from watersmeet.query.windows import check_event_times, event_time_of, windows_of

__all__ = [
    "ColumnRef",
    "Filter",
    "JoinQuery",
    "KeyClass",
    "SelectItem",
    "SparkPredicate",
    "Stream",
    "build_query",
    "internal_name",
]

Texts: TypeAlias = Sequence[str | Fragment]

STREAMS_MAX = 8
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """A checked query. Streams are sorted by name; `windows_us` and the columns of a key class follow that order.

    With an `aggregation`, the select list is Spark SQL over the columns of groups (see `query/aggregates.py`).
    """

    streams: tuple[Stream, ...]
    classes: tuple[KeyClass, ...]
    filters: tuple[Filter, ...]
    residuals: tuple[Expression, ...]
    windows_us: tuple[int | None, ...]
    select: tuple[SelectItem, ...]
    aggregation: Aggregation | None = None
    spark_residuals: tuple[SparkPredicate, ...] = ()
    """Predicates between streams that Spark applies to the joined rows, before the select list or any aggregation."""
    confidence: Confidence | None = None
    """For running aggregates with intervals, see `query/confidence.py`."""
    has_implied_windows: bool = False
    """Whether the windows follow from the condition, see `query/implied_windows.py`."""

    @property
    def read_columns(self) -> tuple[ColumnRef, ...]:
        """The columns of joined rows that anything after the join reads, each once."""
        readers = self.select if self.aggregation is None else self.aggregation.values
        row_ids = () if self.confidence is None else self.confidence.row_ids
        read = (ref for reader in (*readers, *self.spark_residuals) for ref in reader.refs)
        return tuple(dict.fromkeys((*read, *row_ids)))

    @property
    def windowed(self) -> bool:
        return any(window is not None for window in self.windows_us)


def build_query(
    streams: Sequence[Stream],
    *,
    where: Texts,
    within: str | None,
    windows: Mapping[str, str],
    select: Texts,
    group_by: Texts = (),
    agg: Texts = (),
    having: Texts = (),
    analyse: Analyse | None = None,
    functions: Mapping[str, RegisteredFunction] | None = None,
) -> JoinQuery:
    """Check and resolve a query. `where` texts are joined by AND, and so are `having` texts; an empty `select` selects
    all columns of all streams, in the order given; with `agg` it selects the columns of `group_by` and `agg`. `analyse`
    gives the types of expressions that Spark evaluates; `functions` are the registered predicates, by name in lower
    case. Raises QueryError (OptionError for a duration that cannot be read).
    """
    _check_streams(streams)
    ordered = tuple(sorted((_with_declared_event_time(stream) for stream in streams), key=lambda stream: stream.name))
    windows_us = windows_of(ordered, within, windows)
    if any(window is not None for window in windows_us):
        check_event_times(ordered)
    placement = Placement(ordered, analyse, functions or {})
    conditions = [_condition(Fragment.of(text), ordered, placement, functions or {}) for text in where]
    equalities = [equality for condition in conditions for equality in condition.equalities]
    given = [item for condition in conditions for item in condition.residuals]
    left_to_spark = tuple(dict.fromkeys(item for condition in conditions for item in condition.spark))
    with placement.users_expressions():
        keys = join_keys(placement.streams, equalities, given, left_to_spark)
    filters = (*(item for condition in conditions for item in condition.filters), *keys.filters)
    residuals = (*given, *keys.residuals)
    if has_implied_windows := within is None and not windows:
        windows_us = implied_windows(placement.streams, residuals, keys.classes)
    output = [Fragment.of(text) for text in _select_list(select, group_by, agg, having)]
    grouping = [Fragment.of(text) for text in group_by]
    aggregation = None
    if agg or grouping or having or any(_calls_aggregate(fragment) for fragment in output):
        aggregation, items = aggregate_query(
            ordered,
            output,
            grouping,
            [Fragment.of(text) for text in having],
            windowed=any(window is not None for window in windows_us),
            analyse=analyse,
        )
    else:
        items = select_items(streams, output, analyse)
    _refuse_collations(placement.streams, [column for residual in keys.residuals for column in columns_of(residual)])
    selected = [column for item in items for column in item.refs]
    check_internal_names([*selected, *(column for predicate in left_to_spark for column in predicate.refs)])
    return JoinQuery(
        streams=placement.streams,
        classes=keys.classes,
        filters=tuple(dict.fromkeys(filters)),
        residuals=tuple(dict.fromkeys(residuals)),
        windows_us=windows_us,
        select=items,
        aggregation=aggregation,
        spark_residuals=left_to_spark,
        has_implied_windows=has_implied_windows and any(window is not None for window in windows_us),
    )


def _condition(
    fragment: Fragment,
    streams: Sequence[Stream],
    placement: Placement,
    functions: Mapping[str, RegisteredFunction],
) -> Condition:
    with fragment.drawn():
        condition = parse_condition(fragment.text, streams, placement.place, functions)
        read = [*map(columns_of, condition.residuals), *(predicate.refs for predicate in condition.spark)]
        _refuse_collations(placement.streams, [column for columns in read for column in columns])
    return condition


def _select_list(select: Texts, group_by: Texts, agg: Texts, having: Texts) -> Texts:
    if agg and select:
        raise QueryError(
            "select and agg exclude each other",
            hint="agg gives the columns of groupBy and the aggregates: use one or the other",
            error_class="CONFLICTING_SELECT",
        )
    if (group_by or having) and not (agg or select):
        raise QueryError(
            "rows are grouped, but nothing is computed of the groups",
            hint="add agg('count(*) AS n'), or select what is wanted",
            error_class="MISSING_AGGREGATE",
        )
    return [*group_by, *agg] if agg else select


def _calls_aggregate(fragment: Fragment) -> bool:
    with fragment.drawn(), parser_errors(fragment.text, f"'{on_one_line(fragment.text)}'"):
        return calls_aggregate(fragment.text)


def _with_declared_event_time(stream: Stream) -> Stream:
    column = event_time_of(stream)
    return stream if column is None else replace(stream, event_time=column.name)


def _check_streams(streams: Sequence[Stream]) -> None:
    if not 2 <= len(streams) <= STREAMS_MAX:
        raise QueryError(
            f"a join takes 2 to {STREAMS_MAX} streams, not {len(streams)}",
            hint="add streams with stream(name, df)" if len(streams) < 2 else "join some of them first",
            error_class="WRONG_STREAM_COUNT",
        )
    seen: set[str] = set()
    for stream in streams:
        check_stream_name(stream.name)
        if stream.name.lower() in seen:
            raise QueryError(
                f"two streams are named '{stream.name}'",
                hint="names are compared without case, as in Spark: rename one",
                error_class="DUPLICATE_STREAM",
            )
        seen.add(stream.name.lower())
        _check_stream(stream)


def check_stream_name(name: str) -> None:
    if not _IDENTIFIER.fullmatch(name):
        raise QueryError(
            f"'{name}' cannot be the name of a stream",
            hint="use letters, digits and underscores, and start with no digit",
            error_class="INVALID_STREAM_NAME",
        )


def _check_stream(stream: Stream) -> None:
    if stream.delay_us < 0:
        raise QueryError(
            f"stream '{stream.name}' has a negative delay",
            hint="the delay says how late its rows may be: '0 seconds' or more",
            error_class="INVALID_DELAY",
        )
    if not stream.schema.names:
        raise QueryError(f"stream '{stream.name}' has no columns", error_class="EMPTY_SCHEMA")
    lower = [name.lower() for name in stream.schema.names]
    for name in stream.schema.names:
        if lower.count(name.lower()) > 1:
            raise QueryError(
                f"stream '{stream.name}' has two columns named '{name}'",
                hint="names are compared without case, as in Spark: rename one with withColumnRenamed",
                error_class="DUPLICATE_COLUMN",
            )


def _refuse_collations(streams: Sequence[Stream], columns: Sequence[Column]) -> None:
    for column in columns:
        if (collation := collation_of(field_of_column(streams, column))) is not None:
            raise QueryError(
                f"column {column.stream}.{column.name} has collation {collation}",
                hint="between streams only strings with COLLATE UTF8_BINARY are compared",
                error_class="UNSUPPORTED_KEY_TYPE",
            )
