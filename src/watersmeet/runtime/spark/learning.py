"""What the first micro-batch tells of the data: arrival rates, and the share of pairs that each predicate lets pass.

| figure                     | how it is had                                                                           |
|----------------------------|-----------------------------------------------------------------------------------------|
| rate of a stream           | its rows that the filters keep, by the event time that the batch covers; without        |
|                            | windows there is no such time, and only the proportions of the rates count              |
| selectivity of a predicate | `observe/first_rows.py`: of a key class by the hashes of its keys, which a Spark job    |
|                            | without a shuffle brings to the driver, those of some 100,000 rows; of any other by     |
|                            | some thousand rows of each stream, or fewer where they are wide                         |

What it does not show at all (a stream without rows) has its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.errors import WatersmeetError
from watersmeet.observe.first_rows import equal_share, passing_share, rows_by_key, rows_to_sample
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.plan.frame import STREAM, TIME, SourceFrame, source_frame, source_name
from watersmeet.plan.layout import KeyValue, field_type
from watersmeet.query.expressions import Column, columns_of
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.spark.source import KEEP

KEYED_ROWS = 100_000
"""About so many rows are counted in each of two ways, in a larger batch (`observe/first_rows.py`)."""
FIXED_BYTES = 16
"""About what a value of a type of fixed width takes, at most."""
UNTIMED_S = 1.0
"""How long a batch counts as where nothing says how long it took to arrive."""


def learn(query: JoinQuery, batch: DataFrame, rows_min: int) -> Assumptions | None:
    """The statistics of a micro-batch, given as rows of the source frame; None where it has fewer rows than that."""
    rows = batch.filter(KEEP).drop(KEEP) if query.filters else batch
    source = source_frame(query)
    counts, seconds, row_bytes = _arrivals(query, source, rows)
    if sum(counts) < rows_min:
        return None
    return Assumptions(
        rates={stream.name: counts[i] / seconds for i, stream in enumerate(query.streams)},
        filters=dict.fromkeys(range(len(query.filters)), 1.0),
        keys=_key_selectivities(query, source, rows, counts),
        residuals=_residual_selectivities(query, source, rows, row_bytes),
        batch_s=seconds,
    )


def _tested_columns(query: JoinQuery) -> dict[str, list[Column]]:
    """By stream, what residuals read."""
    by_stream: dict[str, list[Column]] = {}
    for column in dict.fromkeys(column for residual in query.residuals for column in columns_of(residual)):
        by_stream.setdefault(column.stream, []).append(column)
    return by_stream


def _arrivals(query: JoinQuery, source: SourceFrame, rows: DataFrame) -> tuple[list[int], float, dict[str, float]]:
    """Rows by stream, the seconds of event time that they cover, and the mean bytes of what residuals read of a row, by
    stream."""
    streams = range(len(query.streams))
    tested = _tested_columns(query)
    texts = [f"count_if({STREAM} = {i}) AS rows{i}" for i in streams]
    if query.windowed:
        texts.append(f"(max(cast({TIME} AS timestamp)) - min(cast({TIME} AS timestamp))) AS span")
    for i, stream in enumerate(query.streams):
        lengths = [_bytes_text(query, source, i, column) for column in tested.get(stream.name, [])]
        texts.append(f"avg(CASE WHEN {STREAM} = {i} THEN {' + '.join(['0.0D', *lengths])} END) AS bytes{i}")
    found = rows.selectExpr(*texts).first()
    assert found is not None
    counts = [int(found[f"rows{i}"]) for i in streams]
    span = found["span"].total_seconds() if query.windowed and found["span"] is not None else 0.0
    row_bytes = {stream.name: float(found[f"bytes{i}"] or 0.0) for i, stream in enumerate(query.streams)}
    return counts, span or UNTIMED_S, row_bytes


def _bytes_text(query: JoinQuery, source: SourceFrame, stream: int, column: Column) -> str:
    """The bytes of a value as SQL: those of a string or binary, about those of a value of any other type."""
    type_ = field_type(query, column)
    if pa.types.is_primitive(type_) or pa.types.is_decimal(type_):
        return f"{FIXED_BYTES}"
    name = source.column_of(stream, column)
    text = name if type_ in (pa.string(), pa.binary()) else f"cast({name} AS string)"
    return f"coalesce(octet_length({text}), 0)"


def _key_selectivities(
    query: JoinQuery, source: SourceFrame, rows: DataFrame, counts: Sequence[int]
) -> dict[int, float]:
    """By class, over the pairs of streams of which the batch has rows."""
    if not query.classes:
        return {}
    part = max(1, sum(counts) // KEYED_ROWS)
    hashes = []
    for number, key_class in enumerate(query.classes):
        cases = " ".join(f"WHEN {i} THEN {source.column_of(i, KeyValue(number))}" for i in sorted(key_class.streams))
        value = f"CASE {STREAM} {cases} END"
        hashes.append(f"CASE WHEN {value} IS NOT NULL THEN xxhash64({value}) END AS hash{number}")
    counted = " OR ".join(["by_chance", *(f"pmod(hash{number}, {part}) = 0" for number in range(len(hashes)))])
    keyed = rows.selectExpr(STREAM, f"rand(0) * {part} < 1 AS by_chance", *hashes).filter(counted).toArrow()
    found: dict[int, float] = {}
    for number, key_class in enumerate(query.classes):
        known = keyed.filter(pc.field(f"hash{number}").is_valid())
        hashed, stream, by_chance = (known[name].to_numpy() for name in (f"hash{number}", STREAM, "by_chance"))
        by_key = rows_by_key(hashed, stream, by_chance, part, len(counts))
        share = equal_share(by_key, counts, sorted(key_class.streams))
        if share is not None:
            found[number] = share
    return found


def _residual_selectivities(
    query: JoinQuery, source: SourceFrame, rows: DataFrame, row_bytes: Mapping[str, float]
) -> dict[int, float]:
    """By residual; one that fails on some combination, or whose streams have no rows yet, has its default."""
    samples = {
        name: _sample(query, source, rows, columns, row_bytes[name]) for name, columns in _tested_columns(query).items()
    }
    found: dict[int, float] = {}
    for number, residual in enumerate(query.residuals):
        names = dict.fromkeys(column.stream for column in columns_of(residual))
        try:
            share = passing_share(residual, {name: samples[name] for name in names})
        except WatersmeetError:  # where it fails for good, the query will say so
            continue
        if share is not None:
            found[number] = share
    return found


def _sample(
    query: JoinQuery, source: SourceFrame, rows: DataFrame, columns: Sequence[Column], row_bytes: float
) -> pa.RecordBatch:
    """Some rows of a stream, chosen by chance, the fewer the wider they are; columns in the order given."""
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
