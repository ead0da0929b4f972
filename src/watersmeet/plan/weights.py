"""Rows with weights: a two-stage group-by, the first stage below the join (M5; dissertation 14).

Rows of one stream that the query cannot tell apart are one row: with a *weight* (how many), and for each argument that
is a column of the stream, a partial sum and a count. These *parts* add up, like the accumulators that they become.

    select count(*), sum(a.x) ... group by b.y         rows of a    k x         combined    k  #rows  #known x  #value x
                                                                    1 5                     1      3         2        12
                                                                    1 7
                                                                    1 NULL

| aggregate over joined rows                | with weights                                                       |
|-------------------------------------------|--------------------------------------------------------------------|
| COUNT(*), and arguments that are not parts| each joined row counts as often as the product of all weights      |
| COUNT(a.x), SUM(a.x), AVG(a.x)            | the parts of a.x, times the weights of the *other* streams         |
| MIN, MAX, COUNT(DISTINCT)                 | as without: the column is kept                                     |

Combined rows agree in the values of all key classes, in the event time if there are windows, and in the columns of
group keys, of predicates, of MIN, MAX and DISTINCT, and of arguments that are expressions.

Deviation: in the paper partial aggregates replace raw rows, and neither matches the other's state. Here a raw row is a
combined one of weight 1, so both are in one store: stored rows get weights when a query begins to combine (*stuffing*).
Combined rows are not taken apart again: a plan without weights starts empty, on a parallel track, or, where rows never
expire, is refused. `weighted(a)` keeps weights and stops combining.

*Known limitation.* Sums of DECIMAL with more than 28 digits are kept as columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import OptionError
from watersmeet.plan.accumulator import Accumulator, Made, engine_aggregates, needed
from watersmeet.plan.tree import Tree, leaves_of
from watersmeet.query.aggregates import Aggregate, Value
from watersmeet.query.expressions import Column, columns_of
from watersmeet.query.logical import JoinQuery


@dataclass(frozen=True, slots=True)
class Part:
    """A sum over the rows that are combined in a row of a stream: their number, or an accumulator of a column."""

    stream: str
    made: Made
    column: str | None
    type: pa.DataType

    @property
    def name(self) -> str:
        """The name of a payload column; no column of a stream has such a name."""
        return f"#{self.made} {self.stream}" + ("" if self.column is None else f".{self.column}")


@dataclass(frozen=True, slots=True)
class Weighing:
    """An accumulator of joined rows: a part, or its value for one row if None, times some weights."""

    part: Part | None
    weights: tuple[Part, ...]


def weighted_streams(tree: Tree) -> list[int]:
    """The streams whose rows have weights, in order."""
    return sorted(leaf.stream for leaf in leaves_of(tree) if leaf.kept != "rows")


def combined_streams(query_names: Sequence[str], tree: Tree) -> frozenset[str]:
    """The streams whose rows are combined."""
    return frozenset(query_names[leaf.stream] for leaf in leaves_of(tree) if leaf.kept == "group")


def taken_apart(names: Sequence[str], old: Tree, new: Tree) -> list[str]:
    """The streams whose rows have weights in the old plan only."""
    return [names[stream] for stream in weighted_streams(old) if stream not in weighted_streams(new)]


def weight_of(stream: str) -> Part:
    return Part(stream, "rows", None, pa.int64())


def is_part(column: str) -> bool:
    """Whether a payload column holds parts. Values of key classes, and marks, begin in the same way."""
    return column.startswith("#") and " " in column


def is_weight(column: str) -> bool:
    return column.startswith(weight_of("").name)


def parts_of(query: JoinQuery, ordinal: int) -> list[Part]:
    """The fields that take the place of a stream's summed columns."""
    stream, summed = query.streams[ordinal].name, summed_columns(query, ordinal)
    found = [weight_of(stream)]
    for aggregate in _aggregates(query):
        if (column := _summed(aggregate)) in summed:
            assert column is not None
            found += [Part(stream, each.made, column.name, each.type) for each in needed(aggregate, 0)]
    return list(dict.fromkeys(found))


