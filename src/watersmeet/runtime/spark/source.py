"""From streaming DataFrames to one: derive columns, cast keys, mark the rows that the filters keep, all in the JVM.

Streams are united in name order, because Spark's source offsets are positional unless sources have names. The result is
in the *source frame* (`plan/frame.py`), which depends on no plan: `frames.py` turns it into frames of a plan,
micro-batch by micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from watersmeet.plan.frame import STREAM, TIME, SourceFrame, source_frame, source_name
from watersmeet.plan.layout import Field, KeyValue
from watersmeet.query.expressions import quote
from watersmeet.query.logical import JoinQuery

KEEP = "_keep"


def unite(query: JoinQuery, frames: Mapping[str, DataFrame]) -> DataFrame:
    """All streams as one streaming DataFrame in the source frame, with a mark for rows that the filters keep."""
    source = source_frame(query)
    parts = [_project(query, source, ordinal, frames[stream.name]) for ordinal, stream in enumerate(query.streams)]
    return reduce(DataFrame.union, parts)


def _project(query: JoinQuery, source: SourceFrame, ordinal: int, df: DataFrame) -> DataFrame:
    """The rows of a stream in the source frame."""
    stream = query.streams[ordinal]
    columns = [F.lit(ordinal).cast("tinyint").alias(STREAM)]
    if source.time_type is not None and stream.event_time is not None:
        columns.append(_named(stream.event_time).alias(TIME))
    values = {place: _value(query, ordinal, field) for field, place in source.columns[ordinal]}
    for i, kind in enumerate(source.pool):
        columns.append(values.get(i, F.lit(None)).cast(spark_type(kind)).alias(source_name(i)))
    if query.filters:
        kept = [F.coalesce(F.expr(f.sql), F.lit(False)) for f in query.filters if f.stream == stream.name]
        columns.append(reduce(Column.__and__, kept, F.lit(True)).alias(KEEP))
    return _with_derived(query, ordinal, df).select(*columns)


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


def _value(query: JoinQuery, ordinal: int, field: Field) -> Column:
    """A field of a stream's row: an unchanged column, or the value of a key class."""
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
