"""SQL that a join of streams does not support: refused by name and place, never ignored.

The parser accepts far more than is supported. So every argument of a parser node that is not in `_USED` is refused,
also one that a later version of the parser adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.errors import QueryError
from watersmeet.query.fragments import start_of
from watersmeet.query.sqltext import syntax_error

_USED = {
    exp.Select: {"expressions", "from", "joins", "where", "group", "having", "kind"},
    exp.Table: {"this", "alias", "joins"},
    exp.Join: {"this", "on", "using", "kind", "side", "method"},
    exp.Group: {"expressions"},
}
_OUTPUT = "do it to the output of the join"
# By argument of a parser node: its name in SQL, and a hint.
_NAMES = {
    "distinct": ("DISTINCT", "results come as they are found: drop duplicates from the output"),
    "order": ("ORDER BY", f"a stream has no end to sort before: {_OUTPUT}"),
    "sort": ("SORT BY", f"a stream has no end to sort before: {_OUTPUT}"),
    "cluster": ("CLUSTER BY", _OUTPUT),
    "distribute": ("DISTRIBUTE BY", _OUTPUT),
    "limit": ("LIMIT", "stop the query when there is enough"),
    "offset": ("OFFSET", "leave it out"),
    "with": ("WITH", "name the DataFrame as a stream instead"),
    "hint": ("a hint", "leave it out: the plan is chosen while the query runs, or with option plan"),
    "laterals": ("LATERAL VIEW", "explode the stream's DataFrame before the join"),
    "pivots": ("PIVOT or UNPIVOT", _OUTPUT),
    "qualify": ("QUALIFY", _OUTPUT),
    "windows": ("the WINDOW clause", "window functions need all rows: " + _OUTPUT),
    "sample": ("TABLESAMPLE", "sample the stream's DataFrame before the join"),
    "version": ("time travel", "read the table as of that version into the stream's DataFrame"),
    "when": ("time travel", "read the table as of that version into the stream's DataFrame"),
    "into": ("INTO", "say where results go with writeStream"),
    "locks": ("FOR UPDATE", "leave it out"),
    "db": ("a qualified table name", "read the table with spark.readStream and give it as a stream"),
    "catalog": ("a qualified table name", "read the table with spark.readStream and give it as a stream"),
    "columns": ("a list of column aliases", "rename the columns in the DataFrame, with toDF"),
    "rollup": ("ROLLUP", "write GROUP BY over plain columns"),
    "cube": ("CUBE", "write GROUP BY over plain columns"),
    "grouping_sets": ("GROUPING SETS", "write GROUP BY over plain columns"),
    "totals": ("WITH TOTALS", "write GROUP BY over plain columns"),
    "all": ("GROUP BY ALL", "name the columns to group by"),
    "kind": ("SELECT AS STRUCT", "leave it out"),
}
# The words to search the text for, if they differ from the name.
_WORDS = {
    "a hint": ("/*+",),
    "LATERAL VIEW": ("LATERAL",),
    "the WINDOW clause": ("WINDOW",),
    "time travel": ("TIMESTAMP", "VERSION", "FOR"),
    "PIVOT or UNPIVOT": ("PIVOT", "UNPIVOT"),
    "GROUP BY ALL": ("ALL",),
    "LIMIT": ("LIMIT", "FETCH"),
    "WITH TOTALS": ("TOTALS",),
}
# The words before JOIN that are refused, with a hint if the usual one does not fit.
_JOINS = {
    TokenType.LEFT: "",
    TokenType.RIGHT: "",
    TokenType.FULL: "",
    TokenType.SEMI: "",
    TokenType.ANTI: "",
    TokenType.CROSS: "write JOIN ... ON, or a comma and a condition in WHERE",
    TokenType.NATURAL: "name the columns: JOIN ... USING (column)",
}
_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_SUBQUERY_HINT = "join its rows as a stream of their own"


def check_statement(tokens: Sequence[Any]) -> None:
    """Refuse what the tokens alone show. The parser's own errors for subqueries and other joins would be confusing."""
    first = tokens[0]
    if first.token_type == TokenType.WITH:
        raise _refused(*_NAMES["with"], first.start)
    if first.token_type != TokenType.SELECT:
        hint = "write SELECT ... FROM stream, stream WHERE ..."
        raise _refused(f"'{first.text.upper()}' at the start of a query", hint, first.start)
    from_seen, depth = False, 0
    for index, token in enumerate(tokens):
        kind = token.token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if kind in _SET_OPERATIONS and depth == 0 and tokens[index + 1 : index + 2]:
            following = tokens[index + 1].token_type
            if following in (TokenType.SELECT, TokenType.ALL, TokenType.DISTINCT, TokenType.L_PAREN) and from_seen:
                raise _refused(token.text.upper(), "start a query of its own for each part", token.start)
        if kind == TokenType.SELECT and index and tokens[index - 1].token_type != TokenType.DOT:
            raise _refused("a subquery", _SUBQUERY_HINT, token.start)
        if kind.name == "PIPE_GT":
            raise _refused("the pipe |>", "write the query as SELECT ... FROM ... WHERE ...", token.start)
        from_seen = from_seen or (kind == TokenType.FROM and depth == 0)
        if from_seen and depth == 0 and kind in _JOINS and _starts_join(tokens, index):
            raise _refused_join(tokens[index:])


