"""Windows and event times: how far apart the rows of one result may be, and which column says when a row happened.

A result (t1..tk) exists iff max(t) - ti < Wi for all i. `within` gives all streams one window; a stream without one is
unbounded. Any window at all needs an event time in every stream, all of one kind: instants (TIMESTAMP) or wall clocks
(TIMESTAMP_NTZ), which cannot be compared with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.errors import QueryError
from watersmeet.query.expressions import Column
from watersmeet.query.names import find_column, find_stream
from watersmeet.query.relations import Stream
from watersmeet.query.types import is_timestamp, spark_name
from watersmeet.units import parse_duration_us


def windows_of(streams: Sequence[Stream], within: str | None, windows: Mapping[str, str]) -> tuple[int | None, ...]:
    """The window of each stream in microseconds; None is unbounded."""
    if within is not None:
        if windows:
            raise QueryError(
                "within and windows per stream exclude each other",
                hint="within gives every stream the same window: use one or the other",
                error_class="CONFLICTING_WINDOWS",
            )
        return (parse_duration_us(within),) * len(streams)
    by_stream: dict[str, int] = {}
    for name, window in windows.items():
        stream = find_stream(streams, name)
        if stream.name in by_stream:
            raise QueryError(f"stream '{stream.name}' has two windows", error_class="CONFLICTING_WINDOWS")
        by_stream[stream.name] = parse_duration_us(window)
    return tuple(by_stream.get(stream.name) for stream in streams)


def event_time_of(stream: Stream) -> Column | None:
    """The event time column as the schema spells it, checked; None if the stream has none."""
    if stream.event_time is None:
        return None
    column = find_column(stream, stream.event_time)
    type_ = stream.schema.field(column.name).type
    if not is_timestamp(type_):
        raise QueryError(
            f"event time {stream.name}.{column.name} is {spark_name(type_)}, not a timestamp",
            hint="cast it in the DataFrame with to_timestamp, or name another column",
            error_class="INVALID_EVENT_TIME",
        )
    return column


def only_timestamp(stream: Stream) -> str | None:
    """The one timestamp column of a stream, or None if it has none or several."""
    found = [field.name for field in stream.schema if is_timestamp(field.type)]
    return found[0] if len(found) == 1 else None


def check_event_times(streams: Sequence[Stream]) -> None:
    """Check what a window needs: an event time in every stream, all of one kind."""
    for stream in streams:
        if stream.event_time is None:
            raise QueryError(
                f"stream '{stream.name}' has no event time, which a window needs",
                hint=f"name its timestamp column: stream('{stream.name}', df, eventTime='...')",
                error_class="MISSING_EVENT_TIME",
            )
    kinds = {stream.name: spark_name(stream.schema.field(stream.event_time).type) for stream in streams}
    first, *others = kinds
    for other in others:
        if kinds[other] != kinds[first]:
            raise QueryError(
                f"event times cannot be compared: '{first}' has {kinds[first]}, '{other}' has {kinds[other]}",
                hint="cast one of them in the DataFrame, so that all are TIMESTAMP or all TIMESTAMP_NTZ",
                error_class="INVALID_EVENT_TIME",
            )
