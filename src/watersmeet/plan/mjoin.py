"""The plan of one multi-way join node (mjoin): every input is stored, and probes the others in an order of its own.

The probe order changes the cost and never the results: each hop narrows (key, time range) and the residual
predicates are applied at the first hop that binds all their columns.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.frame import Frame, frame_of
from watersmeet.plan.layout import ColumnSource, StoreLayout, lay_out
from watersmeet.query.expressions import Expression, columns_of, to_text
from watersmeet.query.logical import JoinQuery, internal_name
from watersmeet.query.types import spark_name
from watersmeet.units import format_duration

HASH_NAME = "xxhash64"


@dataclass(frozen=True, slots=True)
class Residual:
    """A predicate beyond the key, and the inputs that must be bound before it can be applied."""

    predicate: Expression
    inputs: frozenset[int]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A result column: which input it comes from, and where that input keeps it."""

    name: str
    input: int
    source: ColumnSource


@dataclass(frozen=True, slots=True)
class MJoinPlan:
    """All that a slot must know to run the node; it holds no state and no decision that may change the results."""

    stores: tuple[StoreLayout, ...]
    frame: Frame
    probe_orders: tuple[tuple[int, ...], ...]
    residuals: tuple[Residual, ...]
    output: tuple[OutputColumn, ...]
    partitions: int
    delays_us: tuple[int, ...]

    @property
    def windowed(self) -> bool:
        return self.frame.time_type is not None

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.source.type) for column in self.output])


def plan_mjoin(query: JoinQuery, partitions: int) -> MJoinPlan:
    """One node over all streams, probing in stream order."""
    stores = lay_out(query)
    ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
    time_type = None
    if query.windowed:
        first = query.streams[0]
        time_type = first.schema.field(first.event_time).type
    refs = dict.fromkeys(ref for item in query.select for ref in item.refs)
    output = tuple(
        OutputColumn(internal_name(r), ordinal[r.stream], stores[ordinal[r.stream]].source(r.name)) for r in refs
    )
    residuals = tuple(Residual(e, frozenset(ordinal[c.stream] for c in columns_of(e))) for e in query.residuals)
    everyone = range(len(stores))
    return MJoinPlan(
        stores=stores,
        frame=frame_of(stores, tuple(component.type for component in query.key), time_type),
        probe_orders=tuple(tuple(j for j in everyone if j != i) for i in everyone),
        residuals=residuals,
        output=output,
        partitions=partitions,
        delays_us=tuple(stream.delay_us for stream in query.streams),
    )


def fingerprint(query: JoinQuery, plan: MJoinPlan) -> dict[str, str]:
    """What a checkpoint was made for, by name: a restart with any other value would join other rows.

    Slots, budgets and probe orders are absent on purpose: they may change between runs.
    """
    marks = {"streams": ", ".join(stream.name for stream in query.streams)}
    for i, stream in enumerate(query.streams):
        columns = ", ".join(f"{field.name} {spark_name(field.type)}" for field in stream.schema)
        marks[f"schema of {stream.name}"] = columns
        window = query.windows_us[i]
        marks[f"window of {stream.name}"] = "unbounded" if window is None else format_duration(window)
        marks[f"event time of {stream.name}"] = stream.event_time or "none"
        marks[f"kept columns of {stream.name}"] = ", ".join(name for name, _ in plan.stores[i].sources)
    marks["join key"] = "; ".join(" = ".join(_named(query, c.columns)) for c in query.key)
    marks["filters"] = "; ".join(sorted(f"{f.stream}: {f.sql}" for f in query.filters))
    marks["residual predicates"] = "; ".join(sorted(to_text(e) for e in query.residuals))
    marks["partitions"] = str(plan.partitions)
    marks["hash"] = HASH_NAME
    return marks


def digest(marks: dict[str, str]) -> str:
    """One short name for a fingerprint."""
    text = "\n".join(f"{key}={value}" for key, value in sorted(marks.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _named(query: JoinQuery, columns: tuple[str, ...]) -> list[str]:
    return [f"{stream.name}.{column}" for stream, column in zip(query.streams, columns, strict=True)]
