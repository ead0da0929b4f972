"""Arguments of the builder and the writer where text is expected: accepted if the meaning is clear, else refused with
the text to write instead.

| given            | where                                      | taken as                                    |
|------------------|--------------------------------------------|---------------------------------------------|
| `str`            | anywhere                                   | itself                                      |
| `timedelta`      | a duration, the value of an option         | its microseconds                            |
| a list, a tuple  | `select`, `groupBy`, `agg`, `partitionBy`  | its elements                                |
| a number, a path | the value of an option                     | its text                                    |
| a Column         | anywhere                                   | refused: names of streams are unknown to it |
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame

from watersmeet.errors import OptionError, QueryError, SinkError
from watersmeet.units import format_duration, parse_duration_us

_MICROSECOND = timedelta(microseconds=1)
BAD_FUNCTION = "INVALID_FUNCTION"
_COLUMN_HINT = "write SQL text with the names of the streams, such as 'a.k' or 'a.price * 2 AS double_price'"


def text(what: str, given: Any, hint: str) -> str:
    """Any text that is not blank."""
    if isinstance(given, str) and given.strip():
        return given
    raise OptionError(f"{what} must be text, not {_shown(given)}", hint=hint, error_class="INVALID_ARGUMENT")


def condition(call: str, given: Any) -> str:
    """A condition, as text."""
    if isinstance(given, str) and given.strip():
        return given
    example = "count(*) > 1" if call == "having" else "a.k = b.k AND a.price < b.price"
    hint = f"write it as SQL text, such as {call}('{example}')"
    more = "; call it again for another one" if isinstance(given, list | tuple) else ""
    raise _not_text(call, given, hint + more)


def columns(call: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Columns or expressions, as texts, one by one or as one list."""
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
    for each in given:
        if not isinstance(each, str):
            raise _not_text(call, each, _COLUMN_HINT)
    return given


def names(call: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of result columns, one by one or as one list."""
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = tuple(given[0])
    for each in given:
        text(f"a column of {call}", each, f"name columns of the results, such as {call}('day')")
    return given


def duration(name: str, given: Any) -> str:
    """A duration, as text."""
    if isinstance(given, timedelta):
        us = given // _MICROSECOND
        return format_duration(us) if us > 0 else f"{us} microseconds"
    if isinstance(given, str):
        return given
    raise OptionError(
        f"{name} must be a duration, not {_shown(given)}",
        hint="write it like '10 minutes', or give a timedelta",
        error_class="INVALID_ARGUMENT",
    )


def duration_us(name: str, given: Any) -> int:
    """A duration of 0 or more, in microseconds; an error contains `name`."""
    text = duration(name, given)
    try:
        return parse_duration_us(text, allow_zero=True)
    except OptionError as error:
        raise OptionError(f"{name}: {error.message}", hint=error.hint, error_class=error.error_class) from None


def option_value(name: str, given: Any) -> str:
    """The value of an option, as text."""
    match given:
        case bool():
            return str(given).lower()
        case str() | int() | float():
            return str(given)
        case os.PathLike():
            return os.fspath(given)
        case timedelta():
            return duration(name, given)
    raise OptionError(
        f"option {name} must be text or a number, not {_shown(given)}",
        hint="leave the option out to have its default" if given is None else "write its value as text",
        error_class="INVALID_ARGUMENT",
    )


def batch_function(given: Any) -> Callable[..., Any]:
    """A function that can be called with the results and the number of an epoch."""
    hint = "write it like def send(results, epoch): ..., where results is a DataFrame and epoch its number"
    if not callable(given):
        raise SinkError(f"foreachBatch takes a function, not {_shown(given)}", hint=hint, error_class=BAD_FUNCTION)
    if (signature := _signature(given)) is not None:
        try:
            signature.bind(None, 0)
        except TypeError:
            name = getattr(given, "__name__", type(given).__name__)
            raise SinkError(
                f"foreachBatch calls its function with two arguments, and {name}{signature} does not take them",
                hint=hint,
                error_class=BAD_FUNCTION,
            ) from None
    return given


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return None


def _not_text(call: str, given: Any, hint: str) -> QueryError:
    return QueryError(f"{call} takes SQL text, not {_shown(given)}", hint=hint, error_class="INVALID_ARGUMENT")


def _shown(given: Any) -> str:
    if isinstance(given, Column):
        return f"the Column {str(given).removeprefix('Column<').removesuffix('>')}"
    if isinstance(given, DataFrame):
        return "a DataFrame"
    if given is None or isinstance(given, str):
        return repr(given)
    return f"{given!r} ({type(given).__name__})"
