"""From a select list, GROUP BY and HAVING to values of joined rows and Spark SQL over groups.

A call of an aggregate becomes a column of the groups, and so does an expression that the rows are grouped by. No column
of a stream may remain outside of these:

    SELECT upper(a.city) AS city, sum(b.price) / count(*) AS mean ... GROUP BY upper(a.city)
        keys         `_k0`  upper(`a_city`)
        aggregates   `_a0`  sum of `b_price`        `_a1`  count
        select       `_k0` AS city,  `_a0` / `_a1` AS mean

The rest of the text is the user's own. A grouping expression is recognised by its words, with columns resolved. It
counts only where parentheses around it would change nothing (`a.x + 1` is not a part of `a.x + 1 * 2`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.query.aggregate_calls import AggregateCall, aggregate_call
from watersmeet.query.aggregates import (
    RESULT_TIME,
    WINDOW,
    Aggregate,
    Aggregation,
    ResultWindow,
    Value,
    aggregate_column,
    key_column,
)
from watersmeet.query.analysis import Analyse
from watersmeet.query.expression_words import Entry, entries_of, is_part, parsed
from watersmeet.query.expressions import Column, quote
from watersmeet.query.fragments import Fragment, at
from watersmeet.query.group_keys import GroupKeys, group_keys, refuse_many_groupings
from watersmeet.query.relations import SelectItem, Stream, internal_name
from watersmeet.query.select_texts import SelectText, select_text
from watersmeet.query.selection import check_internal_names, check_unique, missing_alias, name_of_field
from watersmeet.query.sqltext import locate, on_one_line, tokenize
from watersmeet.query.values import value_of


def aggregate_query(
    streams: Sequence[Stream],
    select: Sequence[Fragment],
    group_by: Sequence[Fragment],
    having: Sequence[Fragment],
    *,
    windowed: bool,
    analyse: Analyse | None,
) -> tuple[Aggregation, tuple[SelectItem, ...]]:
    """The aggregation and the select list over its groups. A QueryError shows line, column and caret."""
    refuse_many_groupings(group_by)
    texts = [select_text(fragment) for fragment in select]
    keys = group_keys(streams, group_by, texts, windowed=windowed, analyse=analyse)
    groups = _Groups(streams, keys, analyse)
    items: list[SelectItem] = []
    for text in texts:
        with text.fragment.drawn():
            items.append(_item(groups, text))
            check_unique(items)
    aliases = {text.alias.lower(): item.sql or "" for text, item in zip(texts, items, strict=True) if text.alias}
    conditions: list[str] = []
    for fragment in having:
        with fragment.drawn():
            conditions.append(groups.sql(_without_last_comment(fragment.text), aliases).strip())
            groups.check_condition(conditions[-1], fragment.text)
            check_internal_names(groups.columns())
    for text, item in zip(texts, items, strict=True):
        with text.fragment.drawn():
            check_internal_names(groups.columns())
            if item.sql not in groups.names():
                groups.check(item.sql or "")
    aggregation = Aggregation(
        tuple(key.value for key in keys.keys), tuple(groups.aggregates.values()), keys.window, _all(conditions)
    )
    return aggregation, tuple(items)


def _without_last_comment(text: str) -> str:
    """The text without a comment at its end, so that other text can follow it."""
    tokens = tokenize(text, text)
    return text[: tokens[-1].end + 1] if tokens else text


def _all(conditions: Sequence[str]) -> str | None:
    if len(conditions) > 1:
        return " AND ".join(f"({condition})" for condition in conditions)
    return conditions[0] if conditions else None


def _item(groups: _Groups, text: SelectText) -> SelectItem:
    sql = groups.sql(text.expression, {})
    name = text.alias or _default_name(groups.streams, text, groups.keys.window)
    if name is None:
        raise missing_alias(text.fragment.text)
    return SelectItem(name, None, sql, ())


def _default_name(streams: Sequence[Stream], text: SelectText, window: ResultWindow | None) -> str | None:
    tree = parsed(text.expression)
    match tree:
        case exp.Column() | exp.Dot() if (column := tree.find(exp.Column)) is not None:
            if window is not None and column.parts[0].name.lower() == WINDOW:
                return "_".join(part.name.lower() for part in column.parts)
            _, _, reference = locate(column, streams)
            return name_of_field(tree, column, internal_name(reference.column), reference.fields)
        case exp.Anonymous() if window is not None and tree.name.lower() == WINDOW:
            return WINDOW
    return None


@dataclass(slots=True)
class _Groups:
    """The columns of the groups. Aggregates are added as they are met."""

    streams: Sequence[Stream]
    keys: GroupKeys
    analyse: Analyse | None
    aggregates: dict[tuple[object, ...], Aggregate] = field(default_factory=dict)

    def sql(self, text: str, aliases: Mapping[str, str]) -> str:
        """Translate a text over joined rows into one over groups. An alias is replaced by its expression."""
        apart = self.keys.apart | aliases.keys()
        entries = entries_of(text, self.streams, apart)
        for start, end, name in reversed(list(self._places(text, entries, aliases))):
            text = text[:start] + name + text[end:]
        return text

    def _places(
        self, text: str, entries: Sequence[Entry], aliases: Mapping[str, str]
    ) -> Iterator[tuple[int, int, str]]:
        i = 0
        while i < len(entries):
            entry = entries[i]
            with at(entry.start):
                call = aggregate_call(text, entries, i)
            if call is not None:
                yield entry.start, call.end, quote(self._aggregate(call))
                i += call.length
            elif (found := self._key_at(text, entries, i)) is not None:
                name, length = found
                yield entry.start, entries[i + length - 1].end, quote(name)
                i += length
            else:
                if entry.apart is not None:
                    yield entry.start, entry.end, self._apart(entry, aliases)
                elif entry.column is not None:
                    raise _neither(entry.column, entry.start)
                i += 1

    def _key_at(self, text: str, entries: Sequence[Entry], i: int) -> tuple[str, int] | None:
        for name, words in self.keys.by_length:
            run = entries[i : i + len(words)]
            if tuple(entry.word for entry in run) != words:
                continue
            if len(words) == 1 or is_part(text, run[0].start, run[-1].end):
                return name, len(words)
        return None

    def _apart(self, entry: Entry, aliases: Mapping[str, str]) -> str:
        if entry.apart is not None and entry.apart in aliases:
            return f"({aliases[entry.apart]})"
        if entry.apart == WINDOW and self.keys.window is not None:
            return quote(WINDOW)
        raise _no_such_time(entry)

    def _aggregate(self, call: AggregateCall) -> str:
        """The column of a call; equal calls share one."""
        with at(call.start):
            entries = entries_of(call.argument, self.streams, self.keys.apart) if call.argument else []
            for entry in entries:
                if entry.apart is not None:
                    raise _no_such_time(entry)
            key = (call.function, *(entry.word for entry in entries))
            if key not in self.aggregates:
                argument = value_of(call.argument, self.streams, self.analyse) if call.argument else None
                self.aggregates[key] = call.of(argument, self.streams)
        return aggregate_column(list(self.aggregates).index(key))

    def names(self) -> set[str]:
        """The columns of the groups, in backticks."""
        keys = [key_column(i) for i in range(len(self.keys.keys))]
        return {quote(name) for name in (*keys, *map(aggregate_column, range(len(self.aggregates))), WINDOW)}

    def columns(self) -> Iterator[Column]:
        """Every column of a stream that keys and aggregates read."""
        values = (*(key.value for key in self.keys.keys), *(a.argument for a in self.aggregates.values()))
        for value in values:
            if isinstance(value, Value):
                yield from value.refs

    def check(self, sql: str) -> pa.DataType | None:
        """The type that Spark gives to an expression over groups; None without Spark."""
        if self.analyse is None:
            return None
        fields = [pa.field(key_column(i), key.value.type) for i, key in enumerate(self.keys.keys)]
        fields += [pa.field(aggregate_column(i), a.type) for i, a in enumerate(self.aggregates.values())]
        if self.keys.window is not None:
            stream = next(stream for stream in self.streams if stream.event_time is not None)
            time = stream.schema.field(stream.event_time).type
            fields.append(pa.field(WINDOW, pa.struct([("start", time), ("end", time)])))
        return self.analyse(sql, fields)

    def check_condition(self, sql: str, text: str) -> None:
        if self.check(sql) not in (None, pa.bool_(), pa.null()):
            raise QueryError(
                f"'{on_one_line(text)}' is not a condition",
                hint="compare it with something",
                error_class="TYPE_MISMATCH",
            )


def _no_such_time(entry: Entry) -> QueryError:
    if entry.apart == WINDOW:
        message, hint = "the rows are not grouped by a window", f"add GROUP BY window({RESULT_TIME}, '10 minutes')"
    else:
        message = f"{RESULT_TIME} stands only in window({RESULT_TIME}, ...), as typed in GROUP BY"
        hint = "use window.start or window.end, or the event time of a stream"
    return QueryError(message, hint=hint, error_class="UNGROUPED_COLUMN", position=entry.start)


def _neither(column: Column, position: int) -> QueryError:
    name = f"{column.stream}.{column.name}"
    return QueryError(
        f"column {name} is neither aggregated nor grouped",
        hint=f"add it to GROUP BY, or say which of its values: min({name}), say",
        error_class="UNGROUPED_COLUMN",
        position=position,
    )
