"""From streaming DataFrames to frames: derive columns, cast keys, filter, hash and split, all in the JVM.

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

from watersmeet.plan.frame import HASH, REPORT, RESULTS, STAGE, STREAM, TIME, pool_name
from watersmeet.plan.layout import Field, KeyValue
from watersmeet.plan.stages import JoinPlan, Place
from watersmeet.query.expressions import quote
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.epoch import Intake

KEEP = "_keep"
RANGES_MAX = 64
EPOCH_START = datetime.datetime(1970, 1, 1)


def unite(query: JoinQuery, plan: JoinPlan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """All streams as one streaming DataFrame in the frame's columns, with a mark for rows that the filters keep."""
    parts = [_project(query, plan, ordinal, frames[stream.name]) for ordinal, stream in enumerate(query.streams)]
    return reduce(DataFrame.union, parts)


def observe(query: JoinQuery, plan: JoinPlan, batch: DataFrame, observation: Observation) -> DataFrame:
    """The rows the filters keep; rows and latest event time of every stream go to the observation.

    Written as SQL text: every call into the JVM counts, because this is done for each micro-batch.
    """
    metrics = []
    for ordinal in range(len(plan.names)):
        counted = plan.places(ordinal)[0]
        mine = f"{STAGE} = {counted.stage} AND {STREAM} = {counted.input}"
        metrics.append(F.expr(f"count_if({mine}) AS rows{ordinal}"))
        if plan.windowed:
            metrics.append(F.expr(f"max(CASE WHEN {mine} THEN {_comparable(plan)} END) AS latest{ordinal}"))
    observed = batch.observe(observation, *metrics)
    return observed.filter(KEEP).drop(KEEP) if query.filters else observed


def intake_of(plan: JoinPlan, observation: Observation) -> Intake:
    """What the observation saw; call it after the job."""
    seen = observation.get
    streams = range(len(plan.names))
    return Intake(
        tuple(int(seen[f"rows{i}"]) for i in streams),
        tuple(_micros(seen[f"latest{i}"]) if plan.windowed else None for i in streams),
    )


def split(plan: JoinPlan, rows: DataFrame, assignment: Sequence[int], slots: int) -> DataFrame:
    """Send every row to the slot of its partition group (the papers' split operator)."""
    group = f"shiftright(shiftrightunsigned({HASH}, 32) * {plan.partitions}L, 32)"
    return rows.repartitionById(slots, F.expr(_slot_text(group, assignment)))


def of_stage(rows: DataFrame, stage: int) -> DataFrame:
    """The rows for one stage, chosen *after* their exchange, so that Spark runs it once and every stage reads it.

    A plain comparison would be moved below the exchange, and the source be read and shuffled again for every stage.
    """
    return rows.filter(f"if(spark_partition_id() < 0, -1, {STAGE}) = {stage}")


def hashed(plan: JoinPlan, frames: DataFrame) -> DataFrame:
    """Frames that a stage has sent on, with the hash of their key in the stage they go to."""
    texts = " ".join(f"WHEN {stage} THEN {_hash_text(plan, stage)}" for stage in range(len(plan.stages)))
    return frames.withColumn(HASH, F.expr(f"CASE {STAGE} {texts} END"))


def _slot_text(group: str, assignment: Sequence[int]) -> str:
    """The slot of a group, as SQL: comparisons where slots own ranges of groups, a table where they are scattered."""
    ends = [i for i in range(1, len(assignment)) if assignment[i] != assignment[i - 1]]
    if len(ends) > RANGES_MAX:
        return f"get(array({','.join(map(str, assignment))}), cast({group} as int))"
    ranges = " ".join(f"WHEN {group} < {end} THEN {assignment[end - 1]}" for end in ends)
    return f"CASE {ranges} ELSE {assignment[-1]} END" if ends else f"{assignment[-1]}"


def _hash_text(plan: JoinPlan, stage: int) -> str:
    """The hash of a row's key in its stage, as SQL; a stage without a key has one hash, and so one slot."""
    if plan.stages[stage].on_one_slot:
        return "0L"
    return f"xxhash64({', '.join(pool_name(i) for i in plan.frame.keys[stage])})"


