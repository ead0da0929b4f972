"""Spark SQL text, read but never rewritten: the parser finds the columns, and only their names are replaced.

sqlglot parses the text. Spark gets the user's own text, with every column reference replaced by a bare backticked name.
So Spark evaluates what the user typed, not the output of another SQL generator.

    parse_condition("a.x = b.x AND lower(a.City) = 'oslo' AND a.p < b.p")
        equalities   a.x = b.x
        filters      a: lower(`city`) = 'oslo'        left to Spark, at the source
        residuals    a.p < b.p                        evaluated by the engine

`place` decides where a conjunct is evaluated; `query/placing.py` has all places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import TokenType

from watersmeet.errors import QueryError
from watersmeet.query.coercion import check_predicate
from watersmeet.query.expressions import Column, Expression, quote
from watersmeet.query.fragments import at, start_of
from watersmeet.query.functions import refuse_unfit_functions
from watersmeet.query.joingraph import check_equality
from watersmeet.query.names import Reference, resolve, type_of_column
from watersmeet.query.registered import with_own_calls
from watersmeet.query.relations import Equality, Filter, SparkPredicate, Stream
from watersmeet.query.residual import to_expression

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Condition:
    """The parts of a join condition. An equality of two columns of one stream is a filter *and* an equality: Spark
    evaluates it, and it can connect key classes."""

    equalities: tuple[Equality, ...]
    filters: tuple[Filter, ...]
    residuals: tuple[Expression, ...]
    spark: tuple[SparkPredicate, ...] = ()


Placed: TypeAlias = Equality | Filter | SparkPredicate | Expression


@dataclass(frozen=True, slots=True)
class SqlText:
    """A parsed text and its columns: for each, sqlglot's node, start and end of the name, and the column it means."""

    text: str
    tree: Any
    columns: tuple[tuple[Any, int, int, Reference], ...]

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(sorted({reference.column.stream for *_, reference in self.columns}))

    def reference(self, node: Any) -> Reference:
        return next(reference for known, _, _, reference in self.columns if known is node)

    def with_names(self, name: Callable[[Column], str]) -> str:
        """The text with each column, its stream included, replaced by a backticked name. Fields stay as they are."""
        text = self.text
        for start, end, reference in sorted({(s, e, r) for _, s, e, r in self.columns}, key=lambda c: -c[0]):
            text = text[:start] + quote(name(reference.column)) + text[end:]
        return text


def parse_condition(
    text: str,
    streams: Sequence[Stream],
    place: Callable[[SqlText], Iterable[Placed]] | None = None,
    own: Collection[str] = (),
) -> Condition:
    """Split a condition at AND and place the conjuncts; QueryError names one that has no place.

    `own` are the names of registered predicates. Without a `place`, Spark evaluates filters only.
    """
    parse(text, into=exp.Condition, own=own)
    placed: list[Placed] = []
    for start, conjunct in _conjuncts(text):
        with at(start):
            sql = read(conjunct, parse(conjunct, into=exp.Condition, own=own), streams)
            if not sql.streams:
                raise QueryError(
                    f"condition '{on_one_line(conjunct)}' refers to no stream",
                    hint="leave it out, or name a column as stream.column",
                    error_class="CONSTANT_CONDITION",
                )
            placed += place_plainly(sql, streams) if place is None else place(sql)
    return Condition(
        equalities=tuple(item for item in placed if isinstance(item, Equality)),
        filters=tuple(item for item in placed if isinstance(item, Filter)),
        residuals=tuple(item for item in placed if not isinstance(item, Equality | Filter | SparkPredicate)),
        spark=tuple(item for item in placed if isinstance(item, SparkPredicate)),
    )


def place_plainly(sql: SqlText, streams: Sequence[Stream]) -> list[Placed]:
    """A conjunct over one stream is a filter, a plain equality is part of a key, the engine evaluates all others."""
    equality = plain_equality(sql)
    placed: list[Placed] = [] if equality is None else [equality]
    if len(sql.streams) == 1:
        placed.append(Filter(sql.streams[0], sql.with_names(lambda column: column.name)))
    elif equality is None:
        placed.append(_residual(sql, streams))
    else:
        check_equality(streams, equality)
    return placed


