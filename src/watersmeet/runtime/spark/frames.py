"""From the united rows of a micro-batch to the frames of a plan, hashed and split over the slots, all in the JVM.

The watermark needs the latest event time of each stream, before our filters. Slots report it for the rows they get;
where filters drop rows before the slots, it is *observed* on the way, which costs the JVM some time per row. Everything
is written as SQL text, because this runs for each micro-batch, and every call into the JVM takes time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from watersmeet.engine.accumulators import LOW_BITS, LOW_MASK
from watersmeet.epoch.task import Intake
from watersmeet.plan.frame import (
    HASH,
    REPORT,
    RESULTS,
    STAGE,
    STREAM,
    TIME,
    SourceFrame,
    pool_name,
    source_frame,
    source_name,
    time_type_of,
)
from watersmeet.plan.layout import Field, KeyValue
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan, Place
from watersmeet.plan.weights import Part
from watersmeet.query.expressions import Column
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.spark.homes import Anchor, hash_keys
from watersmeet.runtime.spark.source import KEEP, spark_type

RANGES_MAX = 64


def filtered(query: JoinQuery, batch: DataFrame, observation: Observation) -> DataFrame:
    """The rows that the filters keep; the observation gets the row count and latest event time of every stream."""
    metrics = []
    for ordinal in range(len(query.streams)):
        metrics.append(F.expr(f"count_if({STREAM} = {ordinal}) AS rows{ordinal}"))
        if query.windowed:
            latest = _exact(query, f"max(CASE WHEN {STREAM} = {ordinal} THEN {TIME} END)")
            metrics.append(F.expr(f"{latest} AS latest{ordinal}"))
    return batch.observe(observation, *metrics).filter(KEEP).drop(KEEP)


def observed_intake(query: JoinQuery, observation: Observation) -> Intake:
    """The intake, from the observation; call it after the job."""
    seen = observation.get
    streams = range(len(query.streams))
    return Intake(
        tuple(int(seen[f"rows{i}"]) for i in streams),
        tuple(_micros(seen[f"latest{i}"]) if query.windowed else None for i in streams),
    )


def frames(query: JoinQuery, plan: JoinPlan, rows: DataFrame) -> DataFrame:
    """Rows of the source frame as frames of the plan, with the hash of their key: one frame row for each input that
    takes the stream."""
    return rows.selectExpr(*_frame_texts(query, plan))


def split(plan: JoinPlan, rows: DataFrame, placement: Placement, anchor: Anchor | None = None) -> DataFrame:
    """Send every row to the slot that owns its partition group under the key of its stage (the papers' split operator).
    With an anchor, slots are at home. Rows have no stage column if the plan has one stage, and in the exchange of
    groups."""
    names = range(placement.slots) if anchor is None else hash_keys(placement.slots)
    group = f"shiftright(shiftrightunsigned({HASH}, 32) * {plan.partitions}L, 32)"
    if STAGE in rows.columns:
        stages = range(len(plan.stages))
        texts = [_slot_text(group, placement.owners[plan.key_of_stage(stage)], names) for stage in stages]
        cases = " ".join(f"WHEN {stage} THEN {text}" for stage, text in enumerate(texts))
        slot = texts[0] if len(set(texts)) == 1 else f"CASE {STAGE} {cases} ELSE {names[0]} END"
    else:
        is_of_groups = STREAM not in rows.columns
        slot = _slot_text(group, placement.owners[plan.key_of_stage(len(plan.stages) if is_of_groups else 0)], names)
    if anchor is not None:
        return anchor.split(rows, slot)
    return rows.repartitionById(placement.slots, F.expr(slot))


def of_stage(rows: DataFrame, stage: int) -> DataFrame:
    """The rows for one stage, chosen *after* their exchange, so that Spark runs it once and every stage reads it.

    Spark would push a plain comparison below the exchange, and read and shuffle the source again for every stage.
    """
    return rows.filter(f"if(spark_partition_id() < 0, -1, {STAGE}) = {stage}")


def hashed(plan: JoinPlan, sent: DataFrame) -> DataFrame:
    """Frames that a stage has sent on, with the hash of their key in the stage they go to."""
    columns = [[pool_name(i) for i in key] for key in plan.frame.keys]
    if not plan.frame.has_stages:
        return sent.withColumn(HASH, F.expr(_hash_text(plan, 0, columns[0])))
    texts = " ".join(f"WHEN {stage} THEN {_hash_text(plan, stage, columns[stage])}" for stage in range(len(columns)))
    return sent.withColumn(HASH, F.expr(f"CASE {STAGE} {texts} END"))


def _frame_texts(query: JoinQuery, plan: JoinPlan) -> list[str]:
    """The select list that makes frames. If every stream has one place, values that are in the same column for all
    streams are only renamed; otherwise a row becomes an array of its copies, which is exploded."""
    source = source_frame(query)
    places = [plan.places(ordinal) for ordinal in range(len(query.streams))]
    if all(len(mine) == 1 for mine in places):
        values = [_frame_values(source, plan, ordinal, mine[0]) for ordinal, mine in enumerate(places)]
        return [f"{_by_stream([mine[name] for mine in values])} AS {name}" for name in plan.frame.schema.names]
    arrays = []
    for ordinal, mine in enumerate(places):
        copies = [_frame_values(source, plan, ordinal, place) for place in mine]
        arrays.append(f"array({', '.join(_struct_text(copy, plan.frame.schema.names) for copy in copies)})")
    return [f"inline({_by_stream(arrays)})"]


def _struct_text(values: Mapping[str, str], names: Sequence[str]) -> str:
    return f"named_struct({', '.join(f'{name!r}, {values[name]}' for name in names)})"


def _by_stream(texts: Sequence[str]) -> str:
    """A value that depends on the stream of a row."""
    if len(set(texts)) == 1:
        return texts[0]
    same = defaultdict(list)
    for ordinal, text in enumerate(texts):
        same[text].append(str(ordinal))
    cases = (f"WHEN {STREAM} IN ({', '.join(who)}) THEN {text}" for text, who in same.items())
    return f"CASE {' '.join(cases)} END"


def _frame_values(source: SourceFrame, plan: JoinPlan, ordinal: int, place: Place) -> Mapping[str, str]:
    """The columns of a stream's rows as an input of a stage, by name, as SQL over the source frame."""
    frame, stage = plan.frame, plan.stages[place.stage]
    nested = {kind: source_name(i) for i, kind in reversed(list(enumerate(source.pool))) if pa.types.is_nested(kind)}
    layout = stage.inputs[place.input]
    key = [source.column_of(ordinal, KeyValue(i)) for i in stage.key]
    payload = [_payload_text(source, ordinal, field) for field, where in layout.sources if where.kind == "payload"]
    columns = (*frame.keys[place.stage], *frame.payloads[place.stage][place.input])
    values = {
        STAGE: f"{place.stage}Y",
        STREAM: f"{place.input}Y",
        HASH: _hash_text(plan, place.stage, key),
        TIME: TIME,
        REPORT: "CAST(NULL AS STRING)",
        RESULTS: "CAST(NULL AS BINARY)",
    }
    for i, kind in enumerate(frame.pool):
        values[pool_name(i)] = (
            f"if(false, {nested[kind]}, NULL)" if kind in nested else f"CAST(NULL AS {spark_type(kind).simpleString()})"
        )
    return values | {pool_name(i): text for i, text in zip(columns, [*(key or ["0Y"]), *payload], strict=True)}


def _payload_text(source: SourceFrame, ordinal: int, field: Field) -> str:
    if not isinstance(field, Part):
        return source.column_of(ordinal, field)
    of = None if field.column is None else source.column_of(ordinal, Column(field.stream, field.column))
    return part_text(field, of)


def part_text(part: Part, column: str | None) -> str:
    """The part of a single row, as SQL; `engine/accumulators.py` makes the same of Arrow arrays."""
    kind = spark_type(part.type).simpleString()
    known = f"coalesce(CAST({column} AS {kind}), CAST(0 AS {kind}))"
    match part.made:
        case "rows":
            return "1L"
        case "known":
            return f"CAST({column} IS NOT NULL AS BIGINT)"
        case "high":
            return f"shiftright({known}, {LOW_BITS})"
        case "low":
            return f"({known} & {LOW_MASK}L)"
        case _:
            return known


def _slot_text(group: str, owners: Sequence[int], names: Sequence[int]) -> str:
    """The slot of a group, as SQL: comparisons if slots own ranges of groups, a table if groups are scattered. `names`
    are the numbers to write for slots."""
    assignment = [names[slot] for slot in owners]
    ends = [i for i in range(1, len(assignment)) if assignment[i] != assignment[i - 1]]
    if len(ends) > RANGES_MAX:
        return f"get(array({','.join(map(str, assignment))}), cast({group} as int))"
    ranges = " ".join(f"WHEN {group} < {end} THEN {assignment[end - 1]}" for end in ends)
    return f"CASE {ranges} ELSE {assignment[-1]} END" if ends else f"{assignment[-1]}"


def _hash_text(plan: JoinPlan, stage: int, key: Sequence[str]) -> str:
    """The hash of a row's key in its stage, as SQL; a stage without a key has one hash, and therefore one slot."""
    return "0L" if plan.stages[stage].on_one_slot else f"xxhash64({', '.join(key)})"


def _exact(query: JoinQuery, time: str) -> str:
    """An event time in a form that can reach the driver for any year: microseconds, or text if it has no zone."""
    kind = time_type_of(query)
    assert kind is not None
    return f"unix_micros({time})" if kind.tz is not None else f"CAST({time} AS STRING)"


def _micros(value: int | str | None) -> int | None:
    if isinstance(value, str):
        return int(np.datetime64(value.removeprefix("+"), "us").astype(np.int64))
    return value
