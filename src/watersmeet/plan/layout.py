"""Which columns a store keeps, and where each value can be found again.

Only columns that the select list or a residual predicate reads are kept, and nothing is kept twice:

| column                                        | source    | why                                             |
|-----------------------------------------------|-----------|-------------------------------------------------|
| the event time of a windowed query            | `time`    | the run's codes hold it                         |
| a key column its cast to the key's type keeps | `key`     | runs hold each distinct key once                |
| any other column that is read                 | `payload` | one Arrow column of the run, in row order       |

Floating-point keys are normalised (-0.0 to 0.0, one NaN), so their columns are payload when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from watersmeet.query.expressions import columns_of
from watersmeet.query.logical import JoinQuery, Stream
from watersmeet.query.types import recoverable


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where the values of one kept column are: a key component, the event time, or a payload column."""

    kind: Literal["key", "time", "payload"]
    index: int
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """One input of the join node: its stream, window and kept columns."""

    stream: str
    window_us: int | None
    sources: tuple[tuple[str, ColumnSource], ...]
    payload: pa.Schema

    def source(self, column: str) -> ColumnSource:
        return dict(self.sources)[column]


def read_columns(query: JoinQuery) -> dict[str, list[str]]:
    """The columns of each stream that the select list or a residual reads, in schema order."""
    read: dict[str, set[str]] = {stream.name: set() for stream in query.streams}
    refs = [ref for item in query.select for ref in item.refs]
    refs += [ref for residual in query.residuals for ref in columns_of(residual)]
    for ref in refs:
        read[ref.stream].add(ref.name)
    return {s.name: [name for name in s.schema.names if name in read[s.name]] for s in query.streams}


def lay_out(query: JoinQuery) -> tuple[StoreLayout, ...]:
    """The store layouts of a query, in stream order."""
    read = read_columns(query)
    return tuple(_store(query, ordinal, stream, read[stream.name]) for ordinal, stream in enumerate(query.streams))


def _store(query: JoinQuery, ordinal: int, stream: Stream, columns: Iterable[str]) -> StoreLayout:
    keys = {component.columns[ordinal]: i for i, component in reversed(list(enumerate(query.key)))}
    sources: list[tuple[str, ColumnSource]] = []
    payload: list[pa.Field] = []
    for column in columns:
        field = stream.schema.field(column)
        component = keys.get(column)
        if component is not None and recoverable(field.type, query.key[component].type):
            source = ColumnSource("key", component, field.type)
        elif query.windowed and column == stream.event_time:
            source = ColumnSource("time", 0, field.type)
        else:
            source = ColumnSource("payload", len(payload), field.type)
            payload.append(pa.field(column, field.type))
        sources.append((column, source))
    return StoreLayout(stream.name, query.windows_us[ordinal], tuple(sources), pa.schema(payload))