def parse(text: str, *, into: Any = None, aggregates: bool = False, own: Collection[str] = ()) -> Any:
    """sqlglot's tree for one expression; QueryError with the position of the mistake."""
    what = f"'{on_one_line(text)}'"
    tokens = with_own_calls(tokenize(text, what), own)
    if not tokens:
        raise syntax_error(what, "it is empty", 0)
    for index, token in enumerate(tokens):
        if _is_stray(tokens, index):
            raise syntax_error(what, f"unexpected '{token.text}'", token.start)
    refuse_unfit_functions(tokens, aggregates=aggregates)
    with parser_errors(text, what):
        tree = _tree(text, tokens, into)
    _refuse_unfit_nodes(text, tree)
    return tree


def _is_stray(tokens: Sequence[Any], index: int) -> bool:
    """Whether a token is a semicolon, or a comma with nothing on one side. The parser ignores both."""
    before, kind, after = (
        tokens[i].token_type if 0 <= i < len(tokens) else None for i in (index - 1, index, index + 1)
    )
    if kind != TokenType.COMMA:
        return bool(kind == TokenType.SEMICOLON)
    return before in (None, TokenType.L_PAREN, TokenType.L_BRACKET) or after in (
        None,
        TokenType.COMMA,
        TokenType.R_PAREN,
        TokenType.R_BRACKET,
    )


def tokenize(text: str, what: str) -> list[Any]:
    """sqlglot's tokens of a text, called `what` in messages."""
    with parser_errors(text, what):
        return list(sqlglot.tokenize(text, dialect="spark"))


@contextmanager
def parser_errors(text: str, what: str) -> Iterator[None]:
    """Turn errors of sqlglot into QueryErrors."""
    try:
        yield
    except ParseError as error:
        raise _from_parser(text, what, error) from None
    except SqlglotError:
        raise syntax_error(what, *_left_open(text)) from None


def syntax_error(what: str, reason: str, position: int) -> QueryError:
    return QueryError(f"cannot read {what}: {reason}", error_class="SYNTAX_ERROR", position=position)


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def _tree(text: str, tokens: list[Any], into: Any) -> Any:
    parser = Dialect.get_or_raise("spark").parser()
    trees = parser.parse(tokens, text) if into is None else parser.parse_into(into, tokens, text)
    if not trees or trees[0] is None:
        raise ParseError(f"no expression in '{text}'")
    return trees[0]


def read(text: str, tree: Any, streams: Sequence[Stream]) -> SqlText:
    """Resolve every column of a parsed text."""
    columns = []
    for node in tree.find_all(exp.Column):
        columns.append((node, *locate(node, streams)))
    return SqlText(text, tree, tuple(columns))


def locate(node: Any, streams: Sequence[Stream]) -> tuple[int, int, Reference]:
    """Start and end of a column's name, without fields, and the column it means."""
    parts = node.parts
    if any("start" not in part.meta for part in parts):
        raise syntax_error(f"'{node.sql(dialect='spark')}'", "it is no name", start_of(node) or 0)
    try:
        reference = resolve(streams, [part.name for part in parts])
    except QueryError as error:
        wrong = parts[1] if error.error_class == "UNKNOWN_COLUMN" and len(parts) > 1 else parts[0]
        error.position = wrong.meta["start"]
        raise
    return parts[0].meta["start"], parts[reference.parts - 1].meta["end"] + 1, reference


def split_conjuncts(text: str) -> list[str]:
    """The texts between the ANDs of the top level, parentheses around the whole removed."""
    return [conjunct for _, conjunct in _conjuncts(text)]


def _conjuncts(text: str) -> list[tuple[int, str]]:
    tokens = sqlglot.tokenize(text, dialect="spark")
    return [(part[0].start, text[part[0].start : part[-1].end + 1]) for part in _split(tokens)]