def _starts_join(tokens: Sequence[Any], index: int) -> bool:
    """Whether a word such as LEFT belongs to a join. It can also be a function or a name."""
    following = [token.token_type for token in tokens[index + 1 : index + 4]]
    while following and following[0] in (*_JOINS, TokenType.OUTER, TokenType.INNER):
        following.pop(0)
    return following[:1] == [TokenType.JOIN]


def _refused_join(tokens: Sequence[Any]) -> QueryError:
    end = next(i for i, token in enumerate(tokens) if token.token_type == TokenType.JOIN)
    name = " ".join(token.text.upper() for token in tokens[: end + 1])
    hint = _JOINS[tokens[0].token_type] or "only inner joins are: write JOIN ... ON"
    return _refused(name, hint, tokens[0].start)


def refuse_unsupported(tree: Any, tokens: Sequence[Any]) -> None:
    """Raise QueryError for the first part of a parsed query that is not supported."""
    if not isinstance(tree, exp.Select):
        raise _refused(f"a statement of kind {type(tree).__name__.upper()}", "write SELECT ... FROM ...", 0)
    _check_node(tree, tokens)
    source = tree.args.get("from_", tree.args.get("from"))
    if not tree.expressions:
        raise syntax_error("the query", "nothing is selected", tokens[min(1, len(tokens) - 1)].start)
    if source is None:
        raise _refused("a query without FROM", "name the streams: FROM stream, stream", tokens[0].start)
    _check_table(source.this, tokens)
    for join in joins_of(tree):
        _check_join(join, tokens)
        _check_table(join.this, tokens)
        if join.this.args.get("joins") and any(part.args.get("using") for part in (join, *joins_of(join.this))):
            raise _refused("USING with a join inside another", "write the condition with ON", _place(tokens, "USING"))
    group = tree.args.get("group")
    if group is not None:
        _check_node(group, tokens)
        for key in group.expressions:
            name = {exp.Rollup: "rollup", exp.Cube: "cube", exp.GroupingSets: "grouping_sets"}.get(type(key))
            if name is not None:
                raise _named(name, tokens)


def joins_of(tree: Any) -> Iterator[Any]:
    """The joins of a query in the order of the text, nested ones included."""
    for join in tree.args.get("joins") or ():
        yield join
        yield from joins_of(join.this)


def _check_node(node: Any, tokens: Sequence[Any]) -> None:
    for name, value in node.args.items():
        if value and name.rstrip("_") not in _USED[type(node)]:
            raise _named(name.rstrip("_"), tokens)
    if isinstance(node, exp.Select) and node.args.get("kind"):
        raise _named("kind", tokens)


def _check_join(join: Any, tokens: Sequence[Any]) -> None:
    _check_node(join, tokens)
    # The dialect takes a comma for a cross join.
    if join.method or join.side or join.kind not in ("", "INNER", "CROSS"):
        name = " ".join(word for word in (join.method, join.side, join.kind) if word)
        raise _refused(f"{name} JOIN", "only inner joins are: write JOIN ... ON", start_of(join) or 0)


def _check_table(table: Any, tokens: Sequence[Any]) -> None:
    start = start_of(table) or 0
    match table:
        case exp.Table(this=exp.Identifier()):
            for name in ("db", "catalog"):
                if table.args.get(name):
                    raise _refused(*_NAMES[name], start)
            _check_node(table, tokens)
            if table.args.get("alias") and table.args["alias"].args.get("columns"):
                raise _refused(*_NAMES["columns"], start_of(table.args["alias"].args["columns"][0]) or start)
        case exp.Table(this=exp.Placeholder() | exp.Parameter()):
            raise _refused("a parameter", "write the name of the stream", _place(tokens, ":", "?", "@", "{", "$"))
        case exp.Table():
            raise _refused("a table function", "give its rows as a stream", start)
        case exp.Values():
            raise _refused(
                "VALUES", "give the rows as a stream, or write a condition with IN", _place(tokens, "VALUES")
            )
        case exp.Lateral() | exp.Unnest():
            place = _place(tokens, "LATERAL", "UNNEST", "APPLY")
            raise _refused("LATERAL", "explode the stream's DataFrame before the join", place)
        case _:
            raise _refused("a join in parentheses", "write the streams one after the other", start)


def _named(argument: str, tokens: Sequence[Any]) -> QueryError:
    name, hint = _NAMES.get(argument, (argument.upper().replace("_", " "), "leave it out"))
    return _refused(name, hint, _place(tokens, *_WORDS.get(name, (name.split(" ")[0],))))


def _place(tokens: Sequence[Any], *words: str) -> int:
    """The last such word outside of parentheses, since earlier ones may be names; of DISTINCT, the first."""
    places, depth = [tokens[0].start], 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type != TokenType.STRING and token.text.upper().split(" ")[0] in words:
            places.append(token.start)
    return places[1] if words == ("DISTINCT",) and len(places) > 1 else places[-1]


def _refused(what: str, hint: str, position: int) -> QueryError:
    return QueryError(f"{what} is not supported", hint=hint, error_class="UNSUPPORTED_SYNTAX", position=position)
