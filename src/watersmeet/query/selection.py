"""Result columns: `a.price`, `b.price AS ask`, `a.x + b.y AS total`, `a.info.city`, `a.*`, `*`.

A plain column is named `stream_column` and a field `stream_column_field`; any other expression needs an alias.
Spark evaluates expressions over the joined rows, in which each column has its internal name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.errors import QueryError
from watersmeet.query.analysis import Analyse
from watersmeet.query.expressions import Column
from watersmeet.query.fragments import Fragment, at
from watersmeet.query.names import field_of_column, find_stream
from watersmeet.query.relations import SelectItem, Stream, internal_name
from watersmeet.query.sqltext import SqlText, on_one_line, parse, read


def select_items(
    streams: Sequence[Stream], texts: Sequence[Fragment], analyse: Analyse | None = None
) -> tuple[SelectItem, ...]:
    """The result columns, in order; nothing selected means everything, in the order of `streams`."""
    items: list[SelectItem] = []
    for fragment in [text.stripped() for text in texts] or [Fragment.of("*")]:
        with fragment.drawn():
            found = list(_items(streams, fragment.text))
            items += found
            check_unique(items)
            check_internal_names(column for item in items for column in item.refs)
            for item in found:
                _check_expression(item, streams, analyse)
    return tuple(items)


def _check_expression(item: SelectItem, streams: Sequence[Stream], analyse: Analyse | None) -> None:
    """Let Spark check an expression. The sink decides whether it can hold the type."""
    if item.sql is None or analyse is None:
        return
    fields = [field_of_column(streams, ref).with_name(internal_name(ref)) for ref in item.refs]
    try:
        analyse(item.sql, fields)
    except QueryError as error:
        if error.error_class != "UNSUPPORTED_TYPE":
            raise


def _items(streams: Sequence[Stream], text: str) -> Iterator[SelectItem]:
    tree = parse(text)
    match tree:
        case exp.Star() if not any(tree.args.values()):
            for stream in streams:
                yield from _all_columns(stream)
        case exp.Column(this=exp.Star() as star) if len(tree.parts) == 2 and not any(star.args.values()):
            with at(tree.parts[0].meta["start"]):
                stream = find_stream(streams, tree.table)
            yield from _all_columns(stream)
        case exp.Alias():
            yield _item(read(without_alias(text, tree), tree.this, streams), text, tree.alias)
        case exp.Condition() | exp.Paren() if tree.find(exp.Star) is None:
            yield _item(read(text, tree, streams), text, None)
        case _:
            raise cannot_select(text)


def cannot_select(text: str) -> QueryError:
    return QueryError(
        f"cannot select '{on_one_line(text)}'",
        hint="a result column is 'stream.column', 'expression AS name', 'stream.*' or '*'",
        error_class="UNSUPPORTED_SYNTAX",
    )


def _all_columns(stream: Stream) -> Iterator[SelectItem]:
    for name in stream.schema.names:
        column = Column(stream.name, name)
        yield SelectItem(internal_name(column), column, None, (column,))


def without_alias(text: str, tree: Any) -> str:
    """The text before `AS name`, or before a bare name; all of it if there is none."""
    if not isinstance(tree, exp.Alias):
        return text
    tokens = sqlglot.tokenize(text, dialect="spark")
    position = next(i for i, token in enumerate(tokens) if token.start == tree.args["alias"].meta["start"])
    last = position - 2 if tokens[position - 1].token_type == TokenType.ALIAS else position - 1
    return text[: tokens[last].end + 1]


def _item(sql: SqlText, text: str, alias: str | None) -> SelectItem:
    refs = tuple(dict.fromkeys(reference.column for _, _, _, reference in sorted(sql.columns, key=lambda c: c[1])))
    if isinstance(sql.tree, exp.Column | exp.Dot) and len(sql.columns) == 1:
        (node, _, _, reference) = sql.columns[0]
        if node is sql.tree and not reference.fields:
            return SelectItem(alias or internal_name(reference.column), reference.column, None, refs)
        alias = alias or name_of_field(sql.tree, node, internal_name(reference.column), reference.fields)
    if alias is None:
        raise missing_alias(text)
    return SelectItem(alias, None, sql.with_names(internal_name), refs)


def name_of_field(tree: Any, column: Any, name: str, fields: Sequence[str]) -> str:
    """`stream_column_field`, for a name of any number of fields."""
    return "_".join([name, *fields, *(part.name for part in tree.parts[len(column.parts) :])])


def missing_alias(text: str) -> QueryError:
    text = on_one_line(text)
    return QueryError(
        f"result column '{text}' has no name",
        hint=f"give it one: '{text} AS name'",
        error_class="MISSING_ALIAS",
    )


def check_unique(items: Sequence[SelectItem]) -> None:
    counts = Counter(item.name.lower() for item in items)
    for item in items:
        if counts[item.name.lower()] > 1:
            raise QueryError(
                f"two result columns are named '{item.name}'",
                hint=f"give one of them another name, like '{_example(item)} AS other'",
                error_class="DUPLICATE_COLUMN",
            )


def _example(item: SelectItem) -> str:
    return f"{item.column.stream}.{item.column.name}" if item.column else "expression"


def check_internal_names(columns: Iterable[Column]) -> None:
    """Columns that Spark reads of joined rows must have different names there."""
    known: dict[str, Column] = {}
    for column in columns:
        other = known.setdefault(internal_name(column).lower(), column)
        if other != column:
            raise QueryError(
                f"columns {other.stream}.{other.name} and {column.stream}.{column.name} are both named "
                f"'{internal_name(column)}' after the join",
                hint="rename one of the streams",
                error_class="DUPLICATE_COLUMN",
            )
