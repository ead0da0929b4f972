"""The physical plan of an aggregation: the accumulators of a group, and how they are made, combined and finished.

    joined rows ─▶ accumulators per group, on the slot that joined them ─▶ exchange by group ─▶ store of groups ─▶ rows

An *accumulator* is a column of the store of groups. Two of one group combine by sum, minimum, maximum or union of sets.
So rows, parts of batches, epochs and layers of state all combine in the same way, in any order. The store is merged,
kept in memory and recovered like the store of a join input.

Which an aggregate needs is in `plan/accumulator.py`. The groups of a windowed aggregation are kept by *pane*: every
window is made of whole panes, as long as possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.plan.accumulator import Accumulator, Combine, Made, engine_aggregates, needed
from watersmeet.plan.keys import GROUPS_KEY
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.tree import Join
from watersmeet.plan.weights import Weighing, weighings
from watersmeet.query.aggregates import (
    WINDOW,
    Aggregate,
    Aggregation,
    Confidence,
    ResultWindow,
    Value,
    aggregate_column,
    key_column,
)
from watersmeet.query.confidence import BOUNDS, bound_column
from watersmeet.query.logical import JoinQuery
from watersmeet.query.types import spark_name

OutputMode: TypeAlias = Literal["append", "update", "complete"]

PANE = "_pane"
NULL_FLAG = "_null"
GROUPS_LABEL = "groups"
SKETCH_BUCKETS = 64
"""Numbers per set of streams in a sketch, a power of two; part of the format of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Finish:
    """An aggregate of the query, and the accumulators that its final value is computed from."""

    aggregate: Aggregate
    accumulators: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunningPlan:
    """The accumulators of a sum that has an interval."""

    sums: int
    magnitudes: int
    sketches: int


