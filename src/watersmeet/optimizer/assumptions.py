"""The optimiser's assumptions about the data of a query, and the join graph that follows from them.

Rates and selectivities come from hints, from a sample or from a running query. All others have defaults. The figures
compare plans; they do not predict, because they ignore skew, bursts and correlation.
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
"""The default of a predicate that is no key (Selinger et al. 1979)."""
HOUR_US = 3_600_000_000
TEXT_BYTES = 16
CODE_BYTES = 8
"""Key rank and event time of a stored row."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Rows a second by stream. Selectivities by the number of a filter, key class, residual or predicate of Spark."""

    rates: Mapping[str, float]
    filters: Mapping[int, float] = field(default_factory=dict)
    keys: Mapping[int, float] = field(default_factory=dict)
    residuals: Mapping[int, float] = field(default_factory=dict)
    by_spark: Mapping[int, float] = field(default_factory=dict)
    running_us: int = HOUR_US
    """The assumed running time, for the state of streams without a window (`horizon_us`)."""
    batch_s: float | None = None
    """Seconds of data in a micro-batch."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds to `insert`, `delete` and `join` a row, as a running query has measured them."""

    @property
    def batches_per_s(self) -> float:
        return 1 / self.batch_s if self.batch_s else 1.0


def rate_of(rows: float, seconds: float) -> float:
    """Rows per second; `RATE_MAX` if no time has passed."""
    return min(rows / seconds, RATE_MAX) if seconds > 0 else RATE_MAX


def graph_of(query: JoinQuery, given: Assumptions) -> JoinGraph:
    """The join graph of a query. The window of a stream without one is the running time (`horizon_us`)."""
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
    """The selectivity of a key class. By default a row matches one row of the stream with most rows, as a foreign key
    does."""
    if number in given.keys:
        return given.keys[number]
    horizon = horizon_us(query, given)
    rows = [
        _rate(query, query.streams[i].name, given) * (query.windows_us[i] or horizon) / 1e6
        for i in query.classes[number].streams
    ]
    return 1 / max(1.0, *rows)


def horizon_us(query: JoinQuery, given: Assumptions) -> int:
    """The assumed running time of the query. It is long enough to fill all windows."""
    return max([given.running_us, *(window for window in query.windows_us if window is not None)])


def width_of(kind: pa.DataType) -> int:
    """Bytes of a value; `TEXT_BYTES` for texts."""
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
    """Bytes of a stored row: its code, the columns that are read, and the values of its key classes.

    One key class is left out: a store keeps its value once for all rows of a key. The tree decides which one; the
    widest is assumed."""
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
