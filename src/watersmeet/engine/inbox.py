"""The inbox of a slot: arriving frames, cut into bounded chunks and sorted into one delta per input.

Rows that can never be part of a result are dropped here, and counted. NULL in a key column joins nothing. In a windowed
query a row is late iff its event time is before the watermark at the start of its batch, and a row without event time
is in no window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.key_hashes import can_hash, key_hashes
from watersmeet.engine.marks import arrived_marks
from watersmeet.engine.statistics import Tally
from watersmeet.epoch.key_sketch import SketchedKey
from watersmeet.plan.frame import HASH, STREAM, TIME, Frame, pool_name
from watersmeet.plan.layout import KeyValue, StoreLayout
from watersmeet.plan.stages import JoinPlan, Place
from watersmeet.plan.tree import Leaf
from watersmeet.state.measures import LATE, NO_EVENT_TIME, NULL_KEY, SKETCH_NS, Figure, Measure
from watersmeet.state.run import Run, build_runs

CHUNK_ROWS = 1 << 19
CHUNK_BYTES = 64 << 20


def chunks(
    frames: Iterable[pa.RecordBatch], rows_max: int = CHUNK_ROWS, bytes_max: int = CHUNK_BYTES
) -> Iterator[pa.Table]:
    """Gather frames into tables of about `rows_max` rows or `bytes_max` bytes, so that work in flight is bounded."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for frame in frames:
        for part, part_bytes in _parts(frame, rows_max, bytes_max):
            if held and part_bytes > bytes_max:  # one row: together with others it might be too long for a column
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
            held.append(part)
            rows += part.num_rows
            size += part_bytes
            if rows >= rows_max or size >= bytes_max:
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _parts(frame: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """A frame in parts of at most `rows_max` rows and `bytes_max` bytes, or of one row; and the bytes of each."""
    for start in range(0, frame.num_rows, rows_max):
        part = frame.slice(start, rows_max)
        size = part.nbytes
        if part.num_rows == 1 or size <= bytes_max:
            yield part, size
        else:
            yield from _parts(part, -(-part.num_rows // 2), bytes_max)


def deltas_of(chunk: pa.Table, plan: JoinPlan, stage: int, watermark_us: int | None, tally: Tally) -> list[list[Run]]:
    """The rows of a chunk as runs, per input of the stage. Arrived rows, and dropped rows by reason, are counted."""
    frame, inputs = plan.frame, plan.stages[stage].inputs
    if chunk.schema.names != frame.schema.names:
        raise ValueError(f"frame has columns {chunk.schema.names}, the plan says {frame.schema.names}")
    batch = chunk.cast(frame.schema).combine_chunks().to_batches()[0]
    ordinals = batch.column(STREAM).to_numpy()
    _see(batch, plan, stage, ordinals, tally)
    keep = _keep(batch, plan, stage, ordinals, watermark_us, tally.counts)
    if tally.sketched:
        with tally.spent_on(SKETCH_NS):
            _sketch(batch, plan, stage, ordinals, keep, tally)
    return [
        _delta(batch, frame, stage, ordinal, np.flatnonzero(keep & (ordinals == ordinal)), inputs[ordinal])
        for ordinal in range(len(inputs))
    ]


def _see(batch: pa.RecordBatch, plan: JoinPlan, stage: int, ordinals: npt.NDArray[np.int8], tally: Tally) -> None:
    """Count arrived rows, before any are dropped."""
    for ordinal in range(len(plan.stages[stage].inputs)):
        mine = ordinals == ordinal
        stream = _stream_counted(plan, stage, ordinal)
        if stream is not None and mine.any():
            times = batch.column(TIME).filter(pa.array(mine)).drop_null() if plan.windowed else ()
            tally.see(stream, int(np.count_nonzero(mine)), int(_micros(times).max()) if len(times) else None)


def _sketch(
    batch: pa.RecordBatch,
    plan: JoinPlan,
    stage: int,
    ordinals: npt.NDArray[np.int8],
    keep: npt.NDArray[np.bool_],
    tally: Tally,
) -> None:
    """Count the kept rows of streams by the hashes of their keys, once for every stream and key."""
    for ordinal, layout in enumerate(plan.stages[stage].inputs):
        stream = _stream_counted(plan, stage, ordinal)
        if stream is None:
            continue
        places = _key_places(plan, stage, ordinal, layout)
        rows = pa.array(np.flatnonzero(keep & (ordinals == ordinal)))
        for classes in tally.sketched if len(rows) else ():
            columns = [batch.column(pool_name(places[i])).take(rows) for i in classes if i in places]
            if len(columns) == len(classes) and all(can_hash(column.type) for column in columns):
                tally.sketch(SketchedKey(stream, classes), key_hashes(columns))


def _key_places(plan: JoinPlan, stage: int, ordinal: int, layout: StoreLayout) -> dict[int, int]:
    """The frame columns of a stream's key classes."""
    found = dict(zip(plan.stages[stage].key, plan.frame.keys[stage], strict=False))
    payload = plan.frame.payloads[stage][ordinal]
    for field, source in layout.sources:
        if isinstance(field, KeyValue) and source.kind == "payload":
            found[field.key_class] = payload[source.index]
    return found


def _keep(
    batch: pa.RecordBatch,
    plan: JoinPlan,
    stage: int,
    ordinals: npt.NDArray[np.int8],
    watermark_us: int | None,
    dropped: Counter[Figure],
) -> npt.NDArray[np.bool_]:
    """Rows that can be part of a result. Results of earlier stages are never late: their rows were checked before."""
    inputs = plan.stages[stage].inputs
    from_stream = np.array([isinstance(layout.tree, Leaf) for layout in inputs])[ordinals]
    keep = np.ones(batch.num_rows, dtype=np.bool_)
    if plan.windowed:
        column = batch.column(TIME)
        if column.null_count:
            timed = pc.is_valid(column).to_numpy(zero_copy_only=False)
            _count(dropped, NO_EVENT_TIME, ordinals[~timed], plan, stage)
            keep &= timed
        if watermark_us is not None:
            late = keep & from_stream & (_micros(column) < watermark_us)
            if late.any():
                _count(dropped, LATE, ordinals[late], plan, stage)
                keep &= ~late
    for ordinal, layout in enumerate(inputs):
        columns = [*plan.frame.keys[stage], *_class_columns(plan, stage, ordinal, layout)]
        for column in (batch.column(pool_name(i)) for i in columns):
            if column.null_count:
                unknown = keep & (ordinals == ordinal) & pc.is_null(column).to_numpy(zero_copy_only=False)
                _count(dropped, NULL_KEY, ordinals[unknown], plan, stage)
                keep &= ~unknown
    return keep


def _class_columns(plan: JoinPlan, stage: int, ordinal: int, layout: StoreLayout) -> list[int]:
    """Frame columns that hold values of other key classes. NULL there joins nothing in a later stage."""
    kept = [source for field, source in layout.sources if isinstance(field, KeyValue) and source.kind == "payload"]
    return [plan.frame.payloads[stage][ordinal][source.index] for source in kept]


def _count(
    dropped: Counter[Figure], reason: Measure, ordinals: npt.NDArray[np.int8], plan: JoinPlan, stage: int
) -> None:
    """Count dropped rows at the one place where their stream is counted: it may be sent to several stages."""
    for ordinal, rows in enumerate(np.bincount(ordinals)):
        if rows and (stream := _stream_counted(plan, stage, ordinal)) is not None:
            dropped[Figure(reason, stream)] += int(rows)


def _stream_counted(plan: JoinPlan, stage: int, ordinal: int) -> str | None:
    """The stream whose rows are counted at this input; None if no stream is counted here."""
    tree = plan.stages[stage].inputs[ordinal].tree
    if isinstance(tree, Leaf) and plan.places(tree.stream)[0] == Place(stage, ordinal):
        return plan.names[tree.stream]
    return None


def _delta(
    batch: pa.RecordBatch, frame: Frame, stage: int, ordinal: int, rows: npt.NDArray[np.int64], layout: StoreLayout
) -> list[Run]:
    if len(rows) == 0:
        return []
    index = pa.array(rows)
    keys = [normalise_key(batch.column(pool_name(i)).take(index)) for i in frame.keys[stage]]
    payload = [batch.column(pool_name(i)).take(index) for i in frame.payloads[stage][ordinal]]
    if layout.is_marked and isinstance(layout.tree, Leaf):
        payload.append(arrived_marks(len(rows)))
    return build_runs(
        batch.column(HASH).to_numpy()[rows].view(np.uint64),
        pa.RecordBatch.from_arrays(keys, names=[f"k{i}" for i in range(len(keys))]),
        _micros(batch.column(TIME))[rows] if frame.time_type is not None else None,
        pa.RecordBatch.from_arrays(payload, schema=layout.payload),
    )


def _micros(column: pa.Array) -> npt.NDArray[np.int64]:
    """Event times as microseconds; the value of a NULL is undefined."""
    bits = np.frombuffer(column.buffers()[1], dtype=np.int64)
    return bits[column.offset : column.offset + len(column)]


def normalise_key(column: pa.Array) -> pa.Array:
    """A key column in which equal values have equal bits: 0.0 for -0.0, one NaN for all."""
    if not pa.types.is_floating(column.type):
        return column
    values = column.to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), np.nan, values + 0.0).astype(values.dtype)
    return pa.array(values, mask=pc.is_null(column).to_numpy(zero_copy_only=False))