@dataclass(frozen=True, slots=True)
class IntervalPlan:
    """An aggregate with an interval, and its sums; an average has a count as well."""

    aggregate: int
    value: RunningPlan
    count: RunningPlan | None = None


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """The plan of an aggregation, as slots get it."""

    stage: int
    keys: tuple[Value, ...]
    arguments: tuple[Value, ...]
    accumulators: tuple[Accumulator, ...]
    finishes: tuple[Finish, ...]
    window: ResultWindow | None
    time_type: pa.DataType | None
    mode: OutputMode
    by_engine: bool
    """Whether the engine computes keys and arguments itself; if not, Spark does, before the exchange."""
    layout: StoreLayout
    confidence: Confidence | None = None
    intervals: tuple[IntervalPlan, ...] = ()
    weighings: tuple[Weighing | None, ...] = ()
    """By accumulator, if joined rows have weights."""

    @property
    def pane_us(self) -> int | None:
        return None if self.window is None else pane_of(self.window)

    @property
    def frame(self) -> pa.Schema:
        """The schema of accumulated rows in the exchange by group, without the hash, which the runner adds."""
        panes = [] if self.window is None else [pa.field(PANE, pa.int64())]
        keys = [pa.field(key_column(i), key.type) for i, key in enumerate(self.keys)]
        return pa.schema([*panes, *keys, *self.layout.payload])

    @property
    def shown_schema(self) -> pa.Schema:
        """The schema of group rows as slots give them: with the accumulators of intervals, not yet the intervals."""
        made_of = [self.layout.payload.field(i) for i in self.accumulators_of_intervals]
        return pa.schema([*self._without_intervals, *made_of])

    @property
    def accumulators_of_intervals(self) -> tuple[int, ...]:
        parts = [part for one in self.intervals for part in (one.value, one.count) if part is not None]
        return tuple(sorted({number for part in parts for number in (part.sums, part.magnitudes, part.sketches)}))

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of group rows, before HAVING and the select list."""
        names = [bound_column(one.aggregate, bound) for one in self.intervals for bound in BOUNDS]
        return pa.schema([*self._without_intervals, *(pa.field(name, pa.float64()) for name in names)])

    @property
    def _without_intervals(self) -> pa.Schema:
        fields = [pa.field(key_column(i), key.type) for i, key in enumerate(self.keys)]
        fields += [pa.field(aggregate_column(i), f.aggregate.type) for i, f in enumerate(self.finishes)]
        if self.window is not None:
            bounds = [pa.field("start", self.time_type), pa.field("end", self.time_type)]
            fields.append(pa.field(WINDOW, pa.struct(bounds)))
        return pa.schema(fields)

    @property
    def sketch_size(self) -> int:
        """The numbers in a sketch: `SKETCH_BUCKETS` for each set of streams."""
        return 0 if self.confidence is None else ((1 << len(self.confidence.totals)) - 1) * SKETCH_BUCKETS

    @property
    def unread_arguments(self) -> frozenset[int]:
        """The arguments that joined rows have only parts of."""
        pairs = zip(self.accumulators, self.weighings, strict=False)
        return frozenset(
            a.argument for a, w in pairs if w is not None and w.part is not None and a.argument is not None
        )

    @property
    def is_global(self) -> bool:
        """Whether there is exactly one group, which exists even without rows."""
        return not self.keys and self.window is None

    @property
    def drops_closed_windows(self) -> bool:
        return self.window is not None and self.mode != "complete"


def pane_of(window: ResultWindow) -> int:
    """The length of a pane: the longest for which every window is made of whole panes."""
    return math.gcd(window.length_us, window.slide_us)


def plan_aggregate(
    query: JoinQuery, tree: Join, stage: int, time_type: pa.DataType | None, mode: OutputMode | None
) -> AggregatePlan | None:
    """The plan, if the query aggregates; QueryError for a key that cannot be grouped by, or a mode that does not fit.

    The default mode is append for windows of the result time, and update for all others.
    """
    aggregation = query.aggregation
    if aggregation is None:
        return None
    mode = mode or ("update" if aggregation.window is None else "append")
    _check_mode(aggregation, mode)
    for key in aggregation.keys:
        if pa.types.is_nested(key.type):
            raise QueryError(
                f"cannot group by {key.sql}: it is {spark_name(key.type)}",
                hint="group by its fields, or by a string made of it",
                error_class="UNSUPPORTED_KEY_TYPE",
            )
    arguments = list(dict.fromkeys(a.argument for a in aggregation.aggregates if a.argument is not None))
    accumulators: list[Accumulator] = []
    finishes = [Finish(a, _accumulators(a, arguments, accumulators)) for a in aggregation.aggregates]
    intervals = _intervals(query, arguments, accumulators)
    if not accumulators:  # SELECT a.x ... GROUP BY a.x: only the existence of a group matters
        accumulators.append(Accumulator("rows", None, "sum", pa.int64()))
    payload = pa.schema([pa.field(f"_s{i}", a.type) for i, a in enumerate(accumulators)])
    keeps = aggregation.window is not None and mode != "complete"
    span = aggregation.window.length_us if aggregation.window is not None and keeps else None
    return AggregatePlan(
        stage=stage,
        keys=aggregation.keys,
        arguments=tuple(arguments),
        accumulators=tuple(accumulators),
        finishes=tuple(finishes),
        window=aggregation.window,
        time_type=time_type,
        mode=mode,
        by_engine=engine_aggregates(query),
        layout=StoreLayout(tree, GROUPS_LABEL, GROUPS_KEY, span, (), payload, None),
        confidence=query.confidence,
        intervals=intervals,
        weighings=weighings(query, tree, accumulators, arguments),
    )


def _intervals(query: JoinQuery, arguments: Sequence[Value], known: list[Accumulator]) -> tuple[IntervalPlan, ...]:
    """The plans of the intervals; new accumulators are added to `known`."""
    if query.confidence is None or query.aggregation is None:
        return ()
    sketch = pa.list_(pa.float64())

    def number(made: Made, argument: int | None, combine: Combine, kind: pa.DataType) -> int:
        accumulator = Accumulator(made, argument, combine, kind)
        if accumulator not in known:
            known.append(accumulator)
        return known.index(accumulator)

    def count_of(argument: int | None) -> RunningPlan:
        rows = number("rows" if argument is None else "known", argument, "sum", pa.int64())
        return RunningPlan(rows, rows, number("known sketch", argument, "add", sketch))

    def sum_of(argument: int | None) -> RunningPlan:
        return RunningPlan(
            number("value", argument, "sum", pa.float64()),
            number("magnitude", argument, "sum", pa.float64()),
            number("sketch", argument, "add", sketch),
        )

    plans = []
    for i in query.confidence.aggregates:
        aggregate = query.aggregation.aggregates[i]
        argument = None if aggregate.argument is None else arguments.index(aggregate.argument)
        match aggregate.function:
            case "count":
                plans.append(IntervalPlan(i, count_of(argument)))
            case "sum":
                plans.append(IntervalPlan(i, sum_of(argument)))
            case _:
                plans.append(IntervalPlan(i, sum_of(argument), count_of(argument)))
    return tuple(plans)


def _accumulators(aggregate: Aggregate, arguments: Sequence[Value], known: list[Accumulator]) -> tuple[int, ...]:
    """The numbers of an aggregate's accumulators; new accumulators are added to `known`."""
    argument, value = aggregate.argument, None
    if argument is not None:
        value = arguments.index(argument)
    numbers = []
    for accumulator in needed(aggregate, value):
        if accumulator not in known:
            known.append(accumulator)
        numbers.append(known.index(accumulator))
    return tuple(numbers)


def _check_mode(aggregation: Aggregation, mode: OutputMode) -> None:
    if mode == "append" and aggregation.window is None:
        raise QueryError(
            "output mode 'append' does not fit a running aggregate: its rows change as long as rows arrive",
            hint="use outputMode('update') or outputMode('complete'), or group by window(result_time, '10 minutes')",
            error_class="UNSUPPORTED_OUTPUT_MODE",
        )
