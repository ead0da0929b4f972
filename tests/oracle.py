"""What the right answer is: the nested-loop join over the whole history, slow and obvious; and DuckDB for big data.

Nothing here calls the engine. Rows are dicts of Python values in which an event time is an int (microseconds), so that
a result can be compared, counted and printed. `canonical` brings the engine's results into the same form.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from tests.predicates import BY_ROW
from watersmeet.query.expressions import (
    Abs,
    And,
    Arithmetic,
    Call,
    Column,
    Compare,
    Expression,
    InList,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
)
from watersmeet.query.logical import JoinQuery, KeyClass

DAY_US = 86_400_000_000
Row = dict[str, Any]
Predicate = Callable[[Mapping[str, Row]], bool | None]
"""From the rows of a combination, by stream, to SQL's true, false or unknown."""


@dataclass
class Answer:
    """What the query owes: per batch the results that batch completes, and per stream the rows that came too late."""

    batches: list[Counter] = field(default_factory=list)
    late: Counter = field(default_factory=Counter)

    @property
    def results(self) -> Counter:
        return sum(self.batches, Counter())


def nested_loop_join(
    query: JoinQuery,
    batches: Sequence[Mapping[str, pa.Table]],
    *,
    predicates: Sequence[Predicate] | None = None,
    idle_timeout_ms: int | None = None,
    now_ms: Sequence[int] | None = None,
    starts_ms: Sequence[int] | None = None,
) -> Answer:
    """Every combination of rows, one of each stream, that agrees on the key classes, the windows and the predicates.

    A combination is a result of the batch that brought the last of its rows. `predicates` stand for the query's
    residuals if they are given.
    """
    answer = Answer([Counter() for _ in batches])
    found = combinations(query, batches, answer.late, predicates, idle_timeout_ms, now_ms, starts_ms)
    for batch, rows in found:
        result = tuple(rows[item.column.stream][item.column.name] for item in query.select)
        answer.batches[batch][tuple(map(_comparable, result))] += 1
    return answer


def combinations(
    query: JoinQuery,
    batches: Sequence[Mapping[str, pa.Table]],
    late: Counter,
    predicates: Sequence[Predicate] | None = None,
    idle_timeout_ms: int | None = None,
    now_ms: Sequence[int] | None = None,
    starts_ms: Sequence[int] | None = None,
) -> Iterator[tuple[int, dict[str, Row]]]:
    """The results as rows by stream, each with the batch that completes it; late rows are counted."""
    if predicates is None:
        predicates = [lambda rows, e=e: value_of(e, rows) for e in query.residuals]
    never = [0] * len(batches)
    history = _in_time(query, batches, late, idle_timeout_ms, now_ms or never, starts_ms or never)
    for combination in _same_key(query, history, ()):
        rows = {stream.name: row for stream, (_, row) in zip(query.streams, combination, strict=True)}
        if _in_windows(query, rows) and all(predicate(rows) is True for predicate in predicates):
            yield max(batch for batch, _ in combination), rows


def _in_time(
    query: JoinQuery,
    batches: Sequence[Mapping[str, pa.Table]],
    late: Counter,
    idle_timeout_ms: int | None,
    now_ms: Sequence[int],
    starts_ms: Sequence[int],
) -> list[list[tuple[int, Row]]]:
    """Per stream the (batch, row) pairs that count: not late by the watermark their batch started with, and timed."""
    history: list[list[tuple[int, Row]]] = [[] for _ in query.streams]
    latest: list[int | None] = [None] * len(query.streams)
    seen_ms: list[int | None] = [None] * len(query.streams)
    watermark: int | None = None
    for number, (batch, now, started) in enumerate(zip(batches, now_ms, starts_ms, strict=True)):
        for i, stream in enumerate(query.streams):
            rows = rows_of(batch[stream.name]) if stream.name in batch else []
            if rows:
                seen_ms[i] = now
            for row in rows:
                if not query.windowed:
                    history[i].append((number, row))
                    continue
                time = row[stream.event_time]
                if time is None:
                    continue
                if watermark is not None and time < watermark:
                    late[stream.name] += 1
                else:
                    history[i].append((number, row))
                latest[i] = time if latest[i] is None else max(latest[i], time)
        active = [i for i in range(len(query.streams)) if not _is_idle(seen_ms[i], started, now, idle_timeout_ms)]
        if query.windowed and active and all(latest[i] is not None for i in active):
            reached = min(latest[i] - query.streams[i].delay_us for i in active)
            watermark = reached if watermark is None else max(watermark, reached)
    return history


def _is_idle(seen_ms: int | None, started_ms: int, now: int, timeout_ms: int | None) -> bool:
    """A stream that was never seen is not idle: it holds the watermark back. While no driver ran, none was silent."""
    return timeout_ms is not None and seen_ms is not None and now - max(seen_ms, started_ms) > timeout_ms


def _same_key(query: JoinQuery, history: list[list[tuple[int, Row]]], chosen: tuple) -> Iterator[tuple]:
    """The nested loops: all combinations in which every two columns of a key class are equal."""
    ordinal = len(chosen)
    if ordinal == len(history):
        yield chosen
        return
    for batch, row in history[ordinal]:
        combination = (*chosen, (batch, row))
        if all(_agree(query, key_class, combination) for key_class in query.classes):
            yield from _same_key(query, history, combination)


def _agree(query: JoinQuery, key_class: KeyClass, combination: tuple) -> bool:
    """Whether the last row of the combination has the value of the class that the others have."""
    (_, last), column = combination[-1], key_class.columns[len(combination) - 1]
    if column is None:
        return True
    rows = zip(key_class.columns, combination, strict=False)
    values = [row[name] for name, (_, row) in rows if name is not None]
    return all(keys_equal(value, last[column], _is_floating(query, key_class)) for value in values)


