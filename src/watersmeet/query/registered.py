"""Python predicates under a name: `near(a.x, b.x)` in a condition calls the user's function.

The engine calls them; Spark never does. So a call may appear wherever the engine evaluates (with AND, OR and NOT, and
with any expression of the engine as an argument), and a call over one stream is a residual, not a filter.

| kind           | is called with                               | returns                                          |
|----------------|----------------------------------------------|--------------------------------------------------|
| vectorised     | one pyarrow.Array per argument, equally long | a boolean pyarrow.Array, ChunkedArray or NumPy   |
| row by row     | one Python value per argument, None for NULL | True, False or None                              |

NULL means unknown, as in SQL: no result at the top, and NOT of it is unknown too. A function must be *deterministic*: a
row may be joined again after a failure, with the same results. It is sent to the workers with the plan, as PySpark
sends functions. A checkpoint knows it by name only, so another function of the same name changes the join from then on.
If Spark has a function of that name, the registered one is called.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import QueryError
from watersmeet.query.functions import words

OWN = "_own_"
"""A prefix for the names of registered predicates, so that the parser does not take them for functions it knows."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = words(
    """
    abs all and any as between case cast distinct div else end escape exists false filter from if ilike in interval is
    like not null or over regexp rlike select some then true when where within
    """
)


@dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A user's predicate; `name` is lower case, as names are compared without case."""

    name: str
    function: Callable[..., Any]
    vectorized: bool = True


def registered(name: str, function: Callable[..., Any], *, vectorized: bool = True) -> RegisteredFunction:
    """A checked registration; QueryError if the name is not valid or the function is not callable."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name.lower() in _RESERVED:
        raise QueryError(
            f"'{name}' cannot be the name of a predicate",
            hint="use letters, digits and underscores, start with no digit, and take no word of SQL itself",
            error_class="INVALID_FUNCTION",
        )
    if not callable(function):
        raise QueryError(
            f"predicate '{name}' must be a function, not {type(function).__name__}",
            hint=f"write register('{name}', function), where the function takes one pyarrow array per argument",
            error_class="INVALID_FUNCTION",
        )
    return RegisteredFunction(name.lower(), function, vectorized)


def require_arity(predicate: RegisteredFunction, arguments: int) -> None:
    """QueryError if the function cannot be called with this many arguments."""
    try:
        signature = inspect.signature(predicate.function)
    except (TypeError, ValueError):  # some functions written in C do not tell
        return
    try:
        signature.bind(*range(arguments))
    except TypeError:
        raise QueryError(
            f"predicate '{predicate.name}' is called with {arguments} arguments, and its function takes {signature}",
            hint="call it with as many arguments as the function has parameters",
            error_class="INVALID_FUNCTION",
        ) from None


def with_own_calls(tokens: Sequence[Any], names: Collection[str]) -> list[Any]:
    """The tokens, with calls of registered predicates prefixed. Positions in the text stay the same."""
    marked = list(tokens)
    for i, (token, following) in enumerate(pairwise(tokens)):
        after_dot = i > 0 and tokens[i - 1].token_type == TokenType.DOT
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if following.token_type == TokenType.L_PAREN and not after_dot and not quoted and token.text.lower() in names:
            text = OWN + token.text.lower()
            marked[i] = Token(TokenType.VAR, text, token.line, token.col, token.start, token.end, token.comments)
    return marked


def own_call(node: Any) -> str | None:
    """The name of the registered predicate that a node calls, or None."""
    if isinstance(node, exp.Anonymous) and isinstance(node.this, str) and node.this.startswith(OWN):
        return node.this.removeprefix(OWN)
    return None


def own_calls(tree: Any) -> list[str]:
    """The registered predicates that are called anywhere in a tree."""
    return [name for node in tree.find_all(exp.Anonymous) if (name := own_call(node)) is not None]
