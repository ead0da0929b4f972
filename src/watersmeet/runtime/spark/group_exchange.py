"""The exchange before an aggregation: joined or accumulated rows go to the slots of their groups, along with reports.

If the engine can compute keys and arguments itself, slots send accumulated rows, and Spark computes only their hash.
Otherwise they send joined rows, and Spark computes keys and arguments from the user's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from watersmeet.engine.accumulators import JoinedRows, accumulate, rows_at_once
from watersmeet.plan.aggregate import PANE, AggregatePlan
from watersmeet.plan.frame import HASH, REPORT
from watersmeet.plan.stages import RESULT_TIME_US, JoinPlan
from watersmeet.query.aggregates import Value, key_column
from watersmeet.query.expressions import Column, quote
from watersmeet.query.logical import JoinQuery, internal_name
from watersmeet.runtime.spark.source import spark_type
from watersmeet.state.run import take


def sent_schema(plan: JoinPlan) -> pa.Schema:
    """The output of the last join stage if its rows flow on: joined rows or rows to be grouped, and reports."""
    rows = plan.output_schema
    if plan.aggregate is not None:
        rows = plan.aggregate.frame if plan.aggregate.by_engine else plan.to_group
    return pa.schema([*rows, pa.field(REPORT, pa.string())])


def shown_schema(plan: JoinPlan) -> pa.Schema:
    """The output of the aggregation stage if its rows flow on: rows of groups, and reports."""
    assert plan.aggregate is not None
    return pa.schema([*plan.aggregate.shown_schema, pa.field(REPORT, pa.string())])


def struct_of(schema: pa.Schema) -> StructType:
    return StructType([StructField(f.name, spark_type(f.type)) for f in schema])


def with_reports(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with an empty column for reports."""
    return rows.append_column(pa.field(REPORT, pa.string()), pa.nulls(rows.num_rows, pa.string()))


def reports_only(schema: pa.Schema, reports: Sequence[str]) -> pa.RecordBatch:
    """Reports as rows of a schema, with all other columns NULL."""
    columns = [pa.nulls(len(reports), f.type) for f in schema][:-1]
    return pa.RecordBatch.from_arrays([*columns, pa.array(reports, pa.string())], schema=schema)


def to_groups(query: JoinQuery, plan: JoinPlan, sent: DataFrame) -> DataFrame:
    """The join's rows with keys, arguments and the hash by which they are exchanged."""
    aggregate = plan.aggregate
    assert aggregate is not None
    for predicate in query.spark_residuals:
        sent = sent.filter(f"{REPORT} IS NOT NULL OR ({predicate.sql})")
    if not aggregate.by_engine:
        keys = [f"{of_rows(_normalised(key))} AS {key_column(i)}" for i, key in enumerate(aggregate.keys)]
        arguments = [f"{of_rows(value.sql)} AS {_argument(i)}" for i, value in enumerate(aggregate.arguments)]
        arguments += [f"{quote(internal_name(column))} AS {_row_id(i)}" for i, column in enumerate(_row_ids(aggregate))]
        pane = [] if aggregate.window is None else [f"{RESULT_TIME_US} AS {PANE}"]
        sent = sent.selectExpr(*pane, *keys, *arguments, REPORT)
    names = ", ".join(key_column(i) for i in range(len(aggregate.keys)))
    return sent.selectExpr("*", f"{f'xxhash64({names})' if names else '0L'} AS {HASH}")


def received(plan: AggregatePlan, frames: Iterable[pa.RecordBatch], reports: list[str]) -> Iterator[pa.RecordBatch]:
    """Accumulated rows with their hash, as the aggregation takes them; reports are appended to `reports`."""
    arguments = [pa.field(_argument(i), value.type) for i, value in enumerate(plan.arguments)]
    arguments += [pa.field(_row_id(i), pa.int64()) for i in range(len(_row_ids(plan)))]
    by_spark = [f for f in plan.frame if f.name not in plan.layout.payload.names] + arguments
    expected = pa.schema([*(plan.frame if plan.by_engine else by_spark), pa.field(HASH, pa.int64())])
    for frame in frames:
        is_row = pc.is_null(frame.column(REPORT))
        if pc.sum(is_row).as_py() < frame.num_rows:
            reports += frame.column(REPORT).drop_null().to_pylist()
            frame = frame.filter(is_row)
        if not frame.num_rows:
            continue
        rows = pa.Table.from_batches([frame]).select(expected.names).cast(expected).combine_chunks().to_batches()[0]
        if plan.by_engine:
            yield rows
            continue
        size = rows_at_once(plan)
        yield from (_accumulated(plan, rows.slice(start, size)) for start in range(0, rows.num_rows, size))


def _accumulated(plan: AggregatePlan, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with keys and arguments, accumulated."""
    joined = JoinedRows(
        rows.num_rows,
        [rows.column(key_column(i)) for i in range(len(plan.keys))],
        [rows.column(_argument(i)) for i in range(len(plan.arguments))],
        None if plan.window is None else rows.column(PANE).to_numpy(),
        [rows.column(_row_id(i)).to_numpy().view(np.uint64) for i in range(len(_row_ids(plan)))],
    )
    accumulated, first = accumulate(plan, joined)
    return accumulated.append_column(pa.field(HASH, pa.int64()), take(rows.column(HASH), first))


def _row_ids(plan: AggregatePlan) -> tuple[Column, ...]:
    return () if plan.confidence is None else plan.confidence.row_ids


def _row_id(number: int) -> str:
    return f"_i{number}"


def _argument(number: int) -> str:
    return f"_v{number}"


def of_rows(sql: str) -> str:
    """An expression evaluated for rows only: on a report, whose columns are NULL, the user's text might fail."""
    return f"CASE WHEN {REPORT} IS NULL THEN ({sql}) END"


def _normalised(key: Value) -> str:
    """Equal keys hash equally: 0.0 for -0.0, and one NaN."""
    if not pa.types.is_floating(key.type):
        return f"({key.sql})"
    kind = spark_type(key.type).simpleString()
    return (
        f"CASE WHEN isnan({key.sql}) THEN CAST('NaN' AS {kind}) "
        f"WHEN ({key.sql}) = 0 THEN CAST(0 AS {kind}) ELSE ({key.sql}) END"
    )
