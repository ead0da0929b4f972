"""GROUP BY keys: columns, expressions, an alias or the number of a select item, and windows of the result time.

    GROUP BY a.city, upper(b.name), 3, loud, window(result_time, '10 minutes', '5 minutes')

As in Spark a name is first a column of a stream, then an alias. The window is one of the *result time*, the latest
event time of a joined row's parts, and needs a join with windows: only then is a group ever final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from watersmeet.errors import OptionError, QueryError
from watersmeet.query.aggregates import RESULT_TIME, WINDOW, ResultWindow, Value, key_column
from watersmeet.query.analysis import Analyse
from watersmeet.query.expression_words import Word, entries_of, without_parentheses
from watersmeet.query.fragments import Fragment, start_of
from watersmeet.query.functions import calls_aggregate
from watersmeet.query.names import resolve
from watersmeet.query.relations import Stream
from watersmeet.query.select_texts import SelectText
from watersmeet.query.selection import without_alias
from watersmeet.query.sqltext import parse, tokenize
from watersmeet.query.values import check_comparable, value_of
from watersmeet.units import parse_duration_us


@dataclass(frozen=True, slots=True)
class GroupKey:
    words: tuple[Word, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """The distinct keys, the window with its words, and the names that are not columns."""

    keys: tuple[GroupKey, ...]
    window: ResultWindow | None
    window_words: tuple[Word, ...]
    apart: frozenset[str]

    @property
    def by_length(self) -> list[tuple[str, tuple[Word, ...]]]:
        """The columns of the groups with the words of their expressions, the longest first."""
        named = [(key_column(i), key.words) for i, key in enumerate(self.keys)]
        if self.window is not None:
            named.append((WINDOW, self.window_words))
        return sorted(named, key=lambda item: -len(item[1]))


def refuse_many_groupings(group_by: Sequence[Fragment]) -> None:
    """Raise QueryError for several lists of keys: CUBE, ROLLUP, GROUPING SETS."""
    for fragment in group_by:
        with fragment.drawn():
            for token in tokenize(fragment.text, fragment.text)[:1]:
                if token.text.upper() in ("ROLLUP", "CUBE", "GROUPING SETS"):
                    raise _refused(f"{token.text.upper()} is not supported", "group by plain columns")


def group_keys(
    streams: Sequence[Stream],
    group_by: Sequence[Fragment],
    select: Sequence[SelectText],
    *,
    windowed: bool,
    analyse: Analyse | None,
) -> GroupKeys:
    """The keys of GROUP BY. A QueryError shows line, column and caret."""
    apart = frozenset(name for name in (RESULT_TIME, WINDOW) if not _is_column(streams, name))
    keys: dict[tuple[Word, ...], GroupKey] = {}
    windows: dict[tuple[Word, ...], ResultWindow] = {}
    for fragment in group_by:
        with fragment.drawn():
            meant = _key_expression(streams, fragment.stripped(), select)
        with meant.drawn():
            entries = without_parentheses(entries_of(meant.text, streams, apart))
            words = tuple(entry.word for entry in entries)
            meant = meant.part(entries[0].start, entries[-1].end)
        with meant.drawn():
            tree = parse(meant.text)
            if isinstance(tree, exp.Anonymous) and tree.name.lower() == "session_window":
                raise _refused("a session window is not supported", f"write window({RESULT_TIME}, '10 minutes')")
            if _is_window(tree):
                windows[words] = _result_window(tree, windowed)
                if len(windows) > 1:
                    raise _refused("rows can be grouped by one window only", "leave one out")
                continue
            value = value_of(meant.text, streams, analyse)
            if not value.refs:
                raise _refused(f"{meant.text} is the same for all rows", "leave it out of GROUP BY")
            check_comparable(value, streams, "GROUP BY")
            keys.setdefault(words, GroupKey(words, value))
    window_words, window = next(iter(windows.items()), ((), None))
    return GroupKeys(tuple(keys.values()), window, window_words, apart)


def _key_expression(streams: Sequence[Stream], fragment: Fragment, select: Sequence[SelectText]) -> Fragment:
    """The expression of a key: the key itself, or the select item that it names by number or alias."""
    tree: Any = parse(fragment.text)
    match tree:
        case exp.Literal() if not tree.is_string and tree.name.isdigit():
            return _numbered(fragment, select)
        case exp.Column() if len(tree.parts) == 1 and not _is_column(streams, tree.name):
            named = [item for item in select if (item.alias or "").lower() == tree.name.lower()]
            return _expression(named[0]) if named else fragment
        case exp.Alias():
            return fragment.part(0, len(without_alias(fragment.text, tree)))
    return fragment


def _numbered(fragment: Fragment, select: Sequence[SelectText]) -> Fragment:
    number = int(fragment.text)
    if not 1 <= number <= len(select):
        raise _refused(f"there is no column {number} in the select list", f"it has {len(select)}")
    if calls_aggregate(select[number - 1].expression):
        raise _refused(f"column {number} of the select list is an aggregate", "group by columns of the streams")
    return _expression(select[number - 1])


def _expression(item: SelectText) -> Fragment:
    return item.fragment.part(0, len(item.expression))


def _is_column(streams: Sequence[Stream], name: str) -> bool:
    """Whether a stream has this name, or a column of this name."""
    if name.lower() in (stream.name.lower() for stream in streams):
        return True
    try:
        resolve(streams, [name])
    except QueryError as error:
        return error.error_class != "UNKNOWN_COLUMN"
    return True


def _is_window(tree: Any) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.lower() == WINDOW


def _result_window(tree: Any, windowed: bool) -> ResultWindow:
    time, *durations = tree.expressions or [None]
    if not (isinstance(time, exp.Column) and len(time.parts) == 1 and time.name.lower() == RESULT_TIME):
        raise _refused(
            f"window takes {RESULT_TIME}, the latest event time in a joined row",
            f"write window({RESULT_TIME}, '10 minutes')",
            None if time is None else start_of(time),
        )
    if not 1 <= len(durations) <= 2:
        hint = f"write window({RESULT_TIME}, '10 minutes') or window({RESULT_TIME}, '10 minutes', '5 minutes')"
        raise _refused("window takes a length and, if it slides, by how much", hint)
    length, slide = _duration(durations[0]), _duration(durations[-1])
    if slide > length:
        hint = "windows would leave gaps: slide by the length or less"
        raise _refused("the window slides by more than its length", hint, start_of(durations[1]))
    if not windowed:
        raise _refused(
            "a window of time needs a join with windows: without them no result is ever final",
            "bound the join with within, or with [RANGE ...] in the text",
        )
    return ResultWindow(length, slide)


def _duration(node: Any) -> int:
    if not (isinstance(node, exp.Literal) and node.is_string):
        raise _refused("a window is as long as a text says", "write it like '10 minutes'", start_of(node))
    try:
        return parse_duration_us(str(node.this))
    except OptionError as error:
        raise QueryError(
            error.message, hint=error.hint, error_class=error.error_class, position=start_of(node)
        ) from None


def _refused(message: str, hint: str, position: int | None = None) -> QueryError:
    return QueryError(message, hint=hint, error_class="INVALID_GROUP_BY", position=position)
