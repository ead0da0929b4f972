"""Online aggregation in a query: running SUM, COUNT and AVG with an interval for their final values.

The assumptions are in `engine/intervals.py`: finite streams of known length whose rows arrive in random order. So it is
for joins without windows. Every stream gets a *row id*, a derived column with a hash of the whole row. Every result
column that is exactly such an aggregate is followed by three more:

    sum(b.price) AS total        total, total_estimate, total_low, total_high
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.errors import OptionError
from watersmeet.query.aggregates import Aggregation, Confidence, aggregate_column
from watersmeet.query.expressions import Column, quote
from watersmeet.query.logical import JoinQuery
from watersmeet.query.relations import Derived, SelectItem, Stream
from watersmeet.query.selection import check_unique

ROW_ID = "_row"
BOUNDS = ("estimate", "low", "high")
FUNCTIONS = ("sum", "count", "avg")
STREAMS_MAX = 5


def with_confidence(query: JoinQuery, level: float, expected_rows: Mapping[str, int]) -> JoinQuery:
    """The query with intervals; OptionError if the query does not meet their assumptions."""
    aggregation = query.aggregation
    if aggregation is None or not (plain := _plain_aggregates(query, aggregation)):
        raise _unfit("no result column is a SUM, COUNT or AVG", "select one, such as 'sum(a.price) AS total'")
    if query.windowed:
        raise _unfit(
            "the join has windows: rows that arrive in the order of time are no random sample",
            "leave the windows out, if the streams are finite and in random order",
        )
    if len(query.streams) > STREAMS_MAX:
        raise _unfit(f"there are {len(query.streams)} streams, and at most {STREAMS_MAX} can be told apart", "")
    totals = _totals([stream.name for stream in query.streams], expected_rows)
    streams = tuple(_with_row_id(stream) for stream in query.streams)
    row_ids = tuple(Column(stream.name, stream.derived[-1].name) for stream in streams)
    items = [new for item in query.select for new in (item, *_bounds(item, plain))]
    check_unique(items)
    confidence = Confidence(level, totals, tuple(sorted(set(plain.values()))), row_ids)
    return replace(query, streams=streams, select=tuple(items), confidence=confidence)


def bound_column(aggregate: int, bound: str) -> str:
    """The column of the groups that holds a bound."""
    return f"{aggregate_column(aggregate)}_{bound}"


def _plain_aggregates(query: JoinQuery, aggregation: Aggregation) -> dict[str, int]:
    """The result columns that are exactly one aggregate, by name."""
    numbers = {quote(aggregate_column(i)): i for i, a in enumerate(aggregation.aggregates) if a.function in FUNCTIONS}
    return {item.name: numbers[item.sql] for item in query.select if item.sql in numbers}


def _bounds(item: SelectItem, plain: Mapping[str, int]) -> list[SelectItem]:
    if item.name not in plain:
        return []
    return [SelectItem(f"{item.name}_{b}", None, quote(bound_column(plain[item.name], b)), ()) for b in BOUNDS]


def _with_row_id(stream: Stream) -> Stream:
    """The stream with a row id, a hash of the whole row. Maps cannot be hashed: refused."""
    own = [f for f in stream.schema if f.name not in {d.name for d in stream.derived} and not _has_map(f.type)]
    taken = {name.lower() for name in stream.schema.names}
    name = next(n for n in (ROW_ID, *(f"{ROW_ID}{i}" for i in range(len(taken) + 1))) if n not in taken)
    derived = Derived(name, f"xxhash64({', '.join(quote(f.name) for f in own)})")
    schema = stream.schema.append(pa.field(name, pa.int64()))
    return replace(stream, schema=schema, derived=(*stream.derived, derived))


def _has_map(kind: pa.DataType) -> bool:
    """Whether the type contains a map at any depth. Spark cannot hash maps."""
    if pa.types.is_nested(kind) and not pa.types.is_map(kind):
        return any(_has_map(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_map(kind)


def _totals(names: Sequence[str], expected: Mapping[str, int]) -> tuple[int, ...]:
    by_lower = {name.lower(): rows for name, rows in expected.items()}
    for name in expected:
        if name.lower() not in [known.lower() for known in names]:
            raise OptionError(f"option expectedRows names '{name}'", hint=f"the streams are {', '.join(names)}")
    missing = [name for name in names if name.lower() not in by_lower]
    if missing:
        raise OptionError(
            f"option confidence needs to know how many rows {', '.join(missing)} will have",
            hint=f"option('expectedRows', '{', '.join(f'{name}=1000000' for name in names)}')",
            error_class="MISSING_EXPECTED_ROWS",
        )
    return tuple(by_lower[name.lower()] for name in names)


def _unfit(reason: str, hint: str) -> OptionError:
    return OptionError(f"option confidence does not fit: {reason}", hint=hint, error_class="UNFIT_CONFIDENCE")
