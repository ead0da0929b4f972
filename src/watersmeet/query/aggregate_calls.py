"""Calls of aggregates in a text: `count(*)`, `count(DISTINCT a.x)`, `sum(a.x * 2)`.

Spark also accepts FILTER, DISTINCT in a sum, and several arguments. These are refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.query.aggregate_types import aggregate_type
from watersmeet.query.aggregates import Aggregate, AggregateName, Value
from watersmeet.query.expression_words import Entry, Word, closing
from watersmeet.query.functions import SUPPORTED_AGGREGATES
from watersmeet.query.relations import Stream
from watersmeet.query.values import check_comparable, is_constant

_NAMES: dict[str, AggregateName] = {
    "count": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
}


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call: the text of its argument (None for `count(*)`), where the argument starts, and where the call ends."""

    function: AggregateName
    argument: str | None
    start: int
    end: int
    length: int

    def of(self, argument: Value | None, streams: Sequence[Stream]) -> Aggregate:
        """The aggregate of an argument; QueryError if its type does not fit."""
        if argument is None:
            return Aggregate(self.function, None, pa.int64())
        if not argument.refs:
            raise QueryError(
                f"{argument.sql} is the same for all rows",
                hint="count(*) says how many there are: compute with that",
                error_class="CONSTANT_ARGUMENT",
            )
        type_ = aggregate_type(self.function, argument.type)
        if self.function in ("min", "max", "count_distinct"):
            check_comparable(argument, streams, "count(DISTINCT ...)" if type_ == pa.int64() else self.function)
        return Aggregate(self.function, argument, type_)


def aggregate_call(text: str, entries: Sequence[Entry], i: int) -> AggregateCall | None:
    """The aggregate call that starts at an entry. Positions in errors are relative to that entry."""
    words = [entry.word for entry in entries]
    name = str(words[i][0])
    if len(words[i]) > 1 or name not in SUPPORTED_AGGREGATES or words[i + 1 : i + 2] != [("(",)]:
        return None
    end = closing(words, i + 1)
    if end is None or (i and words[i - 1] == (".",)):
        return None
    _check_behind(entries[end + 1 : end + 3], entries[i].start)
    inner = list(entries[i + 2 : end])
    distinct = bool(inner) and inner[0].word == ("distinct",)
    if inner and inner[0].word in (("distinct",), ("all",)):
        inner = inner[1:]
    _check_arguments(name, [entry.word for entry in inner], distinct)
    argument = text[inner[0].start : inner[-1].end]
    if argument == "*" or (name == "count" and not distinct and is_constant(argument)):
        return AggregateCall("count", None, inner[0].start, entries[end].end, end + 1 - i)
    function: AggregateName = "count_distinct" if distinct else _NAMES[name]
    return AggregateCall(function, argument, inner[0].start, entries[end].end, end + 1 - i)


def _check_behind(behind: Sequence[Entry], start: int) -> None:
    words = [str(entry.word[0]) for entry in behind]
    match words:
        case ["filter", "("]:
            what, hint = "FILTER (WHERE ...)", "write sum(CASE WHEN ... THEN ... END), say"
        case ["within", _]:
            what, hint = "WITHIN GROUP (...)", "leave it out: no aggregate here depends on order"
        case ["ignore" | "respect", _]:
            what, hint = f"{words[0].upper()} NULLS", "leave it out: NULLs never count"
        case _:
            return
    raise _unsupported(what, hint, behind[0].start - start)


def _check_arguments(name: str, words: Sequence[Word], distinct: bool) -> None:
    if not words:
        wanted = "*" if name == "count" else "stream.column"
        raise _unsupported(f"{name}() without an argument", f"write {name}({wanted})", 0)
    if distinct and name != "count":
        # DISTINCT changes nothing: the least distinct value is the least value.
        hint = f"write {name}(...) without it" if name in ("min", "max") else "only count takes it"
        raise _unsupported(f"DISTINCT in {name}()", hint, 0)
    if words[-1] == ("*",) and (name != "count" or distinct or len(words) > 1):
        raise _unsupported(f"* in {name}({'DISTINCT ' * distinct}...)", "name a column, or write count(*)", 0)
    if any(word == (",",) and closing_depth(words, i) == 0 for i, word in enumerate(words)):
        raise _unsupported(f"{name}() of several arguments", "give it one", 0)


def closing_depth(words: Sequence[Word], i: int) -> int:
    """How many parentheses and brackets are open before a word."""
    opened = sum(word in (("(",), ("[",)) for word in words[:i])
    return opened - sum(word in ((")",), ("]",)) for word in words[:i])


def _unsupported(what: str, hint: str, position: int) -> QueryError:
    return QueryError(f"{what} is not supported", hint=hint, error_class="UNSUPPORTED_SYNTAX", position=position)
