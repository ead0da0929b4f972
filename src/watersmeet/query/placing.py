"""Where a conjunct is evaluated: at the first place, in this order, that can evaluate it.

| conjunct                                     | place                                                                |
|----------------------------------------------|----------------------------------------------------------------------|
| over one stream                              | a filter, by Spark at the source                                     |
| `a.x = b.y`                                  | a key class                                                          |
| `lower(a.x) = b.y`, `a.x + 1 = b.info.y`     | a key class of derived columns, which Spark computes at the source   |
| in the engine's language, and calls of       | a residual, by the engine as soon as its columns are bound; operands |
| registered predicates                        | over one stream that it cannot hold become derived columns           |
| anything else: `levenshtein(a.n, b.n) < 3`   | a Spark predicate, on the joined rows                                |

Without Spark (`analyse` is None), only filters, plain keys and the engine remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.query.analysis import Analyse
from watersmeet.query.coercion import check_predicate, comparison_type
from watersmeet.query.derived import DerivedColumns, may_fail_unguarded, operand_text
from watersmeet.query.expressions import Column, Compare, Expression
from watersmeet.query.names import field_of_column, type_of_column
from watersmeet.query.registered import RegisteredFunction, own_calls
from watersmeet.query.relations import Equality, SparkPredicate, Stream, internal_name
from watersmeet.query.residual import groups_otherwise, to_expression
from watersmeet.query.sqltext import Placed, SqlText, place_plainly, plain_equality
from watersmeet.query.types import common_key_type, is_atomic, spark_name

UNSUPPORTED = "UNSUPPORTED_PREDICATE"


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of an equality: a column of one stream, and the user's text for it."""

    column: Column
    text: str
    type: pa.DataType


