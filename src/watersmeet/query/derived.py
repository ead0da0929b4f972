"""Derived columns: expressions over one stream that Spark computes at the source, so that the engine can compare them.

    lower(a.x) = lower(b.x)     a and b each get a column _d0 = lower(`x`); a._d0 = b._d0 is an ordinary equality, part
                                of a key, on all slots

The text of a derived column is the user's own, cut out of the condition, with bare columns as in a filter. The parser
finds where an operand ends: the shortest piece of text around the operand's columns that parses to the same tree. Equal
texts share a column. Derived columns have names that no column of the stream has, and no user text can refer to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.errors import QueryError
from watersmeet.query.analysis import Analyse
from watersmeet.query.expressions import Column
from watersmeet.query.names import field_of_column
from watersmeet.query.relations import Derived, Stream
from watersmeet.query.sqltext import SqlText, parse
from watersmeet.query.types import collation_of, is_atomic

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)

# Parser nodes that cannot fail, whatever their operands. All others may.
_NEVER_FAIL = (
    *(exp.Column, exp.Identifier, exp.Dot, exp.Paren, exp.Literal, exp.Null, exp.Boolean),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.Like, exp.ILike),
    *(exp.Lower, exp.Upper, exp.Trim, exp.Length, exp.Concat, exp.DPipe, exp.Substring),
)


@dataclass(frozen=True, slots=True)
class _Known:
    """A derived column and its type."""

    stream: str
    column: Derived
    type: pa.DataType


class DerivedColumns:
    """The derived columns that the conditions of a query need, collected as they are met."""

    def __init__(self, streams: Sequence[Stream], analyse: Analyse) -> None:
        self._streams, self._analyse = streams, analyse
        self._known: tuple[_Known, ...] = ()

    @property
    def mark(self) -> tuple[_Known, ...]:
        """The derived columns so far, for `forget_since`."""
        return self._known

    def forget_since(self, mark: tuple[_Known, ...]) -> None:
        self._known = mark

    def column(self, operand: SqlText, *, of_any_type: bool = False) -> Column | None:
        """The derived column of an operand over one stream; None if the engine cannot compare its values as Spark
        does. QueryError if Spark refuses the operand."""
        (name,) = operand.streams
        stream = next(stream for stream in self._streams if stream.name == name)
        sql = operand.with_names(lambda column: column.name)
        known = next((k for k in self._known if k.stream == name and k.column.sql == sql), None)
        if known is None:
            type_ = self._type(sql, stream)
            if type_ is None or type_ == pa.null() or not (of_any_type or is_atomic(type_)):
                return None
            if _may_be_collated(operand, type_, self._streams):
                return None
            known = _Known(name, Derived(self._free_name(stream), sql), type_)
            self._known += (known,)
        return Column(name, known.column.name)

    def streams(self) -> tuple[Stream, ...]:
        """The streams with their derived columns."""
        return tuple(self._with_derived(stream) for stream in self._streams)

    def in_words(self, text: str) -> str:
        """A message with the user's expressions in place of the names of derived columns."""
        for known in self._known:
            name = known.column.name
            for spelling in (f"{known.stream}.{name}", f"`{known.stream}`.`{name}`"):
                text = text.replace(spelling, f"{known.stream}: {known.column.sql}")
        return text

    def _type(self, sql: str, stream: Stream) -> pa.DataType | None:
        try:
            return self._analyse(sql, list(stream.schema))
        except QueryError as error:
            if error.error_class == "UNSUPPORTED_TYPE":
                return None
            raise

    def _free_name(self, stream: Stream) -> str:
        mine = sum(1 for known in self._known if known.stream == stream.name)
        taken = {name.lower() for name in stream.schema.names}
        free = (name for number in count() if (name := f"_d{number}") not in taken)
        return next(name for position, name in enumerate(free) if position == mine)

    def _with_derived(self, stream: Stream) -> Stream:
        schema, mine = stream.schema, []
        for known in self._known:
            if known.stream == stream.name:
                schema = schema.append(pa.field(known.column.name, known.type))
                mine.append(known.column)
        return replace(stream, schema=schema, derived=tuple(mine))


def _may_be_collated(operand: SqlText, type_: pa.DataType, streams: Sequence[Stream]) -> bool:
    """Whether Spark may compare this string by a collation, not byte by byte. Arrow's types do not say."""
    if not pa.types.is_string(type_):
        return False
    words = [token.text.lower() for token in sqlglot.tokenize(operand.text, dialect="spark")]
    columns = (reference.column for *_, reference in operand.columns)
    return "collate" in words or any(collation_of(field_of_column(streams, c)) is not None for c in columns)


def may_fail_unguarded(node: Any) -> bool:
    """Whether an operand stands behind an AND or OR that may keep it from being computed, as in
    `a.n = 0 OR sqrt(1 / a.n) > b.x`, and could fail if it were computed for every row."""
    inner, is_guarded = node, False
    while inner.parent is not None and not is_guarded:
        is_guarded = isinstance(inner.parent, exp.And | exp.Or) and inner.arg_key == "expression"
        inner = inner.parent
    return is_guarded and not all(isinstance(part, _NEVER_FAIL) for part in node.walk())


def operand_text(sql: SqlText, node: Any) -> SqlText | None:
    """The piece of text that a node was parsed from, as SqlText; None if no piece parses to the same tree."""
    while isinstance(node, exp.Paren):
        node = node.this
    inside = {id(column) for column in node.find_all(exp.Column)}
    mine = [entry for entry in sql.columns if id(entry[0]) in inside]
    others = [start for column, start, _, _ in sql.columns if id(column) not in inside]
    for start, end in _pieces(sql.text, min(e[1] for e in mine), max(e[2] for e in mine), others):
        piece = sql.text[start:end]
        try:
            tree = parse(piece, into=exp.Condition)
        except QueryError:
            continue
        if tree == node:
            columns = tuple((column, s - start, e - start, reference) for column, s, e, reference in mine)
            return SqlText(piece, node, columns)
    return None


def _pieces(text: str, first: int, last: int, others: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pieces of whole tokens around [first, last) with balanced brackets and none of the other columns, shortest
    first."""
    tokens = sqlglot.tokenize(text, dialect="spark")
    starts = [i for i, token in enumerate(tokens) if token.start <= first]
    ends = [i for i, token in enumerate(tokens) if token.end + 1 >= last]
    pairs = ((low, high) for low in starts for high in ends if low <= high)
    for low, high in sorted(pairs, key=lambda pair: pair[1] - pair[0]):
        start, end = tokens[low].start, tokens[high].end + 1
        if not any(start <= other < end for other in others) and _is_balanced(tokens[low : high + 1]):
            yield start, end


def _is_balanced(tokens: Sequence[Any]) -> bool:
    depth = 0
    for index, token in enumerate(tokens):
        if index and tokens[index - 1].token_type == TokenType.DOT:
            continue  # a field may be called `end`
        depth += token.token_type in _OPENING
        depth -= token.token_type in _CLOSING
        if depth < 0:
            return False
    return depth == 0
