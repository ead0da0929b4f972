"""Queries as SQL text, with the windows of CQL (Arasu, Babu, Widom 2006) or one WITHIN for all streams.

    SELECT a.price, b.price AS ask                    SELECT a.price, b.price AS ask
    FROM offers [RANGE 10 MINUTES] AS a,              FROM offers AS a JOIN bids AS b ON a.lot = b.lot
         bids [UNBOUNDED] AS b                        WITHIN 10 MINUTES
    WHERE a.lot = b.lot                               WHERE a.price < b.price

sqlglot parses the text, but not these windows. So they are found among its tokens and replaced by spaces, which keeps
all positions. The rest is parsed as a whole. Unsupported syntax is refused by name (`query/unsupported.py`). Then the
text is cut into the pieces that the builder takes. Each piece is the user's own text, with its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot.tokens import TokenType

from watersmeet.errors import QueryError
from watersmeet.query.cql_windows import Windows, find_windows, starts_clause
from watersmeet.query.fragments import Fragment, start_of
from watersmeet.query.sqltext import parser_errors, syntax_error, tokenize
from watersmeet.query.unsupported import check_statement, joins_of, refuse_unsupported

QUERY = "the query"
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_STREAM_EXPECTED = (TokenType.FROM, TokenType.COMMA, TokenType.JOIN)
_CLAUSES = (TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING)


@dataclass(frozen=True, slots=True)
class FromItem:
    """A stream of the FROM clause: its source, alias and window, and the positions of the first two."""

    source: str
    alias: str | None
    window: str | None
    position: int
    name_position: int


@dataclass(frozen=True, slots=True)
class Using:
    """`JOIN right USING (column)`. The stream is the n-th of the FROM clause; the streams before it are to its left."""

    column: Fragment
    right: int


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """The parts of a query text."""

    text: str
    streams: tuple[FromItem, ...]
    using: tuple[Using, ...]
    within: str | None
    select: tuple[Fragment, ...]
    where: tuple[Fragment, ...]
    group_by: tuple[Fragment, ...]
    having: tuple[Fragment, ...]

    @property
    def whole(self) -> Fragment:
        return Fragment(self.text, self.text)


def read_sql(text: str) -> SqlQuery:
    """Split a query text into its parts. A QueryError shows line, column and caret."""
    whole = Fragment.of(text)
    with whole.drawn():
        tokens = _one_statement(text)
        check_statement(tokens)
        windows = find_windows(text, tokens)
        plain = [token for token in tokens if not windows.covers(token)]
        blanked = _without_window_calls(windows.blanked(text), plain)
        with parser_errors(blanked, QUERY):
            tree = sqlglot.parse_one(blanked[: tokens[-1].end + 1], dialect="spark")
        refuse_unsupported(tree, plain)
        return _taken_apart(whole, tree, plain, windows)


def _without_window_calls(text: str, tokens: Sequence[Any]) -> str:
    """The text with the function `window` renamed, to a name of the same length: in GROUP BY the parser would take it
    for a clause."""
    for token, following in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and following.token_type in (TokenType.L_PAREN, TokenType.DOT):
            text = f"{text[: token.start]}_windo{text[token.end + 1 :]}"
    return text


def _one_statement(text: str) -> list[Any]:
    tokens = tokenize(text, QUERY)
    if tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens = tokens[:-1]
    if not tokens:
        raise syntax_error(QUERY, "it is empty", 0)
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise QueryError(
                "there is more than one statement",
                hint="start a query of its own for each",
                error_class="UNSUPPORTED_SYNTAX",
                position=token.start,
            )
    return tokens


def _taken_apart(whole: Fragment, tree: Any, tokens: Sequence[Any], windows: Windows) -> SqlQuery:
    clauses = dict(_clauses(tokens))
    tables = [tree.args.get("from_", tree.args.get("from")).this]
    using = []
    for join in joins_of(tree):
        tables.append(join.this)
        for column in join.args.get("using") or ():
            place = Fragment(column.name, whole.text, column.meta["start"])
            using.append(Using(place, len(tables) - 1))
    _check_streams(clauses[TokenType.FROM])
    _check_using(clauses[TokenType.FROM])
    streams = tuple(_from_item(table, windows) for table in tables)
    select = tuple(_listed(whole, clauses[TokenType.SELECT]))
    if len(select) != len(tree.expressions):
        raise syntax_error(QUERY, "the select list cannot be read", tokens[0].start)
    where = [*_on_conditions(whole, clauses[TokenType.FROM]), *_piece(whole, clauses.get(TokenType.WHERE))]
    return SqlQuery(
        text=whole.text,
        streams=streams,
        using=tuple(using),
        within=windows.within,
        select=select,
        where=tuple(where),
        group_by=tuple(_listed(whole, clauses[TokenType.GROUP_BY])) if TokenType.GROUP_BY in clauses else (),
        having=tuple(_piece(whole, clauses.get(TokenType.HAVING))),
    )


def _check_streams(clause: Sequence[Any]) -> None:
    """Check that a stream is a name and perhaps an alias, nothing else. The parser ignores some other tokens."""
    marks = (*_STREAM_EXPECTED, TokenType.ON, TokenType.USING, TokenType.INNER)
    places = [i for i, token, depth in _with_depth(clause) if depth == 0 and _is_mark(clause, i, marks)]
    for place, end in pairwise([*places, len(clause)]):
        if clause[place].token_type not in _STREAM_EXPECTED:
            continue
        words = [token for token in clause[place + 1 : end] if token.token_type != TokenType.ALIAS]
        if not words:
            raise syntax_error(QUERY, f"no stream follows '{clause[place].text}'", clause[place].start)
        wrong = [token for i, token in enumerate(words) if i > 1 or not _is_name(token)]
        if wrong:
            raise syntax_error(QUERY, f"unexpected '{wrong[0].text}'", wrong[0].start)


def _check_using(clause: Sequence[Any]) -> None:
    """Check that USING has at least one plain column name. The parser ignores the stream in `a.k`, and an empty
    list."""
    for index, token in enumerate(clause):
        if not _is_mark(clause, index, (TokenType.USING,)):
            continue
        end = next((i for i in range(index, len(clause)) if clause[i].token_type in _CLOSING), len(clause))
        names = clause[index + 2 : end]
        if not names:
            raise syntax_error(QUERY, f"no names in parentheses follow '{token.text}'", token.start)
        for dot in (name for name in names if name.token_type == TokenType.DOT):
            raise syntax_error(QUERY, "USING takes names of columns without their stream", dot.start)


def _is_mark(tokens: Sequence[Any], index: int, marks: Sequence[Any]) -> bool:
    return tokens[index].token_type in marks and starts_clause(tokens, index)


def _is_name(token: Any) -> bool:
    return token.token_type == TokenType.IDENTIFIER or token.text.replace("_", "a").isalnum()


def _from_item(table: Any, windows: Windows) -> FromItem:
    start, alias = table.this.meta["start"], table.args.get("alias")
    name_start = None if alias is None else start_of(alias)
    return FromItem(table.name, table.alias or None, windows.by_stream.get(start), start, name_start or start)


def _clauses(tokens: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The clauses: the kind of the first token, and all tokens."""
    starts = [0]
    for index, token, depth in _with_depth(tokens):
        if depth == 0 and token.token_type in _CLAUSES and starts_clause(tokens, index):
            starts.append(index)
    for first, last in pairwise([*starts, len(tokens)]):
        yield tokens[first].token_type, list(tokens[first:last])


