"""Spark's work before and between stages, done with Arrow: frames, hashes, and the split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.combined_rows import part_of_rows
from watersmeet.engine.expressions import evaluate
from watersmeet.engine.inbox import normalise_key
from watersmeet.epoch.task import Intake, Outcome, SlotReport, intake_of
from watersmeet.errors import QueryError
from watersmeet.plan.frame import HASH, STAGE, STREAM, TIME, pool_name
from watersmeet.plan.layout import Field, KeyValue
from watersmeet.plan.partitioning import group_of
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan, Place
from watersmeet.plan.weights import Part
from watersmeet.query.aggregates import key_column
from watersmeet.query.expressions import Column
from watersmeet.query.filter_expressions import filter_expression
from watersmeet.query.logical import JoinQuery, Stream
from watersmeet.query.types import is_floating

Hash = Callable[[list[pa.Array]], npt.NDArray[np.uint64]]


def pandas_hash(keys: list[pa.Array]) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of composite keys. (Spark uses another one; a checkpoint must always use the same.)"""
    import pandas as pd  # a quarter of a second, for callers without a hash of their own

    mixed = np.zeros(len(keys[0]), dtype=np.uint64)
    for key in keys:
        known = pc.is_valid(key).to_numpy(zero_copy_only=False)
        values = np.zeros(len(key), dtype=np.uint64)  # pandas turns integers into floats if there is a NULL
        values[known] = pd.util.hash_array(key.drop_null().to_pandas().to_numpy())
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + values
    return mixed


def require_no_spark(query: JoinQuery, plan: JoinPlan) -> None:
    """Refuse a query that has a part evaluated by Spark."""
    plain = query.aggregation is not None or all(item.column is not None for item in query.select)
    if not plain or any(filter_expression(query, wanted) is None for wanted in query.filters):
        raise QueryError("expressions in the select list, and filters beyond the engine, are evaluated by Spark")
    ids = () if query.confidence is None else query.confidence.row_ids
    derived = [Column(stream.name, column.name) for stream in query.streams for column in stream.derived]
    if query.spark_residuals or any(column not in ids for column in derived):
        raise QueryError("derived columns and predicates on the results are evaluated by Spark")
    if plan.aggregate is not None and not plan.aggregate.by_engine:
        raise QueryError("what the engine has no expression for is evaluated by Spark")


def outcome_of(
    query: JoinQuery, plan: JoinPlan, reports: Sequence[SlotReport], batch: Mapping[str, pa.Table]
) -> Outcome:
    """The outcome of an epoch; its intake is counted before filters."""
    if not query.filters or not batch:
        return Outcome(reports, intake_of(plan, reports))
    tables = [batch.get(stream.name) for stream in query.streams]
    times: list[int | None] = []
    for stream, table in zip(query.streams, tables, strict=True):
        found = None if table is None or not query.windowed else pc.max(table[stream.event_time])
        times.append(None if found is None else found.cast(pa.int64()).as_py())
    rows = tuple(0 if table is None else table.num_rows for table in tables)
    return Outcome(reports, Intake(rows, tuple(times)))


