"""Emission: the results of a node become result rows of the query, frames for the next stage, or runs for the parent
node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.accumulators import JoinedRows, accumulate, rows_at_once
from watersmeet.engine.combined_rows import field_of, weighed
from watersmeet.engine.expressions import compute
from watersmeet.engine.marks import marks_of_results
from watersmeet.engine.partials import Joined
from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.plan.frame import STAGE, STREAM, TIME, pool_name
from watersmeet.plan.layout import KeyValue, StoreLayout
from watersmeet.plan.stages import JoinPlan, Place
from watersmeet.query.aggregates import Value
from watersmeet.state.moments import limits_of_last
from watersmeet.state.run import Run, build_runs


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """Rows that leave a slot: frames for a stage or, if `stage` is None, results of the query."""

    stage: int | None
    rows: pa.RecordBatch


def emit(plan: JoinPlan, feeds: Sequence[Place], joined: Joined) -> Iterator[Emitted]:
    """Results of a node in the form that leaves the slot."""
    for place in feeds:
        yield Emitted(place.stage, _frame(plan, place.stage, place.input, joined))
    if feeds:
        return
    if plan.aggregate is not None and plan.aggregate.by_engine:
        yield from (Emitted(plan.aggregate.stage, rows) for rows in _accumulated(plan.aggregate, joined))
        return
    columns = [joined.column(column.field) for column in plan.output]
    if plan.aggregate is None:
        yield Emitted(None, _rows(columns, plan.output_schema, joined.rows))
        return
    times = joined.partials.latest if plan.aggregate.window is not None else np.zeros(joined.rows, dtype=np.int64)
    yield Emitted(plan.aggregate.stage, pa.RecordBatch.from_arrays([pa.array(times), *columns], schema=plan.to_group))


def _rows(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Rows of results; if no column is selected, the number of rows is still right."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))


def _accumulated(plan: AggregatePlan, joined: Joined) -> Iterator[pa.RecordBatch]:
    """Results of the join, accumulated by group within this chunk."""
    keys = [_computed(value, joined) for value in plan.keys]
    unread = plan.unread_arguments
    arguments = [pa.nulls(joined.rows) if i in unread else _computed(v, joined) for i, v in enumerate(plan.arguments)]
    row_ids = () if plan.confidence is None else plan.confidence.row_ids
    ids = [joined.column(column).to_numpy().view(np.uint64) for column in row_ids]
    times = None if plan.window is None else joined.partials.latest
    rows = JoinedRows(joined.rows, keys, arguments, times, ids, weighed(plan, joined, arguments))
    for part in rows.in_parts(rows_at_once(plan)):
        yield accumulate(plan, part)[0]


def _computed(value: Value, joined: Joined) -> pa.Array:
    assert value.expression is not None
    found = compute(value.expression, joined.column, joined.rows)
    return found if found.type.equals(value.type) else found.cast(value.type)


def runs_of(joined: Joined, layout: StoreLayout, partitions: int) -> list[Run]:
    """Results of a node as runs of its parent's store; they have the same key as their rows."""
    partials = joined.partials
    payload = pa.RecordBatch.from_arrays(_payload(joined, layout, partitions), schema=layout.payload)
    return build_runs(joined.delta.hashes, joined.delta.keys, partials.latest, payload, partials.ranks)


def _payload(joined: Joined, layout: StoreLayout, partitions: int) -> list[pa.Array]:
    columns = [field_of(joined, field) for field, source in layout.sources if source.kind == "payload"]
    if layout.limit is not None:
        assert joined.partials.last is not None
        columns.append(pa.array(limits_of_last(joined.partials.last)))
    for key in layout.trail:
        columns.append(pa.array(joined.group_under(key, partitions).astype(np.uint16).view(np.int16)))
    return [*columns, marks_of_results(joined)] if layout.is_marked else columns


def _frame(plan: JoinPlan, stage: int, ordinal: int, joined: Joined) -> pa.RecordBatch:
    """Frames of the next stage; the runner computes the hash of their new key."""
    target, frame = plan.stages[stage], plan.frame
    layout = target.inputs[ordinal]
    columns: dict[str, pa.Array] = {
        STAGE: pa.array(np.full(joined.rows, stage, dtype=np.int8)),
        STREAM: pa.array(np.full(joined.rows, ordinal, dtype=np.int8)),
    }
    if frame.time_type is not None:
        columns[TIME] = pc.cast(pa.array(joined.partials.latest), frame.time_type)
    for place, key_class in zip(frame.keys[stage], target.key, strict=False):
        columns[pool_name(place)] = joined.column(KeyValue(key_class))
    if not target.key:
        columns[pool_name(frame.keys[stage][0])] = pa.array(np.zeros(joined.rows, dtype=np.int8))
    for place, values in zip(frame.payloads[stage][ordinal], _payload(joined, layout, plan.partitions), strict=True):
        columns[pool_name(place)] = values
    return pa.RecordBatch.from_arrays(
        [columns[f.name] if f.name in columns else pa.nulls(joined.rows, f.type) for f in frame.schema],
        schema=frame.schema,
    )
