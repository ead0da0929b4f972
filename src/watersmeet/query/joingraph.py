"""The join graph: which columns are made equal, and so which key classes there are.

Columns linked by equalities form *key classes* (union-find, so transitive equalities come for free). Join nodes are
partitioned, stored and probed by the classes their inputs share. Filters and residuals hold the rest, so that classes,
filters and residuals together are equivalent to the equalities:

| equality                                                | becomes                                              |
|---------------------------------------------------------|------------------------------------------------------|
| between two streams                                     | part of a class (NULL equals nothing)                |
| of a second column of one stream in a class             | a filter on that stream: both columns are equal      |
| exact (say BIGINT = BIGINT) where the class is a double | part of the class *and* a residual                   |

Every stream must be linked to the others, by an equality or by another predicate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.query.expressions import Column, Compare, Expression, columns_of, quote
from watersmeet.query.names import field_of_column, type_of_column
from watersmeet.query.relations import Equality, Filter, KeyClass, SparkPredicate, Stream
from watersmeet.query.types import collation_of, common_key_type, is_atomic, is_floating, spark_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The key classes, in a fixed order, and the filters and residuals that complete them."""

    classes: tuple[KeyClass, ...]
    filters: tuple[Filter, ...]
    residuals: tuple[Expression, ...]


def join_keys(
    streams: Sequence[Stream],
    equalities: Sequence[Equality],
    residuals: Sequence[Expression] = (),
    spark_residuals: Sequence[SparkPredicate] = (),
) -> JoinKeys:
    """The key classes of a join over `streams`, with columns in that order; QueryError if a stream is not linked."""
    usable = [equality for equality in equalities if _is_usable(streams, equality)]
    read_together = [*(columns_of(residual) for residual in residuals), *(p.refs for p in spark_residuals)]
    _check_connected(streams, usable, read_together)
    classes: list[KeyClass] = []
    filters: list[Filter] = []
    types: dict[Column, pa.DataType] = {}
    for members in _united_columns(usable):
        if len({column.stream for column in members}) > 1:
            type_ = _class_type(streams, members)
            types |= dict.fromkeys(members, type_)
            key_class, same = _key_class(streams, members, type_)
            classes.append(key_class)
            filters.extend(same)
    classes.sort(key=lambda key_class: tuple(column or "" for column in key_class.columns))
    return JoinKeys(tuple(classes), tuple(filters), tuple(_residuals(streams, usable, types)))


def _is_usable(streams: Sequence[Stream], equality: Equality) -> bool:
    """Check an equality. Spark evaluates one within a stream; it joins a class only if its columns can be keys."""
    try:
        check_equality(streams, equality)
    except QueryError:
        if equality.left.stream != equality.right.stream:
            raise
        return False
    return True


def check_equality(streams: Sequence[Stream], equality: Equality) -> None:
    """Raise QueryError unless both columns can be keys, and of one type."""
    for column in (equality.left, equality.right):
        field = field_of_column(streams, column)
        if (collation := collation_of(field)) is not None:
            raise QueryError(
                f"column {_dotted(column)} has collation {collation}, which cannot be a join key",
                hint="join on a column with COLLATE UTF8_BINARY, say of lower() of it",
                error_class="UNSUPPORTED_KEY_TYPE",
            )
        if not is_atomic(field.type):
            raise QueryError(
                f"column {_dotted(column)} is {spark_name(field.type)}, which cannot be a join key",
                hint="join on its parts, or on a string made of it, with withColumn",
                error_class="UNSUPPORTED_KEY_TYPE",
            )
    _class_type(streams, (equality.left, equality.right))


def _class_type(streams: Sequence[Stream], members: Sequence[Column]) -> pa.DataType:
    """The common type of all members, whatever their order: one double makes the class a double."""
    by_width = sorted(members, key=lambda column: not is_floating(type_of_column(streams, column)))
    common = type_of_column(streams, by_width[0])
    for column in by_width[1:]:
        wider = common_key_type(common, type_of_column(streams, column))
        if wider is None:
            raise _no_common_type(streams, members)
        common = wider
    return common