def _split(tokens: Sequence[Any]) -> list[Sequence[Any]]:
    if not tokens:
        raise syntax_error("the condition", "something is missing around AND", 0)
    depth, betweens, start = 0, 0, 0
    parts: list[Sequence[Any]] = []
    wrapped = tokens[0].token_type == TokenType.L_PAREN
    for index, token in enumerate(tokens):
        if index and tokens[index - 1].token_type == TokenType.DOT:
            continue  # a field may be called `end`
        match token.token_type:
            case TokenType.L_PAREN | TokenType.L_BRACKET | TokenType.CASE:
                depth += 1
            case TokenType.R_PAREN | TokenType.R_BRACKET:
                depth -= 1
                wrapped = wrapped and (depth > 0 or index == len(tokens) - 1)
            case TokenType.END if depth:
                depth -= 1
            case TokenType.OR if depth == 0:
                return [tokens]
            case TokenType.BETWEEN if depth == 0:
                betweens += 1
            case TokenType.AND if depth == 0 and betweens:
                betweens -= 1
            case TokenType.AND if depth == 0:
                parts.append(tokens[start:index])
                start = index + 1
    if wrapped:
        return _split(tokens[1:-1])
    if not parts:
        return [tokens]
    return [conjunct for part in (*parts, tokens[start:]) for conjunct in _split(part)]


def plain_equality(sql: SqlText) -> Equality | None:
    tree = sql.tree
    if not (isinstance(tree, exp.EQ) and all(isinstance(side, exp.Column) for side in (tree.left, tree.right))):
        return None
    left, right = sql.reference(tree.left), sql.reference(tree.right)
    return None if left.fields or right.fields else Equality(left.column, right.column)


def _residual(sql: SqlText, streams: Sequence[Stream]) -> Expression:
    expr = to_expression(sql.tree, sql.reference, lambda column: type_of_column(streams, column))
    check_predicate(expr, lambda column: type_of_column(streams, column))
    return expr


def _refuse_unfit_nodes(text: str, tree: Any) -> None:
    refused = (
        ((exp.Select, exp.Subquery, exp.SetOperation), "a subquery", "join its rows as a stream of their own"),
        ((exp.Placeholder, exp.Parameter), "a parameter", "write its value into the text"),
    )
    for kinds, name, hint in refused:
        if tree.find(*kinds) is not None:
            raise QueryError(
                f"{name} cannot be used in a join",
                hint=hint,
                error_class="UNSUPPORTED_SYNTAX",
                position=_start_of_unfit(text),
            )


def _start_of_unfit(text: str) -> int:
    kinds = (TokenType.SELECT, TokenType.PLACEHOLDER, TokenType.COLON, TokenType.PARAMETER, TokenType.L_BRACE)
    return next((token.start for token in tokenize(text, "it") if token.token_type in kinds), 0)


def _from_parser(text: str, what: str, error: ParseError) -> QueryError:
    if not error.errors:
        return syntax_error(what, "it cannot be read", 0)
    first = error.errors[0]
    description, word = str(first["description"]), str(first["highlight"])
    lines = text.split("\n")
    position = sum(len(line) + 1 for line in lines[: first["line"] - 1]) + first["col"] - len(word)
    if position + len(word) >= len(text.rstrip()) and "missing" in description:
        return syntax_error(what, "it ends too early", len(text.rstrip()))
    if description.startswith("Expecting"):
        return syntax_error(what, description.lower(), position + len(word))
    return syntax_error(what, f"unexpected '{word}'", position)


def _left_open(text: str) -> tuple[str, int]:
    """What is not closed in a text: a quote, or else a comment."""
    blanked = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
    quotes = [index for index, char in enumerate(blanked) if char in "'\"`"]
    comment = blanked.rfind("/*")
    if blanked.count("/*") > blanked.count("*/") and not any(quote < comment for quote in quotes):
        return "a comment is not closed", comment
    return "a quote is not closed", quotes[0] if quotes else len(text)
