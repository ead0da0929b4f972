"""From a query text to the query: find its streams among those given; the rest is as for the builder.

An alias is the name of its stream in the query, so one source can be joined with itself. `JOIN b USING (k)` means
`a.k = b.k`, where `a` is the stream to the left that has `k`. Errors are shown in the text: at their position, or else
at the stream that the error names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from watersmeet.errors import QueryError
from watersmeet.query.analysis import Analyse
from watersmeet.query.cql import FromItem, SqlQuery, Using
from watersmeet.query.expressions import quote
from watersmeet.query.fragments import Fragment, at, draw
from watersmeet.query.logical import STREAMS_MAX, JoinQuery, build_query, check_stream_name
from watersmeet.query.names import find_column, nearest
from watersmeet.query.registered import RegisteredFunction
from watersmeet.query.relations import Stream
from watersmeet.query.windows import only_timestamp


def build_sql_query(
    asked: SqlQuery,
    given: Sequence[Stream],
    *,
    guess_event_time: frozenset[str] = frozenset(),
    analyse: Analyse | None = None,
    functions: Mapping[str, RegisteredFunction] | None = None,
) -> JoinQuery:
    """Check and resolve a query text over the given streams. A stream in `guess_event_time` that has one timestamp
    column takes it as its event time, if the query has a window. `functions` are as for `build_query`."""
    sources = sources_of(asked, [stream.name for stream in given])
    by_name = {stream.name: stream for stream in given}
    windows = {name: item.window for name, item in zip(sources, asked.streams, strict=True) if item.window is not None}
    windowed = asked.within is not None or bool(windows)
    streams = []
    for name, source in sources.items():
        stream = replace(by_name[source], name=name)
        if windowed and stream.event_time is None and source in guess_event_time:
            stream = replace(stream, event_time=only_timestamp(stream))
        streams.append(stream)
    with _shown(asked, sources):
        return build_query(
            streams,
            where=[*_using(asked, streams), *asked.where],
            within=asked.within,
            windows=windows,
            select=asked.select,
            group_by=asked.group_by,
            having=asked.having,
            analyse=analyse,
            functions=functions,
        )


def sources_of(asked: SqlQuery, given: Sequence[str]) -> dict[str, str]:
    """The streams of a query in the order of FROM, each with the name under which it was given."""
    found: dict[str, str] = {}
    with asked.whole.drawn():
        for item in asked.streams:
            with at(item.position):
                source = _source(item, given)
            with at(item.name_position):
                name = item.alias or source
                _check_name(name, source, found)
                found[name] = source
        if len(found) < 2 or len(found) > STREAMS_MAX:
            raise QueryError(
                f"a join takes 2 to {STREAMS_MAX} streams, not {len(found)}",
                hint="name another one in FROM" if len(found) < 2 else "join some of them first",
                error_class="WRONG_STREAM_COUNT",
                position=asked.streams[0].position,
            )
    for name in given:
        if name not in found.values():
            raise QueryError(
                f"stream '{name}' is given, but the query does not use it",
                hint="name it in FROM, or do not give it",
                error_class="UNUSED_STREAM",
            )
    return found


def _source(item: FromItem, given: Sequence[str]) -> str:
    named = [name for name in given if name.lower() == item.source.lower()]
    if not named:
        hint = nearest(item.source, given) if given else f"give its DataFrame: sql(text, {item.source}=df)"
        raise QueryError(f"unknown stream '{item.source}'", hint=hint, error_class="UNKNOWN_STREAM")
    return named[0]


def _check_name(name: str, source: str, found: Mapping[str, str]) -> None:
    check_stream_name(name)
    if name.lower() in (known.lower() for known in found):
        raise QueryError(
            f"two streams are named '{name}'",
            hint=f"give each a name of its own, like FROM {source} AS a, {source} AS b",
            error_class="DUPLICATE_STREAM",
        )


def _using(asked: SqlQuery, streams: Sequence[Stream]) -> Iterator[Fragment]:
    """The equalities that USING means."""
    united: dict[str, set[int]] = {}
    for using in asked.using:
        with using.column.drawn():
            condition = _equality(using, streams, united.setdefault(using.column.text.lower(), set()))
        yield replace(using.column, text=condition)


def _equality(using: Using, streams: Sequence[Stream], united: set[int]) -> str:
    name, right = using.column.text, streams[using.right]
    owners = [i for i in range(using.right) if name.lower() in (c.lower() for c in streams[i].schema.names)]
    if not owners:
        raise QueryError(
            f"no stream to the left has a column '{name}'",
            hint="write the condition with ON",
            error_class="UNKNOWN_COLUMN",
        )
    if len(owners) > 1 and not united.issuperset(owners):
        raise QueryError(
            f"column '{name}' is ambiguous: several streams to the left have it",
            hint="write the condition with ON",
            error_class="AMBIGUOUS_COLUMN",
        )
    united.update((owners[0], using.right))
    sides = (find_column(streams[owners[0]], name), find_column(right, name))
    return " = ".join(f"{quote(side.stream)}.{quote(side.name)}" for side in sides)


@contextmanager
def _shown(asked: SqlQuery, sources: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except QueryError as error:
        if error.drawn:
            raise
        places = [
            item.position for name, item in zip(sources, asked.streams, strict=True) if f"'{name}'" in error.message
        ]
        raise draw(error, asked.text, [*places, asked.streams[0].position][0]) from None