class Placement:
    """Finds the places of the conjuncts of one query, and gathers the derived columns they need."""

    def __init__(
        self, streams: Sequence[Stream], analyse: Analyse | None, functions: Mapping[str, RegisteredFunction]
    ) -> None:
        self._given, self._analyse, self._functions = streams, analyse, functions
        self._derived = None if analyse is None else DerivedColumns(streams, analyse)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams with the derived columns that were needed so far."""
        return tuple(self._given) if self._derived is None else self._derived.streams()

    @contextmanager
    def users_expressions(self, sql: SqlText | None = None) -> Iterator[None]:
        """In errors raised within, replace names of derived columns by the user's expressions."""
        try:
            yield
        except QueryError as error:
            message = error.message if self._derived is None else self._derived.in_words(error.message)
            hint = error.hint
            calls = [] if sql is None else own_calls(sql.tree)
            if error.error_class == UNSUPPORTED and calls and self._derived is not None:
                hint = (
                    f"only Spark can evaluate that, and only the engine can call {calls[0]}(): put AND between the "
                    "two, or compute it inside the registered function"
                )
            raise QueryError(
                message, hint=hint, error_class=error.error_class, position=error.position, drawn=error.drawn
            ) from None

    def place(self, sql: SqlText) -> list[Placed]:
        """Find the place of one conjunct; QueryError if nothing can evaluate it."""
        if own_calls(sql.tree):
            return [self._residual(sql)]
        if self._derived is not None and len(sql.streams) == 1:
            self._check_condition(sql, lambda column: column.name)
        if self._derived is None or len(sql.streams) == 1 or plain_equality(sql) is not None:
            return place_plainly(sql, self._given)
        mark = self._derived.mark
        sides = self._sides(sql, self._derived)
        if sides is not None and (equality := self._equality(*sides)) is not None:
            return [equality]
        self._derived.forget_since(mark)
        try:
            return [self._residual(sql)]
        except QueryError as error:
            if error.error_class != UNSUPPORTED:
                raise
        self._derived.forget_since(mark)
        return [self._spark_predicate(sql)]

    def _sides(self, sql: SqlText, derived: DerivedColumns) -> tuple[_Side, _Side] | None:
        """The sides of `one stream's = another stream's` as columns."""
        if not isinstance(sql.tree, exp.EQ) or groups_otherwise(sql.tree):
            return None
        if [len(_streams_of(sql, side)) for side in (sql.tree.left, sql.tree.right)] != [1, 1]:
            return None
        left, right = (self._side(sql, node, derived) for node in (sql.tree.left, sql.tree.right))
        return None if left is None or right is None else (left, right)

    def _side(self, sql: SqlText, node: Any, derived: DerivedColumns) -> _Side | None:
        if isinstance(node, exp.Column) and not sql.reference(node).fields:
            column = sql.reference(node).column
            return _Side(column, f"{column.stream}.{column.name}", type_of_column(self._given, column))
        operand = operand_text(sql, node)
        found = None if operand is None else derived.column(operand)
        if operand is None or found is None:
            return None
        return _Side(found, operand.text, type_of_column(self.streams, found))

    def _equality(self, left: _Side, right: _Side) -> Placed | None:
        """A part of a key where the types allow it, else a residual; None for types that only Spark can compare."""
        if common_key_type(left.type, right.type) is not None:
            return Equality(left.column, right.column)
        if comparison_type(left.type, right.type) is not None:
            return Compare("=", left.column, right.column)
        if not (is_atomic(left.type) and is_atomic(right.type)):
            return None
        sides = [f"{side.text} ({spark_name(side.type)})" for side in (left, right)]
        raise QueryError(
            f"cannot compare {sides[0]} with {sides[1]}: they have no common type",
            hint="CAST one of them",
            error_class="TYPE_MISMATCH",
        )

    def _residual(self, sql: SqlText) -> Expression:
        """A predicate for the engine; QueryError of class UNSUPPORTED_PREDICATE if it cannot evaluate it."""
        has_calls = bool(own_calls(sql.tree))

        def derive(node: Any) -> Column | None:
            if self._derived is None or len(_streams_of(sql, node)) != 1 or own_calls(node) or self._holds(sql, node):
                return None
            if may_fail_unguarded(node) and not has_calls:
                return None
            operand = operand_text(sql, node)
            return None if operand is None else self._derived.column(operand, of_any_type=has_calls)

        def column_type(column: Column) -> pa.DataType:
            return type_of_column(self.streams, column)

        with self.users_expressions(sql):
            expr = to_expression(sql.tree, sql.reference, column_type, functions=self._functions, derive=derive)
            check_predicate(expr, column_type)
        return expr

    def _holds(self, sql: SqlText, node: Any) -> bool:
        """Whether the engine has all operations of a node, types aside."""
        try:
            to_expression(node, sql.reference, lambda column: type_of_column(self._given, column))
        except QueryError as error:
            return error.error_class != UNSUPPORTED
        return True

    def _spark_predicate(self, sql: SqlText) -> SparkPredicate:
        self._check_condition(sql, internal_name)
        return SparkPredicate(sql.with_names(internal_name), _columns(sql))

    def _check_condition(self, sql: SqlText, name: Callable[[Column], str]) -> None:
        """Let Spark check a condition that it will evaluate, over these columns; QueryError if it is not a
        condition."""
        assert self._analyse is not None
        types = {name(ref): field_of_column(self._given, ref).type for ref in _columns(sql)}
        type_ = self._analyse(sql.with_names(name), [pa.field(*item) for item in types.items()])
        if type_ not in (pa.bool_(), pa.null()):
            raise QueryError(
                f"'{sql.text}' is {spark_name(type_)}, not a condition",
                hint="compare it with something",
                error_class="TYPE_MISMATCH",
            )


def _columns(sql: SqlText) -> tuple[Column, ...]:
    """The columns of a text in the order in which they stand, each once."""
    by_position = sorted(sql.columns, key=lambda entry: entry[1])
    return tuple(dict.fromkeys(reference.column for *_, reference in by_position))


def _streams_of(sql: SqlText, node: Any) -> set[str]:
    """The streams that a node of a parsed text refers to."""
    inside = {id(column) for column in node.find_all(exp.Column)}
    return {reference.column.stream for column, _, _, reference in sql.columns if id(column) in inside}
