"""From streaming DataFrames to frames: cast keys, filter, hash and split, all in the JVM.

Streams are united in name order, because Spark's source offsets are positional. What the watermark needs (the latest
event time of each stream, before our filters) is *observed* on the way, so filtered rows are never shuffled.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from watersmeet.plan.frame import HASH, REPORT, STAGE, STREAM, TIME, pool_name
from watersmeet.plan.layout import Field, KeyValue
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.epoch import Intake

KEEP = "_keep"
SLOT = "_slot"
EPOCH_START = datetime.datetime(1970, 1, 1)


def unite(query: JoinQuery, plan: JoinPlan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """All streams as one streaming DataFrame in the frame's columns, with a mark for rows that the filters keep."""
    parts = [_project(query, plan, ordinal, frames[stream.name]) for ordinal, stream in enumerate(query.streams)]
    return reduce(DataFrame.union, parts)


def observe(plan: JoinPlan, batch: DataFrame, observation: Observation) -> DataFrame:
    """The rows the filters keep; rows and latest event time of every stream go to the observation."""
    metrics = []
    for ordinal in range(len(plan.names)):
        stage, number = plan.entry(ordinal)
        mine = (F.col(STAGE) == stage) & (F.col(STREAM) == number)
        metrics.append(F.count_if(mine).alias(f"rows{ordinal}"))
        if plan.windowed:
            metrics.append(F.max(F.when(mine, _comparable(plan, F.col(TIME)))).alias(f"latest{ordinal}"))
    return batch.observe(observation, *metrics).filter(F.col(KEEP)).drop(KEEP)


def intake_of(plan: JoinPlan, observation: Observation) -> Intake:
    """What the observation saw; call it after the job."""
    seen = observation.get
    streams = range(len(plan.names))
    return Intake(
        tuple(int(seen[f"rows{i}"]) for i in streams),
        tuple(_micros(seen[f"latest{i}"]) if plan.windowed else None for i in streams),
    )


def split(plan: JoinPlan, batch: DataFrame, assignment: Sequence[int], slots: int) -> DataFrame:
    """Send every row to the slot of its partition group in its stage (the papers' split operator)."""
    hashed = batch.withColumn(HASH, F.expr(_hash_text(plan)))
    group = f"shiftright(shiftrightunsigned({HASH}, 32) * {plan.partitions}L, 32)"
    owners = ",".join(str(slot) for slot in assignment)
    placed = hashed.withColumn(SLOT, F.expr(f"get(array({owners}), cast({group} as int))"))
    return placed.repartitionById(slots, SLOT).select(*plan.frame.schema.names)


def _hash_text(plan: JoinPlan) -> str:
    """The hash of a row's key in its stage, as SQL; a stage without a key has one hash, and so one slot."""
    texts = [
        "0L" if stage.on_one_slot else f"xxhash64({', '.join(pool_name(i) for i in plan.frame.keys[number])})"
        for number, stage in enumerate(plan.stages)
    ]
    if len(texts) == 1:
        return texts[0]
    return f"CASE {STAGE} {' '.join(f'WHEN {i} THEN {text}' for i, text in enumerate(texts))} END"


def _project(query: JoinQuery, plan: JoinPlan, ordinal: int, df: DataFrame) -> DataFrame:
    stream, frame = query.streams[ordinal], plan.frame
    stage, number = plan.entry(ordinal)
    columns: list[Column] = [F.lit(stage).cast("tinyint").alias(STAGE), F.lit(number).cast("tinyint").alias(STREAM)]
    if frame.time_type is not None and stream.event_time is not None:
        columns.append(_named(stream.event_time).alias(TIME))
    layout = plan.stages[stage].inputs[number]
    key = [_value(query, ordinal, KeyValue(i)) for i in plan.stages[stage].key] or [F.lit(0)]
    payload = [_value(query, ordinal, field) for field, source in layout.sources if source.kind == "payload"]
    values = dict(zip((*frame.keys[stage], *frame.payloads[stage][number]), [*key, *payload], strict=True))
    for i, kind in enumerate(frame.pool):
        columns.append(values.get(i, F.lit(None)).cast(spark_type(kind)).alias(pool_name(i)))
    if frame.reports:
        columns.append(F.lit(None).cast("string").alias(REPORT))
    kept = [F.coalesce(F.expr(f.sql), F.lit(False)) for f in query.filters if f.stream == stream.name]
    columns.append(reduce(Column.__and__, kept, F.lit(True)).alias(KEEP))
    return df.select(*columns)


def _value(query: JoinQuery, ordinal: int, field: Field) -> Column:
    """A field of a stream's row: a column as it is, or the value of a key class."""
    if not isinstance(field, KeyValue):
        return _named(field.name)
    key_class = query.classes[field.key_class]
    column = key_class.columns[ordinal]
    assert column is not None
    return _normalised(_named(column).cast(spark_type(key_class.type)), key_class.type)


def spark_type(kind: pa.DataType) -> DataType:
    return from_arrow_type(kind)


def _named(column: str) -> Column:
    return F.col("`" + column.replace("`", "``") + "`")


def _normalised(key: Column, kind: pa.DataType) -> Column:
    """Equal keys hash equally: 0.0 for -0.0, and one NaN."""
    if not pa.types.is_floating(kind):
        return key
    nan = F.lit(float("nan")).cast(spark_type(kind))
    zero = F.lit(0.0).cast(spark_type(kind))
    return F.when(F.isnan(key), nan).when(key == 0, zero).otherwise(key)


def _comparable(plan: JoinPlan, time: Column) -> Column:
    """Event time in a form that reaches the driver exactly: microseconds, or a timestamp without zone."""
    assert plan.frame.time_type is not None
    return F.unix_micros(time) if plan.frame.time_type.tz is not None else time


def _micros(value: int | datetime.datetime | None) -> int | None:
    if isinstance(value, datetime.datetime):
        return (value - EPOCH_START) // datetime.timedelta(microseconds=1)
    return value
