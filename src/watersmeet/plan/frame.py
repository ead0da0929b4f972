"""The frame: one schema in which the rows of all streams, and of results between stages, travel through shuffles.

    _stage  _stream  _hash  _time   _c0 .. _cp
    number  input    key    event   key values and payload, shared
            of it    hash   time    by type between all inputs

Inputs share columns by type (the i-th BIGINT of one with the i-th BIGINT of another), so the frame is as wide as the
widest input per type, not as the sum of the schemas. The key columns of a stage are the same for all its inputs. A plan
of one stage has no `_stage`. With several stages, `_report` carries the reports of earlier stages to the driver along
with the rows, and `_results` carries results that are complete before the last stage, packed.

The *source frame* is the schema in which the streams are united before a plan is applied: the rows as they come, with
all columns that any plan may read. So a plan can be chosen after the first rows have been seen.

    _stream  _time   _s0 .. _sp
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.layout import Field, StoreLayout, field_type, fields_above, is_event_time
from watersmeet.plan.tree import Leaf
from watersmeet.query.logical import JoinQuery

STAGE, STREAM, HASH, TIME, REPORT, RESULTS = "_stage", "_stream", "_hash", "_time", "_report", "_results"


@dataclass(frozen=True, slots=True)
class Frame:
    """The columns of the frame; for every stage its key columns, and for each of its inputs the payload columns."""

    pool: tuple[pa.DataType, ...]
    time_type: pa.DataType | None
    keys: tuple[tuple[int, ...], ...]
    payloads: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def has_stages(self) -> bool:
        """Whether there are several stages, so that rows carry `_stage`, and reports travel with them."""
        return len(self.keys) > 1

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(STREAM, pa.int8()), pa.field(HASH, pa.int64())]
        if self.time_type is not None:
            fields.append(pa.field(TIME, self.time_type))
        fields += [pa.field(pool_name(i), t) for i, t in enumerate(self.pool)]
        if self.has_stages:
            fields.insert(0, pa.field(STAGE, pa.int8()))
            fields += [pa.field(REPORT, pa.string()), pa.field(RESULTS, pa.binary())]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """The columns of the source frame; for every stream, the column of each field."""

    pool: tuple[pa.DataType, ...]
    time_type: pa.DataType | None
    columns: tuple[tuple[tuple[Field, int], ...], ...]

    def column_of(self, stream: int, field: Field) -> str:
        return source_name(dict(self.columns[stream])[field])


def source_name(index: int) -> str:
    return f"_s{index}"


def pool_name(index: int) -> str:
    return f"_c{index}"


def frame_of(
    stages: Sequence[tuple[tuple[pa.DataType, ...], Sequence[StoreLayout]]], time_type: pa.DataType | None
) -> Frame:
    """The narrowest frame for stages given by the types of their keys and the layouts of their inputs."""
    pool: list[pa.DataType] = []
    keys: list[tuple[int, ...]] = []
    payloads: list[tuple[tuple[int, ...], ...]] = []
    for key_types, inputs in stages:
        key = _place(key_types, pool, set())
        keys.append(key)
        payloads.append(tuple(_place(layout.sent, pool, set(key)) for layout in inputs))
    return Frame(tuple(pool), time_type, tuple(keys), tuple(payloads))


def source_frame(query: JoinQuery) -> SourceFrame:
    """The narrowest frame for all fields that any plan may read of the streams."""
    pool: list[pa.DataType] = []
    columns = []
    for ordinal in range(len(query.streams)):
        leaf = Leaf(ordinal)
        fields = [field for field in fields_above(query, leaf) if not is_event_time(query, leaf, field)]
        placed = _place([field_type(query, field) for field in fields], pool, set())
        columns.append(tuple(zip(fields, placed, strict=True)))
    return SourceFrame(tuple(pool), time_type_of(query), tuple(columns))


def time_type_of(query: JoinQuery) -> pa.DataType | None:
    """The type of event times; None in a query without windows."""
    stream = query.streams[0]
    return stream.schema.field(stream.event_time).type if query.windowed else None


def _place(types: Sequence[pa.DataType], pool: list[pa.DataType], taken: set[int]) -> tuple[int, ...]:
    """Columns of the pool for values of these types. The pool grows if none is free."""
    placed: list[int] = []
    for kind in types:
        index = next((i for i, t in enumerate(pool) if i not in taken and t.equals(kind)), len(pool))
        if index == len(pool):
            pool.append(kind)
        taken.add(index)
        placed.append(index)
    return tuple(placed)
