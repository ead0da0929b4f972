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

from watersmeet.plan.frame import HASH, STREAM, TIME, key_name, pool_name
from watersmeet.plan.mjoin import MJoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.epoch import Intake

KEEP = "_keep"
SLOT = "_slot"
EPOCH_START = datetime.datetime(1970, 1, 1)


def unite(query: JoinQuery, plan: MJoinPlan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """All streams as one streaming DataFrame in the frame's columns, with a mark for rows that the filters keep."""
    parts = [_project(query, plan, ordinal, frames[stream.name]) for ordinal, stream in enumerate(query.streams)]
    return reduce(DataFrame.union, parts)


def observe(query: JoinQuery, plan: MJoinPlan, batch: DataFrame, observation: Observation) -> DataFrame:
    """The rows the filters keep; rows and latest event time of every stream go to the observation."""
    metrics = []
    for ordinal in range(len(query.streams)):
        mine = F.col(STREAM) == ordinal
        metrics.append(F.count_if(mine).alias(f"rows{ordinal}"))
        if plan.windowed:
            metrics.append(F.max(F.when(mine, _comparable(plan, F.col(TIME)))).alias(f"latest{ordinal}"))
    return batch.observe(observation, *metrics).filter(F.col(KEEP)).drop(KEEP)


def intake_of(plan: MJoinPlan, observation: Observation) -> Intake:
    """What the observation saw; call it after the job."""
    seen = observation.get
    streams = range(len(plan.stores))
    return Intake(
        tuple(int(seen[f"rows{i}"]) for i in streams),
        tuple(_micros(seen[f"latest{i}"]) if plan.windowed else None for i in streams),
    )


def split(plan: MJoinPlan, batch: DataFrame, assignment: Sequence[int], slots: int) -> DataFrame:
    """Send every row to the slot of its partition group (the papers' split operator)."""
    hashed = batch.withColumn(HASH, F.xxhash64(*(F.col(key_name(i)) for i in range(len(plan.frame.key_types)))))
    group = f"shiftright(shiftrightunsigned({HASH}, 32) * {plan.partitions}L, 32)"
    owners = ",".join(str(slot) for slot in assignment)
    placed = hashed.withColumn(SLOT, F.expr(f"get(array({owners}), cast({group} as int))"))
    return placed.repartitionById(slots, SLOT).select(*plan.frame.schema.names)


def _project(query: JoinQuery, plan: MJoinPlan, ordinal: int, df: DataFrame) -> DataFrame:
    stream, frame = query.streams[ordinal], plan.frame
    columns: list[Column] = [F.lit(ordinal).cast("tinyint").alias(STREAM)]
    if frame.time_type is not None and stream.event_time is not None:
        columns.append(_named(stream.event_time).alias(TIME))
    for i, component in enumerate(query.key):
        cast = _named(component.columns[ordinal]).cast(spark_type(component.type))
        columns.append(_normalised(cast, component.type).alias(key_name(i)))
    mine = dict(zip(frame.columns[ordinal], plan.stores[ordinal].payload.names, strict=True))
    for i, kind in enumerate(frame.pool):
        value = _named(mine[i]) if i in mine else F.lit(None)
        columns.append(value.cast(spark_type(kind)).alias(pool_name(i)))
    kept = [F.coalesce(F.expr(f.sql), F.lit(False)) for f in query.filters if f.stream == stream.name]
    columns.append(reduce(Column.__and__, kept, F.lit(True)).alias(KEEP))
    return df.select(*columns)


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


def _comparable(plan: MJoinPlan, time: Column) -> Column:
    """Event time in a form that reaches the driver exactly: microseconds, or a timestamp without zone."""
    assert plan.frame.time_type is not None
    return F.unix_micros(time) if plan.frame.time_type.tz is not None else time


def _micros(value: int | datetime.datetime | None) -> int | None:
    if isinstance(value, datetime.datetime):
        return (value - EPOCH_START) // datetime.timedelta(microseconds=1)
    return value