class Frames:
    """The rows of batches as frames of a plan."""

    def __init__(self, query: JoinQuery, plan: JoinPlan, hash_keys: Hash) -> None:
        self.query, self.plan, self.hash_keys = query, plan, hash_keys

    def inboxes(self, batch: Mapping[str, pa.Table]) -> list[list[pa.RecordBatch]]:
        """The rows of a batch, by stage."""
        inboxes: list[list[pa.RecordBatch]] = [[] for _ in range(self.plan.stage_count)]
        for i, stream in enumerate(self.query.streams):
            if stream.name in batch:
                rows = self._filtered(stream, batch[stream.name])
                for place in self.plan.places(i):
                    inboxes[place.stage].append(self.frame(i, place, rows))
        return inboxes

    def _filtered(self, stream: Stream, table: pa.Table) -> pa.Table:
        for wanted in self.query.filters:
            test = filter_expression(self.query, wanted) if wanted.stream == stream.name else None
            if test is not None:
                passed = evaluate(test, lambda column, rows=table: _flat(rows[column.name]), table.num_rows)  # type: ignore[misc]
                table = table.filter(pa.array(passed))
        return table

    def frame(self, ordinal: int, place: Place, table: pa.Table) -> pa.RecordBatch:
        """The rows of one stream in the frame that the plan prescribes for an input of a stage."""
        stream, frame = self.query.streams[ordinal], self.plan.frame
        stage, number = place.stage, place.input
        table = _with_row_ids(stream, table).select(stream.schema.names).cast(stream.schema).combine_chunks()
        columns: dict[str, pa.Array] = {
            STAGE: pa.array(np.full(table.num_rows, stage, dtype=np.int8)),
            STREAM: pa.array(np.full(table.num_rows, number, dtype=np.int8)),
        }
        if frame.time_type is not None:
            columns[TIME] = _flat(table[stream.event_time])
        key: list[Field] = [KeyValue(i) for i in self.plan.stages[stage].key]
        layout = self.plan.stages[stage].inputs[number]
        payload = [field for field, source in layout.sources if source.kind == "payload"]
        places = (*frame.keys[stage], *frame.payloads[stage][number])
        if not key:
            columns[pool_name(places[0])] = pa.array(np.zeros(table.num_rows, dtype=np.int8))
            places = places[1:]
        for column, field in zip(places, [*key, *payload], strict=True):
            columns[pool_name(column)] = self._values(ordinal, table, field)
        arrays = [columns.get(f.name, pa.nulls(table.num_rows, f.type)) for f in frame.schema]
        return self.hashed(pa.RecordBatch.from_arrays(arrays, schema=frame.schema), stage)

    def hashed(self, frame: pa.RecordBatch, stage: int) -> pa.RecordBatch:
        """The frame with the hash of its key; a stage without a key has one hash."""
        hashes = np.zeros(frame.num_rows, dtype=np.int64)
        if self.plan.aggregate is not None and stage == self.plan.aggregate.stage:
            if keys := [frame.column(key_column(i)) for i in range(len(self.plan.aggregate.keys))]:
                hashes = self.hash_keys(keys).view(np.int64)
            return frame.append_column(HASH, pa.array(hashes))
        if self.plan.stages[stage].key:
            keys = [frame.column(pool_name(i)) for i in self.plan.frame.keys[stage]]
            hashes = self.hash_keys(keys).view(np.int64)
        return frame.set_column(frame.schema.get_field_index(HASH), HASH, pa.array(hashes))

    def share(self, frame: pa.RecordBatch, stage: int, placement: Placement, slot: int) -> pa.RecordBatch:
        """The rows of a frame that a slot gets in a stage."""
        groups = group_of(frame.column(HASH).to_numpy().view(np.uint64), self.plan.partitions)
        owners = np.asarray(placement.owners[self.plan.key_of_stage(stage)])
        return frame.filter(pa.array(owners[groups] == slot))

    def _values(self, ordinal: int, table: pa.Table, field: Field) -> pa.Array:
        if isinstance(field, Column):
            return _flat(table[field.name])
        if isinstance(field, Part):
            return part_of_rows(field, table.num_rows, None if field.column is None else _flat(table[field.column]))
        key_class = self.query.classes[field.key_class]
        values = _flat(table[key_class.columns[ordinal]])
        return normalise_key(values.cast(key_class.type, safe=not is_floating(key_class.type)))


def _with_row_ids(stream: Stream, table: pa.Table) -> pa.Table:
    """The rows of a stream, each with its hash if the query needs one."""
    for derived in stream.derived:
        hashes = pandas_hash([_flat(table[name]) for name in stream.schema.names if name in table.schema.names])
        table = table.append_column(derived.name, pa.array(hashes.view(np.int64)))
    return table


def _flat(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)
