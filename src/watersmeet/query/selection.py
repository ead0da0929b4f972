"""Result columns: `a.price`, `b.price AS ask`, `a.x + b.y AS total`, `a.info.city`, `a.*`, `*`.

A plain column is named `stream_column` and a field `stream_column_field`; any other expression needs an alias.
Expressions are left to Spark, over the joined rows, where each column stands under its internal name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.errors import QueryError
from watersmeet.query.expressions import Column
from watersmeet.query.names import find_stream
from watersmeet.query.relations import SelectItem, SparkPredicate, Stream, internal_name
from watersmeet.query.sqltext import SqlText, parse, read


def select_items(streams: Sequence[Stream], texts: Sequence[str]) -> tuple[SelectItem, ...]:
    """The result columns, in order; nothing selected means everything, in the order of `streams`."""
    items = tuple(item for text in texts or ("*",) for item in _items(streams, text))
    _check_unique(items)
    check_internal_names(items)
    return items


def _items(streams: Sequence[Stream], text: str) -> Iterator[SelectItem]:
    text = text.strip()
    tree = parse(text)
    match tree:
        case exp.Star() if not any(tree.args.values()):
            for stream in streams:
                yield from _all_columns(stream)
        case exp.Column(this=exp.Star() as star) if len(tree.parts) == 2 and not any(star.args.values()):
            yield from _all_columns(find_stream(streams, tree.table))
        case exp.Alias():
            yield _item(read(_without_alias(text, tree), tree.this, streams), text, tree.alias)
        case exp.Condition() | exp.Paren() if tree.find(exp.Star) is None:
            yield _item(read(text, tree, streams), text, None)
        case _:
            raise QueryError(
                f"cannot select '{text}'",
                hint="give one column per argument: 'stream.column', 'expression AS name', 'stream.*' or '*'",
                error_class="UNSUPPORTED_SYNTAX",
            )


def _all_columns(stream: Stream) -> Iterator[SelectItem]:
    for name in stream.schema.names:
        column = Column(stream.name, name)
        yield SelectItem(internal_name(column), column, None, (column,))


def _without_alias(text: str, tree: Any) -> str:
    """The text before `AS name`, or before a bare name."""
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
        fields = [*reference.fields, *(part.name for part in sql.tree.parts[len(node.parts) :])]
        alias = alias or "_".join([internal_name(reference.column), *fields])
    if alias is None:
        raise QueryError(
            f"result column '{text}' has no name",
            hint=f"give it one: '{text} AS name'",
            error_class="MISSING_ALIAS",
        )
    return SelectItem(alias, None, sql.with_names(internal_name), refs)


def _check_unique(items: Sequence[SelectItem]) -> None:
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


def check_internal_names(items: Sequence[SelectItem | SparkPredicate]) -> None:
    """Columns that Spark reads of joined rows must have different names there."""
    known: dict[str, Column] = {}
    for column in (column for item in items for column in item.refs):
        other = known.setdefault(internal_name(column).lower(), column)
        if other != column:
            raise QueryError(
                f"columns {other.stream}.{other.name} and {column.stream}.{column.name} are both named "
                f"'{internal_name(column)}' after the join",
                hint="rename one of the streams",
                error_class="DUPLICATE_COLUMN",
            )
