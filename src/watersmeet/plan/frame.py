"""The frame: one schema in which the rows of all streams, and of results between stages, travel through shuffles.

    _stage  _stream  _hash  _time   _c0 .. _cp
    of whom input    key    event   key values and payload, shared
    it is   of it    hash   time    by type between all inputs

Inputs with like schemas share columns (the i-th BIGINT of one with the i-th BIGINT of another), so the frame is as
wide as the widest need per type and not as the sum of the schemas. The key columns of a stage are the same for all
its inputs. Between stages, `_report` carries what earlier stages have to tell the driver along with the rows, and
`_results` results that are complete before the last stage, packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.layout import StoreLayout

STAGE, STREAM, HASH, TIME, REPORT, RESULTS = "_stage", "_stream", "_hash", "_time", "_report", "_results"


@dataclass(frozen=True, slots=True)
class Frame:
    """The columns of the frame; for every stage those of its key, and for every input of it those of its payload."""

    pool: tuple[pa.DataType, ...]
    time_type: pa.DataType | None
    keys: tuple[tuple[int, ...], ...]
    payloads: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def reports(self) -> bool:
        """Whether rows meet reports of an earlier stage on their way."""
        return len(self.keys) > 1

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(STAGE, pa.int8()), pa.field(STREAM, pa.int8()), pa.field(HASH, pa.int64())]
        if self.time_type is not None:
            fields.append(pa.field(TIME, self.time_type))
        fields += [pa.field(pool_name(i), t) for i, t in enumerate(self.pool)]
        if self.reports:
            fields += [pa.field(REPORT, pa.string()), pa.field(RESULTS, pa.binary())]
        return pa.schema(fields)


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
        payloads.append(tuple(_place([f.type for f in layout.payload], pool, set(key)) for layout in inputs))
    return Frame(tuple(pool), time_type, tuple(keys), tuple(payloads))


def _place(types: Sequence[pa.DataType], pool: list[pa.DataType], taken: set[int]) -> tuple[int, ...]:
    """Columns of the pool for values of these types; the pool grows where none is free."""
    placed: list[int] = []
    for kind in types:
        index = next((i for i, t in enumerate(pool) if i not in taken and t.equals(kind)), len(pool))
        if index == len(pool):
            pool.append(kind)
        taken.add(index)
        placed.append(index)
    return tuple(placed)
