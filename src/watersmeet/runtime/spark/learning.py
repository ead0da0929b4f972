"""What the first micro-batch tells of the data: arrival rates, and the share of pairs that each predicate lets pass.

| figure                     | how it is had                                                                           |
|----------------------------|-----------------------------------------------------------------------------------------|
| rate of a stream           | its rows that the filters keep, by the event time that the batch covers; without        |
|                            | windows there is no such time, and only the proportions of the rates count              |
| selectivity of a predicate | `observe/first_rows.py`: of a key class by the hashes of its keys, which a Spark job    |
|                            | without a shuffle brings to the driver, those of some 100,000 rows; of any other by     |
|                            | some thousand rows of each stream                                                       |

What it does not show at all (a stream without rows) has its default.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.errors import WatersmeetError
from watersmeet.observe.first_rows import SAMPLE_ROWS, equal_share, passing_share, rows_by_key
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.plan.frame import STREAM, TIME, SourceFrame, source_frame, source_name
from watersmeet.plan.layout import KeyValue
from watersmeet.query.expressions import Column, columns_of
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.spark.source import KEEP

KEYED_ROWS = 100_000
"""About so many rows are counted in each of two ways, in a larger batch (`observe/first_rows.py`)."""
UNTIMED_S = 1.0
"""How long a batch counts as where nothing says how long it took to arrive."""


def learn(query: JoinQuery, batch: DataFrame, rows_min: int) -> Assumptions | None:
    """The statistics of a micro-batch, given as rows of the source frame; None where it has fewer rows than that."""
    rows = batch.filter(KEEP).drop(KEEP) if query.filters else batch
    source = source_frame(query)
    counts, seconds = _arrivals(query, rows)
    if sum(counts) < rows_min:
        return None
    return Assumptions(
        rates={stream.name: counts[i] / seconds for i, stream in enumerate(query.streams)},
        filters=dict.fromkeys(range(len(query.filters)), 1.0),
        keys=_key_selectivities(query, source, rows, counts),
        residuals=_residual_selectivities(query, source, rows),
        batch_s=seconds,
    )


def _arrivals(query: JoinQuery, rows: DataFrame) -> tuple[list[int], float]:
    """Rows by stream, and the seconds of event time that they cover."""
    streams = range(len(query.streams))
    texts = [f"count_if({STREAM} = {i}) AS rows{i}" for i in streams]
    if query.windowed:
        texts.append(f"(max(cast({TIME} AS timestamp)) - min(cast({TIME} AS timestamp))) AS span")
    found = rows.selectExpr(*texts).first()
    assert found is not None
    counts = [int(found[f"rows{i}"]) for i in streams]
    span = found["span"].total_seconds() if query.windowed and found["span"] is not None else 0.0
    return counts, span or UNTIMED_S


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


def _residual_selectivities(query: JoinQuery, source: SourceFrame, rows: DataFrame) -> dict[int, float]:
    """By residual; one that fails on some combination, or whose streams have no rows yet, has its default."""
    columns = dict.fromkeys(column for residual in query.residuals for column in columns_of(residual))
    by_stream: dict[str, list[Column]] = {}
    for column in columns:
        by_stream.setdefault(column.stream, []).append(column)
    samples = {name: _sample(query, source, rows, wanted) for name, wanted in by_stream.items()}
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


def _sample(query: JoinQuery, source: SourceFrame, rows: DataFrame, columns: Sequence[Column]) -> pa.RecordBatch:
    """Some rows of a stream, chosen by chance; columns in the order given."""
    ordinal = next(i for i, stream in enumerate(query.streams) if stream.name == columns[0].stream)
    stream = query.streams[ordinal]
    places = dict(source.columns[ordinal])
    texts = [source_name(places[column]) if column in places else TIME for column in columns]
    chosen = rows.filter(f"{STREAM} = {ordinal}").orderBy(F.rand(0)).limit(SAMPLE_ROWS)
    found = chosen.selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(texts))).toArrow()
    schema = pa.schema([pa.field(column.name, stream.schema.field(column.name).type) for column in columns])
    return pa.RecordBatch.from_arrays(
        [found.column(i).combine_chunks().cast(field.type) for i, field in enumerate(schema)], schema=schema
    )
