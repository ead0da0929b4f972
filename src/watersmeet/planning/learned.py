"""Statistics from a sample of the first micro-batch: arrival rates, and the share that each predicate lets pass.

| figure                     | how it is measured                                                                      |
|----------------------------|-----------------------------------------------------------------------------------------|
| rate of a stream           | its rows that the filters keep, by the event time that the batch covers; without        |
|                            | windows there is no such time, and only the proportions of the rates count              |
| selectivity of a predicate | `first_rows.py`: of a key class by the hashes of its keys; of any other by some         |
|                            | thousand rows of each stream, or fewer where they are wide                              |

A figure that the sample cannot show (of a stream without rows) has its default. The runtime reads the sample
(`runtime/spark/learning.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import WatersmeetError
from watersmeet.optimizer.assumptions import Assumptions, rate_of
from watersmeet.plan.frame import STREAM
from watersmeet.planning.first_rows import equal_share, passing_share, rows_by_key
from watersmeet.query.expressions import Column, columns_of
from watersmeet.query.logical import JoinQuery

KEYED_ROWS = 100_000
"""In a larger batch, about this many rows are counted in each of two ways (`first_rows.py`)."""
UNTIMED_S = 1.0
"""The assumed duration of a batch whose rows have no event time."""
BY_CHANCE = "by_chance"


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a micro-batch, after filters: its number of rows by stream, and some of the rows."""

    counts: Sequence[int]
    seconds: float
    """Seconds of event time that the batch covers; 0 if rows have no event time."""
    keyed: pa.Table | None = None
    """Some rows: STREAM is the ordinal of a row's stream, BY_CHANCE whether it is one in `part` that chance has chosen,
    and `hash_name(i)` the hash of its key of class i, or NULL. All rows with a hash that is a multiple of `part` are
    among them."""
    part: int = 1
    tested: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    """By stream, the columns of `columns_tested`, of rows chosen by chance."""


def hash_name(key_class: int) -> str:
    return f"hash{key_class}"


def sampled_part(rows: int) -> int:
    """The sampling rate, one row in so many, of each of the two kinds."""
    return max(1, rows // KEYED_ROWS)


def columns_tested(query: JoinQuery) -> dict[str, list[Column]]:
    """By stream, the columns that residuals read."""
    by_stream: dict[str, list[Column]] = {}
    for column in dict.fromkeys(column for residual in query.residuals for column in columns_of(residual)):
        by_stream.setdefault(column.stream, []).append(column)
    return by_stream


def learned(query: JoinQuery, sample: Sample) -> Assumptions:
    """The statistics of a sample."""
    seconds = sample.seconds or UNTIMED_S
    return Assumptions(
        rates={stream.name: rate_of(sample.counts[i], seconds) for i, stream in enumerate(query.streams)},
        filters=dict.fromkeys(range(len(query.filters)), 1.0),
        keys=_key_selectivities(query, sample),
        residuals=_residual_selectivities(query, sample),
        batch_s=seconds,
    )


def _key_selectivities(query: JoinQuery, sample: Sample) -> dict[int, float]:
    """Selectivities by key class, over the pairs of streams that have rows in the batch."""
    found: dict[int, float] = {}
    for number, key_class in enumerate(query.classes if sample.keyed is not None else ()):
        assert sample.keyed is not None
        known = sample.keyed.filter(pc.field(hash_name(number)).is_valid())
        hashed, stream, by_chance = (known[name].to_numpy() for name in (hash_name(number), STREAM, BY_CHANCE))
        by_key = rows_by_key(hashed, stream, by_chance, sample.part, len(sample.counts))
        share = equal_share(by_key, sample.counts, sorted(key_class.streams))
        if share is not None:
            found[number] = share
    return found


def _residual_selectivities(query: JoinQuery, sample: Sample) -> dict[int, float]:
    """Selectivities by residual. A residual that fails on some combination, or whose streams have no rows yet, has its
    default."""
    found: dict[int, float] = {}
    for number, residual in enumerate(query.residuals):
        names = dict.fromkeys(column.stream for column in columns_of(residual))
        try:
            share = passing_share(residual, {name: sample.tested[name] for name in names})
        except WatersmeetError:  # if it always fails, the query will report it
            continue
        if share is not None:
            found[number] = share
    return found