def _project(query: JoinQuery, plan: JoinPlan, ordinal: int, df: DataFrame) -> DataFrame:
    """The rows of a stream as frames, one for each input that they are sent to."""
    stream = query.streams[ordinal]
    df = _with_derived(query, ordinal, df)
    kept = [F.coalesce(F.expr(f.sql), F.lit(False)) for f in query.filters if f.stream == stream.name]
    keep = [reduce(Column.__and__, kept, F.lit(True)).alias(KEEP)] if query.filters else []
    frames = [_frame(query, plan, ordinal, place) for place in plan.places(ordinal)]
    if len(frames) == 1:
        sent = df.select(*frames[0], *keep)
    else:
        copies = F.inline(F.array(*(F.struct(*columns) for columns in frames)))
        sent = df.select(copies, *keep)
    hashes = {place.stage: _hash_text(plan, place.stage) for place in plan.places(ordinal)}
    texts = " ".join(f"WHEN {stage} THEN {text}" for stage, text in hashes.items())
    hash_text = next(iter(hashes.values())) if len(hashes) == 1 else f"CASE {STAGE} {texts} END"
    names = [f"{hash_text} AS {HASH}" if name == HASH else name for name in plan.frame.schema.names]
    return sent.selectExpr(*names, *([KEEP] if query.filters else []))


def _with_derived(query: JoinQuery, ordinal: int, df: DataFrame) -> DataFrame:
    """A stream with its derived columns, computed only for rows that the user's filters keep: as in Spark, the filter
    `a.n <> 0` makes `1 / a.n = b.x` safe."""
    stream = query.streams[ordinal]
    names = [quote(derived.name) for derived in stream.derived]
    filters = [f.sql for f in query.filters if f.stream == stream.name and not any(name in f.sql for name in names)]
    guard = " AND ".join(f"({sql})" for sql in filters)
    for derived in stream.derived:
        text = f"CASE WHEN {guard} THEN {derived.sql} END" if guard else derived.sql
        df = df.withColumn(derived.name, F.expr(text))
    return df


def _frame(query: JoinQuery, plan: JoinPlan, ordinal: int, place: Place) -> list[Column]:
    """The columns of a stream's rows as an input of a stage; the hash is yet to come."""
    stream, frame, stage = query.streams[ordinal], plan.frame, plan.stages[place.stage]
    columns = [F.lit(place.stage).cast("tinyint").alias(STAGE), F.lit(place.input).cast("tinyint").alias(STREAM)]
    if frame.time_type is not None and stream.event_time is not None:
        columns.append(_named(stream.event_time).alias(TIME))
    layout = stage.inputs[place.input]
    key = [_value(query, ordinal, KeyValue(i)) for i in stage.key] or [F.lit(0)]
    payload = [_value(query, ordinal, field) for field, source in layout.sources if source.kind == "payload"]
    places = (*frame.keys[place.stage], *frame.payloads[place.stage][place.input])
    values = dict(zip(places, [*key, *payload], strict=True))
    for i, kind in enumerate(frame.pool):
        columns.append(values.get(i, F.lit(None)).cast(spark_type(kind)).alias(pool_name(i)))
    if frame.reports:
        columns += [F.lit(None).cast("string").alias(REPORT), F.lit(None).cast("binary").alias(RESULTS)]
    return columns


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
    return F.col(quote(column))


def _normalised(key: Column, kind: pa.DataType) -> Column:
    """Equal keys hash equally: 0.0 for -0.0, and one NaN."""
    if not pa.types.is_floating(kind):
        return key
    nan = F.lit(float("nan")).cast(spark_type(kind))
    zero = F.lit(0.0).cast(spark_type(kind))
    return F.when(F.isnan(key), nan).when(key == 0, zero).otherwise(key)


def _comparable(plan: JoinPlan) -> str:
    """Event time in a form that reaches the driver exactly: microseconds, or a timestamp without zone."""
    assert plan.frame.time_type is not None
    return f"unix_micros({TIME})" if plan.frame.time_type.tz is not None else TIME


def _micros(value: int | datetime.datetime | None) -> int | None:
    if isinstance(value, datetime.datetime):
        return (value - EPOCH_START) // datetime.timedelta(microseconds=1)
    return value