def _is_floating(query: JoinQuery, key_class: KeyClass) -> bool:
    members = zip(query.streams, key_class.columns, strict=True)
    return any(c is not None and pa.types.is_floating(stream.schema.field(c).type) for stream, c in members)


def keys_equal(left: Any, right: Any, floating: bool) -> bool:
    """NULL equals nothing; one floating-point column makes all of them doubles, where NaN = NaN and -0.0 = 0.0."""
    if left is None or right is None:
        return False
    if floating:
        left, right = float(left), float(right)
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right


def _in_windows(query: JoinQuery, rows: Mapping[str, Row]) -> bool:
    if not query.windowed:
        return True
    times = [rows[stream.name][stream.event_time] for stream in query.streams]
    windows = zip(times, query.windows_us, strict=True)
    return all(window is None or max(times) - time < window for time, window in windows)


# --- predicates, one row at a time -----------------------------------------------------------------------------------


def value_of(expr: Expression, rows: Mapping[str, Row]) -> Any:
    """The value of an expression for one combination, None being NULL."""

    def value(child: Expression) -> Any:
        return value_of(child, rows)

    match expr:
        case Column(stream, name):
            return rows[stream][name]
        case Literal(constant, _):
            return _plain(constant)
        case And(left, right):
            known = value(left)
            return False if known is False else _and(known, value(right))
        case Or(left, right):
            known = value(left)
            return True if known is True else _not(_and(_not(known), _not(value(right))))
        case Not(operand):
            return _not(value(operand))
        case IsNull(operand, negated):
            return (value(operand) is None) != negated
        case Compare("<=>", left, right):
            a, b = value(left), value(right)
            return a is b if a is None or b is None else _compare("=", a, b)
        case Compare(op, left, right):
            a, b = value(left), value(right)
            return None if a is None or b is None else _compare(op, a, b)
        case InList(operand, options):
            found: Any = False
            for option in options:
                found = _not(_and(_not(found), _not(value(Compare("=", operand, option)))))
            return found
        case Negate(operand):
            a = value(operand)
            return None if a is None else -a
        case Abs(operand):
            a = value(operand)
            return None if a is None else abs(a)
        case Arithmetic(op, left, right):
            a, b = value(left), value(right)
            return None if a is None or b is None else _compute(op, a, b)
        case Call(name, operands):
            return BY_ROW[name](*map(value, operands))


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _not(a: bool | None) -> bool | None:
    return None if a is None else not a


def _compare(op: str, a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        a, b = ((math.isnan(x), 0.0 if math.isnan(x) else x) for x in (float(a), float(b)))
    elif isinstance(a, str):
        a, b = a.encode(), b.encode()
    match op:
        case "=":
            return a == b
        case "<>":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
    raise ValueError(op)


def _compute(op: str, a: Any, b: Any) -> Any:
    if isinstance(a, date) or isinstance(b, date):
        return _compute_dates(op, a, b)
    if op == "/" or isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case "%":
            return math.fmod(a, b) if isinstance(a, float) else int(math.copysign(abs(a) % abs(b), a))
    raise ValueError(op)


def _compute_dates(op: str, a: Any, b: Any) -> Any:
    """Dates move by days; an interval (an int beyond any number of days) counts in microseconds."""
    if isinstance(a, date) and isinstance(b, date):
        return (a - b).days * DAY_US
    if isinstance(b, date):
        a, b = b, a
    days = b // DAY_US if abs(b) >= DAY_US else b
    return a + timedelta(days=days) if op == "+" else a - timedelta(days=days)


# --- rows and results in a form to compare ---------------------------------------------------------------------------


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a table; times and intervals as whole microseconds."""
    for i, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pa.int64()))
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def canonical(results: pa.Table) -> Counter:
    """The multiset of result rows."""
    renamed = results.rename_columns([str(i) for i in range(results.num_columns)])
    return Counter(tuple(map(_comparable, row.values())) for row in rows_of(renamed))


def _comparable(value: Any) -> Any:
    """NaN equals itself, and -0.0 and 0.0 are different results."""
    return repr(value) if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        zero = datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (value - zero) // timedelta(microseconds=1)
    return value // timedelta(microseconds=1) if isinstance(value, timedelta) else value


# --- large data ------------------------------------------------------------------------------------------------------


def duckdb_join(query: JoinQuery, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Key, windows and select list in DuckDB: for data without late rows, and queries without residual predicates."""
    assert not query.residuals
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(f"{name}_rows", table)
        streams = query.streams
        conditions = []
        for key_class in query.classes:
            members = [f"{s.name}.{c}" for s, c in zip(streams, key_class.columns, strict=True) if c is not None]
            conditions += [f"{left} = {right}" for left, right in pairwise(members)]
        for stream, window in zip(streams, query.windows_us, strict=True):
            for other in streams if window is not None else ():
                if other is not stream:
                    times = (f"epoch_us({s.name}.{s.event_time})" for s in (other, stream))
                    conditions.append(f"{' - '.join(times)} < {window}")
        columns = ", ".join(f'{item.column.stream}.{item.column.name} AS "{item.name}"' for item in query.select)
        sources = ", ".join(f"{s.name}_rows AS {s.name}" for s in streams)
        sql = f"SELECT {columns} FROM {sources} WHERE {' AND '.join(conditions)}"
        return connection.sql(sql).to_arrow_table()