def _no_common_type(streams: Sequence[Stream], members: Sequence[Column]) -> QueryError:
    first, *others = (f"{_dotted(column)} ({spark_name(type_of_column(streams, column))})" for column in members)
    return QueryError(
        f"cannot compare {first} with {', '.join(others)}: they have no common type",
        hint="CAST one of them in the DataFrame, with withColumn",
        error_class="TYPE_MISMATCH",
    )


def _check_connected(
    streams: Sequence[Stream], equalities: Sequence[Equality], read_together: Sequence[Sequence[Column]]
) -> None:
    links = [(equality.left.stream, equality.right.stream) for equality in equalities]
    for columns in read_together:
        links += pairwise(column.stream for column in columns)
    if all(left == right for left, right in links):
        raise QueryError(
            "the join has no predicate between streams",
            hint=f"add one with where, like '{streams[0].name}.id = {streams[1].name}.id'",
            error_class="NO_EQUALITY",
        )
    groups = _united([(stream.name, stream.name) for stream in streams] + links)
    if len(groups) > 1:
        alone = min(groups, key=lambda group: (len(group), sorted(group)))
        raise QueryError(
            f"{'streams' if len(alone) > 1 else 'stream'} {_listed(sorted(alone))} {'are' if len(alone) > 1 else 'is'} "
            "not connected to the others: "
            "no predicate links them",
            hint="add one with where, or take the stream out",
            error_class="UNCONNECTED_STREAM",
        )


def _key_class(
    streams: Sequence[Stream], members: Sequence[Column], type_: pa.DataType
) -> tuple[KeyClass, list[Filter]]:
    """The class has the first column of each stream, in schema order. Filters make the other columns equal to it."""
    chosen: list[str | None] = []
    filters: list[Filter] = []
    for stream in streams:
        mine = [name for name in stream.schema.names if Column(stream.name, name) in members]
        chosen.append(mine[0] if mine else None)
        for other in mine[1:]:
            sides = (_as_key(stream.schema.field(name), type_) for name in (mine[0], other))
            filters.append(Filter(stream.name, " = ".join(sides)))
    return KeyClass(tuple(chosen), type_), filters


def _as_key(field: pa.Field, type_: pa.DataType) -> str:
    if is_floating(type_) and field.type != type_:
        return f"CAST({quote(field.name)} AS {spark_name(type_)})"
    return quote(field.name)


def _residuals(
    streams: Sequence[Stream], equalities: Sequence[Equality], class_types: Mapping[Column, pa.DataType]
) -> list[Expression]:
    """Equalities that are finer than their class: as doubles, different BIGINTs can be equal."""
    residuals: dict[Expression, None] = {}
    for equality in equalities:
        if equality.left.stream == equality.right.stream:
            continue
        exact = not is_floating(_class_type(streams, (equality.left, equality.right)))
        if is_floating(class_types[equality.left]) and exact:
            residuals[Compare("=", equality.left, equality.right)] = None
    return list(residuals)


def _united_columns(equalities: Sequence[Equality]) -> list[list[Column]]:
    classes = [sorted(members, key=_dotted) for members in _united([(e.left, e.right) for e in equalities])]
    return sorted(classes, key=lambda members: [_dotted(column) for column in members])


def _united(links: Sequence[tuple[T, T]]) -> list[set[T]]:
    """The connected components of a graph given by its edges (union-find)."""
    parent: dict[T, T] = {}

    def root(node: T) -> T:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for left, right in links:
        parent[root(left)] = root(right)
    components: defaultdict[T, set[T]] = defaultdict(set)
    for node in list(parent):
        components[root(node)].add(node)
    return list(components.values())


def _dotted(column: Column) -> str:
    return f"{column.stream}.{column.name}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
