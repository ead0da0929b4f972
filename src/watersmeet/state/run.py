"""A run: immutable rows of one store, sorted by (key hash, key, event time), the unit every probe searches.

    hashes  [u]    ascending, one per *distinct key*; two keys that share a hash are two neighbouring entries
    keys    [u]    the key values, once per distinct key
    starts  [u+1]  rows starts[p] .. starts[p+1] hold key p
    codes   [n]    windowed queries only: (p << time_bits) | (event time - time_origin), ascending
    payload [n]    the other kept columns

The codes make a window join a binary search: all rows of key p with lo <= t < hi lie between two codes. They also
hold the event time, so it is stored once. Row numbers are those of the underlying arrays; a run that is cut to a
range of hashes (`between_hashes`) shares them, with `rank_base` the number of keys before the cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.state.hash_order import sorted_hashes
from watersmeet.state.sieve import Sieve

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

CODE_BITS = 63
RUN_BYTES_MAX = 1 << 28
"""The limit for a merged run: a merge has it in memory twice. (Arrow's offsets into values end at 2 GiB.)"""
_WIDTHS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows of one store, ready to be probed. Construct with `build_runs`, `merge_runs` or `select_rows`."""

    hashes: Hashes
    keys: pa.RecordBatch
    starts: npt.NDArray[np.int32]
    codes: Ints | None
    payload: pa.RecordBatch
    time_origin: int = 0
    time_bits: int = 0
    time_min: int = 0
    time_max: int = 0
    rank_base: int = 0
    sieve: Sieve | None = None
    widest: int | None = None
    """An upper bound for the payload of a row, in bytes; None: not known yet."""

    @property
    def rows(self) -> int:
        return int(self.starts[-1] - self.starts[0])

    def times(self, rows: Ints | slice) -> Ints:
        """The event times of some rows; windowed queries only."""
        assert self.codes is not None
        return (self.codes[rows] & np.int64((1 << self.time_bits) - 1)) + np.int64(self.time_origin)

    def row_ranks(self) -> Ints:
        """For every row in order, the number of its key within this run."""
        return np.repeat(np.arange(len(self.hashes), dtype=np.int64), np.diff(self.starts))

    def rows_slice(self) -> slice:
        return slice(int(self.starts[0]), int(self.starts[-1]))

    def kept_bytes(self) -> int:
        """The bytes of the kept columns, row by row: key, event time and payload, without the run's index."""
        keys = sum(_column_bytes(column) for column in self.keys.columns) * self.rows // max(1, len(self.hashes))
        return keys + self.payload_bytes() + (0 if self.codes is None else self.codes.itemsize * self.rows)

    def payload_bytes(self) -> int:
        first, rows = int(self.starts[0]), self.rows
        is_all = rows == self.payload.num_rows
        return sum(_column_bytes(each if is_all else each.slice(first, rows)) for each in self.payload.columns)

    def between_hashes(self, low: int, high: int) -> Run:
        """The rows whose hash is in [low, high), without a copy; a run that lies within is not searched."""
        if len(self.hashes) and low <= int(self.hashes[0]) and int(self.hashes[-1]) < high:
            return self
        ends = [
            len(self.hashes) if h >= 1 << 64 else int(np.searchsorted(self.hashes, np.uint64(h))) for h in (low, high)
        ]
        first, last = ends
        return replace(
            self,
            hashes=self.hashes[first:last],
            keys=self.keys.slice(first, last - first),
            starts=self.starts[first : last + 1],
            rank_base=self.rank_base + first,
        )


def build_runs(
    hashes: Hashes,
    keys: pa.RecordBatch,
    times: Ints | None,
    payload: pa.RecordBatch,
    key_of_row: Ints | None = None,
) -> list[Run]:
    """Sort rows into runs: one, or more where key number and time would not fit into one code.

    `keys` holds candidate keys with their `hashes`; `key_of_row` says which candidate each row has (its own, if None).
    """
    if key_of_row is None:
        return _arranged(hashes, keys, None, times, [payload], in_pieces=False) if len(hashes) else []
    if len(key_of_row) == 0:
        return []
    order, first = group_keys(hashes, keys)
    distinct = order[first]
    rank_of_candidate = np.empty(len(hashes), dtype=np.int64)
    rank_of_candidate[order] = np.cumsum(first) - 1
    if times is not None and not _codes_fit(times, len(distinct)):
        middle = (int(times.min()) + int(times.max())) // 2
        halves = (np.flatnonzero(times <= middle), np.flatnonzero(times > middle))
        parts = [build_runs(hashes, keys, times[h], take_rows(payload, h), key_of_row[h]) for h in halves]
        return [run for part in parts for run in part]
    ranks = rank_of_candidate[key_of_row]
    run = _sorted_run(hashes[distinct], take_rows(keys, distinct), ranks, times, payload)
    return [_drop_unused_keys(run)]


def merge_runs(runs: Sequence[Run], *, may_split_keys: bool = True) -> list[Run]:
    """The rows of several runs of one store, sorted into as few runs as possible: one, or more where it would exceed
    `RUN_BYTES_MAX`. Rows of one hash are in one of them, unless these alone are too many."""
    return list(merge_in_parts(runs, may_split_keys=may_split_keys))


def merge_in_parts(runs: Sequence[Run], *, may_split_keys: bool = True) -> Iterator[Run]:
    """The same runs one by one: a caller that drops each run before taking the next never has all in memory."""
    for part in _in_parts(runs, may_split_keys):
        yield from _merged(part)


def _in_parts(runs: Sequence[Run], may_split_keys: bool) -> list[list[Run]]:
    """Runs, cut by hash into parts that are not too long; rows of one hash are divided by run."""
    if len(runs) < 2 or sum(map(_own_bytes, runs)) <= RUN_BYTES_MAX:
        return [list(runs)]
    low, high = min(int(run.hashes[0]) for run in runs), max(int(run.hashes[-1]) for run in runs)
    if low < high:
        longest = max(runs, key=_own_bytes)
        middle = int(longest.hashes[_middle_key(longest)])
        if middle == low:
            above = (run.hashes[np.searchsorted(run.hashes, np.uint64(low), side="right") :] for run in runs)
            middle = min(int(hashes[0]) for hashes in above if len(hashes))
        halves = [[run.between_hashes(*ends) for run in runs] for ends in ((low, middle), (middle, high + 1))]
        return [part for half in halves for part in _in_parts([run for run in half if run.rows], may_split_keys)]
    if not may_split_keys:
        return [list(runs)]
    parts: list[list[Run]] = [[]]
    for run in sorted(runs, key=_own_bytes):
        if parts[-1] and sum(map(_own_bytes, [*parts[-1], run])) > RUN_BYTES_MAX:
            parts.append([])
        parts[-1].append(run)
    return parts


def _own_bytes(run: Run) -> int:
    """The bytes of a run's keys and rows, without its index."""
    return sum(map(_column_bytes, (*run.keys.columns, *_rows_of(run).columns)))


def _middle_key(run: Run) -> int:
    """The key up to which a run has half of its bytes."""
    low, high = 0, len(run.hashes)
    half = _own_bytes(run) // 2
    while high - low > 1:
        middle = (low + high) // 2
        rows = [column.slice(run.starts[0], run.starts[middle] - run.starts[0]) for column in run.payload.columns]
        size = sum(map(_column_bytes, (*run.keys.slice(0, middle).columns, *rows)))
        low, high = (middle, high) if size <= half else (low, middle)
    return low


def _merged(runs: Sequence[Run]) -> list[Run]:
    if len(runs) == 1:
        return list(runs)
    counts = np.concatenate([np.diff(run.starts) for run in runs]).astype(np.int64)
    windowed = runs[0].codes is not None
    times = np.concatenate([run.times(run.rows_slice()) for run in runs]) if windowed else None
    payload = [_rows_of(run) for run in runs]
    hashes = np.concatenate([run.hashes for run in runs])
    return _arranged(hashes, concat_batches([run.keys for run in runs]), counts, times, payload, in_pieces=True)


def _arranged(
    hashes: Hashes,
    keys: pa.RecordBatch,
    counts: Ints | None,
    times: Ints | None,
    payload: Sequence[pa.RecordBatch],
    *,
    in_pieces: bool,
) -> list[Run]:
    """Runs of rows that lie key by key: candidate c has the next `counts[c]` of them, or one where counts is None.

    The rows then follow from the order of the keys, and are sorted again only where several of a key are not in order
    of time. Where keys come in sorted pieces (`in_pieces`), a sort that merges is faster (`benchmarks/kernels.py`).
    """
    order, first = group_keys(hashes, keys, in_pieces=in_pieces)
    if times is not None and not _codes_fit(times, int(np.count_nonzero(first))):
        candidates = np.arange(len(hashes), dtype=np.int64)
        of_rows = candidates if counts is None else candidates.repeat(counts)
        return build_runs(hashes, keys, times, concat_batches(payload), of_rows)
    total, rows, distinct = len(order), order, order[first]
    begins = np.flatnonzero(first)
    if counts is not None and (total := int(counts.sum())) > len(order):
        held = counts[order]
        before = np.cumsum(held) - held
        rows = np.arange(total) + np.repeat((np.cumsum(counts) - counts)[order] - before, held)
        begins = before[first]
    starts = np.append(begins, total).astype(np.int32)
    codes, bounds = None, (0, 0, 0, 0)
    if times is not None:
        ranks = np.repeat(np.arange(len(distinct), dtype=np.int64), np.diff(starts))
        codes, bounds = _codes(ranks, times[rows])
        if not (codes[1:] >= codes[:-1]).all():
            again = np.argsort(codes, kind="stable" if in_pieces else None)
            codes, rows = codes[again], rows[again]
    found = hashes[distinct], take_rows(keys, distinct), starts, codes, _gathered(payload, rows)
    return [Run(*found, *bounds)]


def select_rows(run: Run, mask: Mask) -> Run | None:
    """The rows of a run for which the mask (one entry per row, in order) holds; None if there are none."""
    if mask.all():
        return run
    if not len(rows := np.flatnonzero(mask) + int(run.starts[0])):
        return None
    edges = np.append(0, np.cumsum(mask))[run.starts - run.starts[0]]
    kept = np.flatnonzero(np.diff(edges))
    starts = np.append(edges[kept], len(rows)).astype(np.int32)
    found = run.hashes[kept], take_rows(run.keys, kept), starts
    if run.codes is None:
        return Run(*found, None, take_rows(run.payload, rows))
    codes, bounds = _codes(np.repeat(np.arange(len(kept), dtype=np.int64), np.diff(starts)), run.times(rows))
    return Run(*found, codes, take_rows(run.payload, rows), *bounds)


def select_keys(run: Run, positions: Ints) -> Run:
    """The rows of some keys of a run, given by their numbers in ascending order; takes no longer for a longer run."""
    if len(positions) == len(run.hashes):
        return run
    counts = (run.starts[positions + 1] - run.starts[positions]).astype(np.int64)
    starts = np.append(0, np.cumsum(counts)).astype(np.int32)
    rows = np.arange(starts[-1], dtype=np.int64) + np.repeat(run.starts[positions] - starts[:-1], counts)
    codes = None
    if run.codes is not None:
        ranks = np.repeat(np.arange(len(positions), dtype=np.int64), counts)
        codes = (ranks << np.int64(run.time_bits)) | (run.codes[rows] & np.int64((1 << run.time_bits) - 1))
    return replace(
        run,
        hashes=run.hashes[positions],
        keys=take_rows(run.keys, positions),
        starts=starts,
        codes=codes,
        payload=take_rows(run.payload, rows),
        rank_base=0,
        sieve=None,
    )


def group_keys(hashes: Hashes, keys: pa.RecordBatch, *, in_pieces: bool = False) -> tuple[Ints, Mask]:
    """Order candidates so that equal keys are neighbours and hashes ascend; mark the first of each distinct key.

    Hash equality is never enough: neighbours with one hash are compared by value, and if two of them differ (a hash
    collision) the order is computed again over hash and values.
    """
    order, ordered = sorted_hashes(hashes, in_pieces=in_pieces)
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    repeated = np.flatnonzero(~first)
    if len(repeated) and not keys_equal(keys, order[repeated], keys, order[repeated - 1]).all():
        values = [_value_ids(column) for column in keys.columns]
        order = np.lexsort([*values, hashes])
        first[1:] = hashes[order][1:] != hashes[order][:-1]
        first[1:] |= ~keys_equal(keys, order[1:], keys, order[:-1])
    return order, first


def keys_equal(left: pa.RecordBatch, left_rows: Ints, right: pa.RecordBatch, right_rows: Ints) -> Mask:
    """Whether key values are equal, row by row. Keys hold no NULL, and floats are normalised before they get here."""
    equal = np.ones(len(left_rows), dtype=np.bool_)
    for a, b in zip(left.columns, right.columns, strict=True):
        if (bits := _bits(a)) is not None and (other := _bits(b)) is not None:
            equal &= bits[left_rows] == other[right_rows]
        else:
            equal &= key_values_equal(take(a, left_rows), take(b, right_rows))
    return equal


def key_values_equal(left: pa.Array, right: pa.Array) -> Mask:
    """Whether two columns of key values are equal, row by row."""
    if (bits := _bits(left)) is not None and (other := _bits(right)) is not None:
        equal: Mask = bits == other
        return equal
    return pc.equal(left, right).to_numpy(zero_copy_only=False)


def take(column: pa.Array, rows: Ints) -> pa.Array:
    """Rows of a column by number; the numbers are ours, so they are not checked."""
    return pc.take(column, pa.array(rows), boundscheck=False)


def take_rows(batch: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([take(column, rows) for column in batch.columns], schema=batch.schema)


def _gathered(batches: Sequence[pa.RecordBatch], rows: Ints) -> pa.RecordBatch:
    """Rows of several batches, numbered through from the first to the last batch. Columns are gathered one by one, so
    that only one of them is in memory a third time."""
    columns = [take(_one_array([b.column(i) for b in batches]), rows) for i in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several, columns without chunks."""
    if len(batches) == 1:
        return batches[0]
    columns = [_one_array([b.column(i) for b in batches]) for i in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _one_array(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _rows_of(run: Run) -> pa.RecordBatch:
    return run.payload.slice(int(run.starts[0]), run.rows) if run.payload.num_columns else run.payload


def _sorted_run(hashes: Hashes, keys: pa.RecordBatch, ranks: Ints, times: Ints | None, payload: pa.RecordBatch) -> Run:
    """Rows in the order of (rank, time); `keys` and `hashes` are distinct and in order of rank."""
    starts = np.zeros(len(hashes) + 1, dtype=np.int32)
    np.cumsum(np.bincount(ranks, minlength=len(hashes)), out=starts[1:])
    if times is None:
        return Run(hashes, keys, starts, None, _reorder(payload, ranks, stable=True)[1])
    codes, bounds = _codes(ranks, times)
    return Run(hashes, keys, starts, *_reorder(payload, codes, stable=False), *bounds)


def _codes(ranks: Ints, times: Ints) -> tuple[Ints, tuple[int, int, int, int]]:
    """The codes of rows; and their origin, the bits of a time, and the least and the greatest time."""
    low, high = int(times.min()), int(times.max())
    bits = (high - low + 1).bit_length()
    return (ranks << np.int64(bits)) | (times - np.int64(low)), (low, bits, low, high)


def _reorder(payload: pa.RecordBatch, by: Ints, *, stable: bool) -> tuple[Ints, pa.RecordBatch]:
    if (by[1:] >= by[:-1]).all():
        return by, payload
    order = np.argsort(by, kind="stable" if stable else None)
    return by[order], take_rows(payload, order)


def _drop_unused_keys(run: Run) -> Run:
    used = np.diff(run.starts) > 0
    if used.all():
        return run
    kept = np.flatnonzero(used)
    codes = run.codes
    if codes is not None:
        rank_of = np.cumsum(used) - 1
        bits = np.int64(run.time_bits)
        codes = (rank_of[codes >> bits] << bits) | (codes & np.int64((1 << run.time_bits) - 1))
    starts = np.append(run.starts[:-1][used], run.starts[-1]).astype(np.int32)
    return replace(run, hashes=run.hashes[kept], keys=take_rows(run.keys, kept), starts=starts, codes=codes, sieve=None)


def _codes_fit(times: Ints, keys: int) -> bool:
    span = int(times.max()) - int(times.min()) + 1
    return span.bit_length() + keys.bit_length() <= CODE_BITS


def _bits(column: pa.Array) -> npt.NDArray[np.signedinteger] | None:
    """A fixed-width column as integers, sharing its memory; None where values have no fixed width."""
    kind = column.type
    if pa.types.is_boolean(kind) or not pa.types.is_primitive(kind):
        return None
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, dtype=_WIDTHS[kind.bit_width])[column.offset : column.offset + len(column)]


def _column_bytes(column: pa.Array) -> int:
    """The bytes of a column's values, without the validity bitmap."""
    kind = column.type
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return -(-kind.bit_width * len(column) // 8)
    return int(column.nbytes)


def _value_ids(column: pa.Array) -> npt.NDArray[np.signedinteger]:
    if (bits := _bits(column)) is not None:
        return bits
    ids: npt.NDArray[np.signedinteger] = pc.dictionary_encode(column).indices.to_numpy(zero_copy_only=False)
    return ids
