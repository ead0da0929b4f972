"""What is known of a query's data before it runs, or has been learned: rates and shares; and the join graph they make.

Whatever nobody has said has a default. These are figures to compare plans by, not promises: skew, bursts and
correlation are not in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import pyarrow as pa

from watersmeet.optimizer.join_graph import RATE_MAX, JoinGraph, Predicate, StreamFigures, as_streams
from watersmeet.query.expressions import columns_of
from watersmeet.query.logical import JoinQuery

RESIDUAL_SELECTIVITY = 1 / 3
"""Of another predicate between streams (Selinger et al. 1979)."""
HOUR_US = 3_600_000_000
TEXT_BYTES = 16
CODE_BYTES = 8
"""Key rank and event time of a stored row."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Rows a second by stream, and shares by number of filter, key class, residual and predicate left to Spark."""

    rates: Mapping[str, float]
    filters: Mapping[int, float] = field(default_factory=dict)
    keys: Mapping[int, float] = field(default_factory=dict)
    residuals: Mapping[int, float] = field(default_factory=dict)
    by_spark: Mapping[int, float] = field(default_factory=dict)
    running_us: int = HOUR_US
    """What streams without a window hold is told for this time: longer windows of others make it longer."""
    batch_s: float | None = None
    """Seconds of data in a micro-batch."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds to `insert`, `delete` and `join` a row, as a running query has measured them."""

    @property
    def batches_per_s(self) -> float:
        return 1 / self.batch_s if self.batch_s else 1.0


def rate_of(rows: float, seconds: float) -> float:
    """Rows a second that were seen; of a moment too short to tell, the most that is planned for."""
    return min(rows / seconds, RATE_MAX) if seconds > 0 else RATE_MAX


def graph_of(query: JoinQuery, given: Assumptions) -> JoinGraph:
    """The join graph of a query; a stream without a window has one as long as the query runs (`horizon_us`)."""
    windows = [(horizon_us(query, given) if window is None else window) / 1e6 for window in query.windows_us]
    ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
    streams = tuple(
        StreamFigures(stream.name, _rate(query, stream.name, given), window_s, _row_bytes(query, i))
        for i, (stream, window_s) in enumerate(zip(query.streams, windows, strict=True))
    )
    classes = tuple(
        Predicate(as_streams(each.streams), key_selectivity(query, given, i)) for i, each in enumerate(query.classes)
    )
    others = tuple(
        Predicate(
            as_streams(ordinal[column.stream] for column in columns_of(residual)),
            given.residuals.get(i, RESIDUAL_SELECTIVITY),
            _read_bytes(query, i),
        )
        for i, residual in enumerate(query.residuals)
    )
    delay_s = max(stream.delay_us for stream in query.streams) / 1e6
    endless = as_streams(i for i, window in enumerate(query.windows_us) if window is None)
    return JoinGraph(streams, classes, others, delay_s, endless)


def key_selectivity(query: JoinQuery, given: Assumptions, number: int) -> float:
    """Of a key class; where nobody has said anything, a row finds one of the stream with most rows, as it would by the
    key of a table."""
    if number in given.keys:
        return given.keys[number]
    horizon = horizon_us(query, given)
    rows = [
        _rate(query, query.streams[i].name, given) * (query.windows_us[i] or horizon) / 1e6
        for i in query.classes[number].streams
    ]
    return 1 / max(1.0, *rows)


def horizon_us(query: JoinQuery, given: Assumptions) -> int:
    """For how long the query has run, for streams without a window: so long at least that all windows have filled."""
    return max([given.running_us, *(window for window in query.windows_us if window is not None)])


def width_of(kind: pa.DataType) -> int:
    """Bytes of a value, texts by a guess."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return TEXT_BYTES + 4
    if pa.types.is_struct(kind):
        return sum(width_of(kind.field(i).type) for i in range(kind.num_fields))
    try:
        return kind.bit_width // 8
    except ValueError:
        return TEXT_BYTES + 4


def _rate(query: JoinQuery, name: str, given: Assumptions) -> float:
    passing = prod(given.filters.get(i, 1.0) for i, item in enumerate(query.filters) if item.stream == name)
    return given.rates[name] * passing


def _read_bytes(query: JoinQuery, residual: int) -> int:
    """Bytes of the columns that only this residual predicate reads."""
    others = [each for i, each in enumerate(query.residuals) if i != residual]
    read = {*query.read_columns, *(column for each in others for column in columns_of(each))}
    alone = set(columns_of(query.residuals[residual])) - read
    width = 0
    for ordinal, stream in enumerate(query.streams):
        elsewhere = {each.columns[ordinal] for each in query.classes} | {stream.event_time if query.windowed else None}
        names = {column.name for column in alone if column.stream == stream.name} - elsewhere
        width += sum(width_of(stream.schema.field(name).type) for name in names)
    return width


def _row_bytes(query: JoinQuery, ordinal: int) -> int:
    """Bytes of a stored row: its code, columns that are read, and values of all its key classes but one, which the
    runs of a store hold once for all rows of a key. (Which one that is depends on the tree: here the widest.)"""
    stream = query.streams[ordinal]
    keys = [each for each in query.classes if each.columns[ordinal] is not None]
    held = sorted(keys, key=lambda each: width_of(each.type))[:-1]
    read = {*query.read_columns, *(column for residual in query.residuals for column in columns_of(residual))}
    by_key = {each.columns[ordinal] for each in keys}
    names = {column.name for column in read if column.stream == stream.name} - by_key
    if query.windowed:
        names.discard(stream.event_time or "")
    columns = sum(width_of(stream.schema.field(name).type) for name in names)
    return (CODE_BYTES if query.windowed else 0) + columns + sum(width_of(each.type) for each in held)
