"""The frame: one schema in which the rows of all streams travel through one shuffle.

    _stream  _hash  _time  _k0 .. _kc   _c0 .. _cp
    ordinal  key    event  key values,  payload columns, shared by
             hash   time   common type  streams by type

Streams with like schemas share columns (the i-th BIGINT of one with the i-th BIGINT of another), so the frame is as
wide as the widest need per type and not as the sum of the schemas.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.layout import StoreLayout

STREAM, HASH, TIME = "_stream", "_hash", "_time"


@dataclass(frozen=True, slots=True)
class Frame:
    """The columns of the frame, and for every stream the frame column of each of its payload columns."""

    key_types: tuple[pa.DataType, ...]
    time_type: pa.DataType | None
    pool: tuple[pa.DataType, ...]
    columns: tuple[tuple[int, ...], ...]

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(STREAM, pa.int8()), pa.field(HASH, pa.int64())]
        if self.time_type is not None:
            fields.append(pa.field(TIME, self.time_type))
        fields += [pa.field(key_name(i), t) for i, t in enumerate(self.key_types)]
        fields += [pa.field(pool_name(i), t) for i, t in enumerate(self.pool)]
        return pa.schema(fields)


def key_name(component: int) -> str:
    return f"_k{component}"


def pool_name(index: int) -> str:
    return f"_c{index}"


def frame_of(
    stores: tuple[StoreLayout, ...], key_types: tuple[pa.DataType, ...], time_type: pa.DataType | None
) -> Frame:
    """The narrowest frame that carries the payloads of all stores."""
    pool: list[pa.DataType] = []
    columns: list[tuple[int, ...]] = []
    for store in stores:
        taken: set[int] = set()
        mapped: list[int] = []
        for field in store.payload:
            free = (i for i, t in enumerate(pool) if i not in taken and t.equals(field.type))
            index = next(free, len(pool))
            if index == len(pool):
                pool.append(field.type)
            taken.add(index)
            mapped.append(index)
        columns.append(tuple(mapped))
    return Frame(key_types, time_type, tuple(pool), tuple(columns))
