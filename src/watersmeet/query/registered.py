"""Python predicates under a name: `near(a.x, b.x)` in a condition calls the user's function.

The engine calls them, Spark never does; so a call may stand wherever the engine evaluates (beside AND, OR and NOT, with
any expression of the engine as argument), and a call over one stream is no filter but a residual like the others.

| kind           | is called with                               | returns                                          |
|----------------|----------------------------------------------|--------------------------------------------------|
| vectorised     | one pyarrow.Array per argument, equally long | a boolean pyarrow.Array, ChunkedArray or NumPy   |
| row by row     | one Python value per argument, None for NULL | True, False or None                              |

NULL means unknown, as in SQL: no result at the top, and NOT of it is unknown too.
A function must be *deterministic*: a row may be computed again after a failure, and must then meet the same rows. It
travels to the workers with the plan, as PySpark ships functions. A checkpoint knows it by name only: whoever changes
what it does changes the join from there on. Where Spark has a function of the same name, the registered one wins.
"""

from __future__ import annotations

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
"""What the parser sees before the name of a registered predicate, so that it takes it for nothing that it knows."""

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
    """A checked registration; QueryError if the name cannot be one, or the function is none."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name.lower() in _RESERVED:
        raise QueryError(
            f"'{name}' cannot be the name of a predicate",
            hint="use letters, digits and underscores, start with no digit, and take no word of SQL itself",
            error_class="INVALID_FUNCTION",
        )
    if not callable(function):
        raise QueryError(
            f"predicate '{name}' must be a function, not {type(function).__name__}", error_class="INVALID_FUNCTION"
        )
    return RegisteredFunction(name.lower(), function, vectorized)


def with_own_calls(tokens: Sequence[Any], names: Collection[str]) -> list[Any]:
    """The tokens with calls of registered predicates marked; every token stays where it is in the text."""
    marked = list(tokens)
    for i, (token, following) in enumerate(pairwise(tokens)):
        after_dot = i > 0 and tokens[i - 1].token_type == TokenType.DOT
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if following.token_type == TokenType.L_PAREN and not after_dot and not quoted and token.text.lower() in names:
            text = OWN + token.text.lower()
            marked[i] = Token(TokenType.VAR, text, token.line, token.col, token.start, token.end, token.comments)
    return marked


def own_call(node: Any) -> str | None:
    """The name of the registered predicate that a node calls, if it calls one."""
    if isinstance(node, exp.Anonymous) and isinstance(node.this, str) and node.this.startswith(OWN):
        return node.this.removeprefix(OWN)
    return None


def own_calls(tree: Any) -> list[str]:
    """The registered predicates that are called anywhere in a tree."""
    return [name for node in tree.find_all(exp.Anonymous) if (name := own_call(node)) is not None]