def _with_depth(tokens: Sequence[Any]) -> Iterator[tuple[int, Any, int]]:
    """Tokens with their index and the number of parentheses around them."""
    depth = 0
    for index, token in enumerate(tokens):
        depth -= token.token_type in _CLOSING
        yield index, token, depth
        depth += token.token_type in _OPENING


def _listed(whole: Fragment, clause: Sequence[Any]) -> Iterator[Fragment]:
    """The items of a list, after the word that starts it."""
    first, clause = clause[0], clause[1:]
    if clause and clause[0].token_type == TokenType.ALL:
        clause = clause[1:]
    commas = [
        index for index, token, depth in _with_depth(clause) if depth == 0 and token.token_type == TokenType.COMMA
    ]
    for before, after in pairwise([-1, *commas, len(clause)]):
        start = clause[before] if before >= 0 else first
        yield _cut(whole, clause[before + 1 : after], start)


def _piece(whole: Fragment, clause: Sequence[Any] | None) -> Iterator[Fragment]:
    if clause is not None:
        yield _cut(whole, clause[1:], clause[0])


def _on_conditions(whole: Fragment, clause: Sequence[Any]) -> Iterator[Fragment]:
    """The conditions after ON, each up to the next join."""
    ends = (TokenType.ON, TokenType.USING, TokenType.JOIN, TokenType.INNER, TokenType.COMMA)
    marks = [
        (i, token.token_type) for i, token, depth in _with_depth(clause) if depth == 0 and _is_mark(clause, i, ends)
    ]
    for (index, kind), (end, _) in pairwise([*marks, (len(clause), None)]):
        if kind == TokenType.ON:
            yield _cut(whole, clause[index + 1 : end], clause[index])


def _cut(whole: Fragment, tokens: Sequence[Any], before: Any) -> Fragment:
    if not tokens:
        raise syntax_error(QUERY, f"nothing follows '{before.text}'", before.start)
    return whole.part(tokens[0].start, tokens[-1].end + 1)
