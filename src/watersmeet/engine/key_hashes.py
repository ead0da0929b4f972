"""Hashes of key values for sketches, the same in every process: whole columns at a time, some nanoseconds per value.

| type                    | what is hashed                                                                             |
|-------------------------|--------------------------------------------------------------------------------------------|
| of fixed width          | the bits of the value (floats are normalised before: equal values have equal bits)         |
| strings, binaries       | the length, the first `WORDS` words and the last `WORDS`: all of a value up to 64 bytes    |
| any other               | nothing: there is no sketch                                                                |

They are not the hashes that place rows on slots: those exist for the key of a stage only, and a stream that meets two
keys is sketched under both where it arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

WORDS = 4
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_HALF = np.uint64(29)
_TEXTS = (pa.string(), pa.binary())


def can_hash(kind: pa.DataType) -> bool:
    """Whether values of a type can be sketched."""
    return kind in _TEXTS or pa.types.is_decimal128(kind) or (pa.types.is_primitive(kind) and kind.bit_width <= 64)


def key_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """One hash for the values of a row in all columns, which have no NULL."""
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        for word in _words(column):
            hashes = _mixed(hashes ^ word)
    return hashes


def _mixed(values: Hashes) -> Hashes:
    """Each value mixed, in place (the finalizer of splitmix64: successive numbers must not be spread evenly)."""
    values += _GOLDEN
    values ^= values >> _HALF
    values *= _FIRST
    values ^= values >> _HALF
    values *= _SECOND
    values ^= values >> _HALF
    return values


def _words(column: pa.Array) -> list[Hashes]:
    """The values as 64-bit words."""
    if column.type in _TEXTS:
        return _text_words(column)
    if pa.types.is_boolean(column.type):
        return [column.to_numpy(zero_copy_only=False).astype(np.uint64)]
    if pa.types.is_decimal(column.type):
        both = np.frombuffer(column.buffers()[1], dtype="<u8").reshape(-1, 2)
        both = both[column.offset : column.offset + len(column)]
        return [both[:, 0], both[:, 1]]
    width = column.type.bit_width // 8
    bits = np.frombuffer(column.buffers()[1], dtype=f"<u{width}")
    return [bits[column.offset : column.offset + len(column)].astype(np.uint64)]


def _text_words(column: pa.Array) -> list[Hashes]:
    """The lengths, and the first and the last words; bytes outside of a value are zero."""
    offsets = np.frombuffer(column.buffers()[1], dtype="<i4")[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    words = [lengths.astype(np.uint64)]
    longest = int(lengths.max(initial=0))
    if not longest:
        return words
    raw = np.frombuffer(column.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
    at_byte = np.ndarray(len(raw) + 1, dtype="<u8", strides=(1,), buffer=raw.tobytes() + b"\0" * 8)
    starts = offsets[:-1] - offsets[0]
    places = [np.int32(8 * number) for number in range(min(WORDS, -(-longest // 8)))]
    if longest > 8 * WORDS:
        places += [np.maximum(lengths - 8 * (number + 1), 0) for number in range(WORDS)]
    for place in places:
        left = np.clip(lengths - place, 0, 8)
        unused = ((8 - left) << 3).astype(np.uint64)
        words.append((at_byte.take(starts + place, mode="clip") << unused) >> unused)
        words[-1][left == 0] = 0
    return words
