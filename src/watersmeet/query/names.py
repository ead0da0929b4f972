"""Names to columns: `bank1.price`, `price`, `bank1.info.city`, found case-insensitively as Spark does.

A name starts with its stream, or with a column that only one stream has. The parts after the column are fields inside
it. An error suggests the nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.query.expressions import Column
from watersmeet.query.relations import Stream

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, how many parts of the dotted name it took, and the fields that follow."""

    column: Column
    parts: int
    fields: tuple[str, ...]


def find_stream(streams: Sequence[Stream], name: str) -> Stream:
    found = _match(name, {stream.name: stream for stream in streams})
    if found is None:
        raise QueryError(
            f"unknown stream '{name}'",
            hint=nearest(name, (stream.name for stream in streams)),
            error_class="UNKNOWN_STREAM",
        )
    return found


def find_column(stream: Stream, name: str) -> Column:
    found = _match(name, {column: column for column in stream.schema.names})
    if found is None:
        raise QueryError(
            f"unknown column '{name}' in stream '{stream.name}'",
            hint=nearest(name, stream.schema.names),
            error_class="UNKNOWN_COLUMN",
        )
    return Column(stream.name, found)


def type_of_column(streams: Sequence[Stream], column: Column) -> pa.DataType:
    return field_of_column(streams, column).type


def field_of_column(streams: Sequence[Stream], column: Column) -> pa.Field:
    return next(stream.schema.field(column.name) for stream in streams if stream.name == column.stream)


def resolve(streams: Sequence[Stream], parts: Sequence[str]) -> Reference:
    """The column a dotted name means; QueryError if there is none, or more than one."""
    first = parts[0]
    owners = [stream for stream in streams if _match(first, {name: name for name in stream.schema.names}) is not None]
    if len(parts) > 1 and _match(first, {stream.name: stream for stream in streams}) is not None:
        return Reference(find_column(find_stream(streams, first), parts[1]), 2, tuple(parts[2:]))
    match owners:
        case [owner]:
            return Reference(find_column(owner, first), 1, tuple(parts[1:]))
        case []:
            raise _unknown(streams, parts)
        case _:
            choices = " or ".join(f"{owner.name}.{find_column(owner, first).name}" for owner in owners)
            raise QueryError(
                f"column '{first}' is ambiguous: {_listed(owner.name for owner in owners)} have it",
                hint=f"write {choices}",
                error_class="AMBIGUOUS_COLUMN",
            )


def _unknown(streams: Sequence[Stream], parts: Sequence[str]) -> QueryError:
    if len(parts) > 1:
        hint = nearest(parts[0], (stream.name for stream in streams))
        return QueryError(f"unknown stream '{parts[0]}'", hint=hint, error_class="UNKNOWN_STREAM")
    columns = {name.lower(): f"{stream.name}.{name}" for stream in streams for name in stream.schema.names}
    close = difflib.get_close_matches(parts[0].lower(), columns, n=1)
    hint = f"did you mean '{columns[close[0]]}'?" if close else "write it as stream.column"
    return QueryError(f"unknown column '{parts[0]}': no stream has it", hint=hint, error_class="UNKNOWN_COLUMN")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the most similar known name, or else all known names."""
    names = list(known)
    by_lower = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if close:
        return f"did you mean '{by_lower[close[0]]}'?"
    return f"there are {_listed(names)}" if names else "there are none"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _match(name: str, known: dict[str, T]) -> T | None:
    return next((value for key, value in known.items() if key.lower() == name.lower()), None)
