"""A sample of a large first micro-batch, read by small Spark jobs without a shuffle: counts and times, keys, rows.

`planning/learned.py` derives the statistics from the sample. A small batch is not worth a job: in a new JVM each takes
seconds, and the optimiser corrects the plan after the next batches. Spark tells the bytes of files without a job. Of a
source that does not tell its size, rows are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.epoch.events import Event
from watersmeet.plan.frame import STREAM, TIME, SourceFrame, source_frame, source_name, time_type_of
from watersmeet.plan.layout import KeyValue, field_type
from watersmeet.plan.stages import JoinPlan
from watersmeet.planning.first_rows import rows_to_sample
from watersmeet.planning.learned import BY_CHANCE, Sample, columns_tested, hash_name, sampled_part
from watersmeet.planning.planner import Planner
from watersmeet.query.expressions import Column
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.spark.source import KEEP

LARGE_BYTES = 1 << 20
"""A first micro-batch of less, by Spark's statistics, is small;"""
LARGE_ROWS = 20_000
"""and so is one of fewer rows."""
FIXED_BYTES = 16
"""About the maximum bytes of a value of fixed width."""


def plan_for_batch(planner: Planner, batch: DataFrame) -> tuple[JoinPlan, Event]:
    """The plan chosen by the first micro-batch, given as rows of the source frame, and the event that explains it."""
    is_small = size_bytes(batch) < LARGE_BYTES
    return planner.plan_for(None if is_small else sample_of(planner.query, batch, LARGE_ROWS))


def size_bytes(batch: DataFrame) -> int:
    """The bytes of a micro-batch by Spark's statistics, without running a job: about those of the files that it reads,
    and more than any batch has if a source does not tell."""
    return int(batch._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def sample_of(query: JoinQuery, batch: DataFrame, rows_min: int) -> Sample | None:
    """A sample of a micro-batch, given as rows of the source frame; None if it has fewer than `rows_min` rows."""
    rows = batch.filter(KEEP).drop(KEEP) if query.filters else batch
    source = source_frame(query)
    counts, seconds, row_bytes = _arrivals(query, source, rows)
    if sum(counts) < rows_min:
        return None
    part = sampled_part(sum(counts))
    keyed = _keyed(query, source, rows, part) if query.classes else None
    tested = {
        name: _rows(query, source, rows, columns, row_bytes[name]) for name, columns in columns_tested(query).items()
    }
    return Sample(counts, seconds, keyed, part, tested)


def _arrivals(query: JoinQuery, source: SourceFrame, rows: DataFrame) -> tuple[list[int], float, dict[str, float]]:
    """Rows by stream, the seconds of event time that they cover, and by stream the mean bytes that residuals read per
    row."""
    streams = range(len(query.streams))
    tested = columns_tested(query)
    texts = [f"count_if({STREAM} = {i}) AS rows{i}" for i in streams]
    if query.windowed:
        texts.append(f"{_seconds_text(query, f'max({TIME})')} - {_seconds_text(query, f'min({TIME})')} AS span")
    for i, stream in enumerate(query.streams):
        lengths = [_bytes_text(query, source, i, column) for column in tested.get(stream.name, [])]
        texts.append(f"avg(CASE WHEN {STREAM} = {i} THEN {' + '.join(['0.0D', *lengths])} END) AS bytes{i}")
    found = rows.selectExpr(*texts).first()
    assert found is not None
    counts = [int(found[f"rows{i}"]) for i in streams]
    span = (found["span"] or 0.0) if query.windowed else 0.0
    row_bytes = {stream.name: float(found[f"bytes{i}"] or 0.0) for i, stream in enumerate(query.streams)}
    return counts, span, row_bytes


def _seconds_text(query: JoinQuery, time: str) -> str:
    """An event time in seconds, as a double: the distance of two may not fit into an interval."""
    kind = time_type_of(query)
    if kind is not None and kind.tz is not None:
        return f"unix_micros({time}) / 1e6D"
    days, seconds = f"unix_date(cast({time} AS date))", f"extract(SECOND FROM {time})"
    return f"({days} * 86400D + hour({time}) * 3600D + minute({time}) * 60D + {seconds})"


def _bytes_text(query: JoinQuery, source: SourceFrame, stream: int, column: Column) -> str:
    """The bytes of a value, as SQL: exact for a string or binary, approximate for any other type."""
    type_ = field_type(query, column)
    if pa.types.is_primitive(type_) or pa.types.is_decimal(type_):
        return f"{FIXED_BYTES}"
    name = source.column_of(stream, column)
    text = name if type_ in (pa.string(), pa.binary()) else f"cast({name} AS string)"
    return f"coalesce(octet_length({text}), 0)"


def _keyed(query: JoinQuery, source: SourceFrame, rows: DataFrame, part: int) -> pa.Table:
    """The hashes of the keys of some rows."""
    hashes = []
    for number, key_class in enumerate(query.classes):
        cases = " ".join(f"WHEN {i} THEN {source.column_of(i, KeyValue(number))}" for i in sorted(key_class.streams))
        value = f"CASE {STREAM} {cases} END"
        hashes.append(f"CASE WHEN {value} IS NOT NULL THEN xxhash64({value}) END AS {hash_name(number)}")
    chance = f"rand(0) * {part} < 1 AS {BY_CHANCE}"
    counted = [BY_CHANCE, *(f"pmod({hash_name(number)}, {part}) = 0" for number in range(len(hashes)))]
    keyed = rows.selectExpr(STREAM, chance, *hashes)
    return keyed.filter(" OR ".join(counted)).toArrow()


def _rows(
    query: JoinQuery, source: SourceFrame, rows: DataFrame, columns: Sequence[Column], row_bytes: float
) -> pa.RecordBatch:
    """A random sample of a stream's rows, smaller if rows are wide; columns in the given order."""
    ordinal = next(i for i, stream in enumerate(query.streams) if stream.name == columns[0].stream)
    stream = query.streams[ordinal]
    places = dict(source.columns[ordinal])
    texts = [source_name(places[column]) if column in places else TIME for column in columns]
    schema = pa.schema([pa.field(column.name, stream.schema.field(column.name).type) for column in columns])
    chosen = rows.filter(f"{STREAM} = {ordinal}").orderBy(F.rand(0)).limit(rows_to_sample(row_bytes))
    found = chosen.selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(texts))).toArrow()
    return pa.RecordBatch.from_arrays(
        [found.column(i).combine_chunks().cast(field.type) for i, field in enumerate(schema)], schema=schema
    )
