"""How many bytes rows have: exactly, from the offsets of their values.

A mean is useless for a gather: one wide row among many narrow ones may match a thousand others. Where rows together
could have too many bytes, they are measured one by one, or range by range; that costs two look-ups per column and row
or range, whatever the values. Validity bitmaps do not count.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


def is_fixed(kind: pa.DataType) -> bool:
    """Whether all values of a type have the same number of bytes."""
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def bytes_before(column: pa.Array, rows: Ints) -> Ints:
    """For each given row number, the bytes of all values before that row. The number of rows itself is allowed."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(rows), dtype=np.int64)
    if is_fixed(kind):
        return rows * kind.bit_width // 8
    if pa.types.is_struct(kind):
        fields = [bytes_before(column.field(i), rows) for i in range(kind.num_fields)]
        return np.sum(fields, axis=0, dtype=np.int64) if fields else np.zeros(len(rows), dtype=np.int64)
    offsets = _offsets(column)
    if offsets is None or not len(column):
        return rows * (column.nbytes // max(1, len(column)))
    ends = offsets[rows].astype(np.int64)
    width = rows * offsets.itemsize
    if pa.types.is_map(kind):
        return width + bytes_before(column.keys, ends) + bytes_before(column.items, ends)
    return width + (bytes_before(column.values, ends) if pa.types.is_nested(kind) else ends)


def bytes_between(batch: pa.RecordBatch, first: Ints, after: Ints) -> Ints:
    """The bytes of ranges of rows, from `first` up to but not including `after`."""
    total = np.zeros(len(first), dtype=np.int64)
    for column in batch.columns:
        if is_fixed(column.type):
            total += (after - first) * (0 if pa.types.is_null(column.type) else -(-column.type.bit_width // 8))
        else:
            total += bytes_before(column, after) - bytes_before(column, first)
    return total


def row_bytes(batch: pa.RecordBatch, rows: Ints) -> Ints:
    """The bytes of some rows."""
    return bytes_between(batch, rows, rows + 1)


def row_bytes_max(batch: pa.RecordBatch) -> int:
    """An upper bound for the bytes of a row."""
    total = 0
    for column in batch.columns:
        if is_fixed(column.type):
            total += 0 if pa.types.is_null(column.type) else -(-column.type.bit_width // 8)
        elif len(column):
            offsets = None if pa.types.is_nested(column.type) else _offsets(column)
            if offsets is None:
                offsets = bytes_before(column, np.arange(len(column) + 1))
            total += int((offsets[1:] - offsets[:-1]).max()) + offsets.itemsize
    return total


def _offsets(column: pa.Array) -> npt.NDArray[np.signedinteger] | None:
    """The offsets of a column's values, and the end of the last; None for types without plain offsets."""
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind):
        width: type[np.signedinteger] = np.int64
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind) or pa.types.is_map(kind):
        width = np.int32
    else:
        return None
    buffer = column.buffers()[1]
    if buffer is None or not buffer.size:
        return None
    return np.frombuffer(buffer, dtype=width)[column.offset : column.offset + len(column) + 1]
