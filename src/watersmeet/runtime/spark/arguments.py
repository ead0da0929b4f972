"""What callers hand to the builder where text is expected: taken if it can only mean one thing, else refused with the
text to write instead.

| given            | where                       | taken as                               |
|------------------|-----------------------------|----------------------------------------|
| `str`            | anywhere                    | itself                                 |
| `timedelta`      | a duration                  | its microseconds                       |
| a list, a tuple  | `select`, `groupBy`, `agg`  | its elements                           |
| a Column         | anywhere                    | refused: names of streams are unknown to it |
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import Column

from watersmeet.errors import OptionError, QueryError

_MICROSECOND = timedelta(microseconds=1)
_COLUMN_HINT = "write SQL text with the names of the streams, such as 'a.k' or 'a.price * 2 AS double_price'"


def condition(call: str, given: Any) -> str:
    """A condition, as text."""
    if isinstance(given, str):
        return given
    hint = f"write it as SQL text, such as {call}('a.k = b.k AND a.price < b.price')"
    raise _not_text(call, given, hint if isinstance(given, Column) else f"{hint}; call it again for another one")


def columns(call: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Columns or expressions, as texts, one by one or as one list."""
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
    for each in given:
        if not isinstance(each, str):
            raise _not_text(call, each, _COLUMN_HINT)
    return given


def duration(name: str, given: Any) -> str:
    """A duration, as text."""
    if isinstance(given, timedelta):
        return f"{given // _MICROSECOND} microseconds"
    if isinstance(given, str):
        return given
    raise OptionError(
        f"{name} must be a duration, not {_shown(given)}",
        hint="write it like '10 minutes', or give a timedelta",
        error_class="INVALID_ARGUMENT",
    )


def _not_text(call: str, given: Any, hint: str) -> QueryError:
    return QueryError(f"{call} takes SQL text, not {_shown(given)}", hint=hint, error_class="INVALID_ARGUMENT")


def _shown(given: Any) -> str:
    if isinstance(given, Column):
        return f"the Column {str(given).removeprefix('Column<').removesuffix('>')}"
    return f"{given!r} ({type(given).__name__})"