def summed_columns(query: JoinQuery, ordinal: int) -> frozenset[Column]:
    """The columns of a stream that are read by sums and counts of them only, so that their parts are enough."""
    told_apart = {column for residual in query.residuals for column in columns_of(residual)}
    told_apart |= {column for key in _keys(query) for column in key.refs}
    for aggregate in _aggregates(query):
        if _summed(aggregate) is None and aggregate.argument is not None:
            told_apart |= {*aggregate.argument.refs}
    summed = {column for aggregate in _aggregates(query) if (column := _summed(aggregate)) is not None}
    return frozenset(c for c in summed - told_apart if c.stream == query.streams[ordinal].name)


def weighings(
    query: JoinQuery, tree: Tree, accumulators: Iterable[Accumulator], arguments: Sequence[Value]
) -> tuple[Weighing | None, ...]:
    """How the accumulators of joined rows are made of parts and weights; None for those that weights do not change.
    None at all if no row has a weight."""
    weighted = weighted_streams(tree)
    summed = {column for stream in weighted for column in summed_columns(query, stream)}
    weights = [weight_of(query.streams[stream].name) for stream in weighted]

    def weighing(accumulator: Accumulator) -> Weighing | None:
        if accumulator.combine != "sum":
            return None
        column = None if accumulator.argument is None else arguments[accumulator.argument].expression
        if not isinstance(column, Column) or column not in summed:
            return Weighing(None, tuple(weights))
        part = Part(column.stream, accumulator.made, column.name, accumulator.type)
        return Weighing(part, tuple(weight for weight in weights if weight.stream != column.stream))

    return tuple(map(weighing, accumulators)) if weighted else ()


def weighings_of_both(one: Sequence[Weighing | None], other: Sequence[Weighing | None]) -> tuple[Weighing | None, ...]:
    """How accumulators are made of the joined rows of two plans: rows that lack a part or a weight get it."""
    if not one or not other:
        return tuple(one or other)
    pairs = zip(one, other, strict=True)
    return tuple(None if a is None or b is None else _of_both(a, b) for a, b in pairs)


def _of_both(one: Weighing, other: Weighing) -> Weighing:
    part = one.part or other.part
    weights = dict.fromkeys((*one.weights, *other.weights))
    return Weighing(part, tuple(weight for weight in weights if part is None or weight.stream != part.stream))


def require_weights(query: JoinQuery, tree: Tree) -> None:
    """Refuse to combine rows of a query that tells all of them apart, or that the engine does not aggregate."""
    if (weighted := weighted_streams(tree)) and (reason := _refused(query)) is not None:
        name = query.streams[weighted[0]].name
        raise OptionError(
            f"option plan: rows of {name} cannot be combined: {reason}",
            hint=f"write {name} alone, without group(...) or weighted(...)",
            error_class="INVALID_PLAN",
        )


def _refused(query: JoinQuery) -> str | None:
    if query.aggregation is None:
        return "the query has no aggregates, so each row is part of results of its own"
    if query.confidence is not None:
        return "intervals of aggregates are computed from single rows"
    if not engine_aggregates(query):
        return "Spark computes a group key, an argument or a predicate, from single rows"
    return None


def _aggregates(query: JoinQuery) -> Sequence[Aggregate]:
    return () if query.aggregation is None else query.aggregation.aggregates


def _keys(query: JoinQuery) -> Sequence[Value]:
    return () if query.aggregation is None else query.aggregation.keys


def _summed(aggregate: Aggregate) -> Column | None:
    """The column that is the argument, if parts of it are enough."""
    column = None if aggregate.argument is None else aggregate.argument.expression
    if not isinstance(column, Column) or aggregate.function not in ("count", "sum", "avg"):
        return None
    return None if any(pa.types.is_decimal256(each.type) for each in needed(aggregate, 0)) else column
