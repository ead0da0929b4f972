"""The store of groups: accumulated rows as runs, keyed by group, and the rows that a query shows.

A group may have a part in each of several layers; a query shows all its parts combined. Runs need keys without NULL, so
each key has two key columns here: its value, or zero, and whether it is NULL.

| output mode | an epoch with rows shows            | when the watermark passes the end of windows         |
|-------------|-------------------------------------|------------------------------------------------------|
| update      | the groups (and windows) of its rows| nothing                                              |
| complete    | all groups                          | nothing                                              |
| append      | nothing                             | the groups of those windows, in an epoch without rows|
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.accumulators import finish, lists_of_numbers, make, numbers_of_lists, reduce
from watersmeet.engine.inbox import normalise_key
from watersmeet.engine.intervals import Arrivals, Running, final_average, final_count, final_sum
from watersmeet.engine.kernels import match_keys
from watersmeet.engine.panes import Windows, windows_between, windows_of_panes
from watersmeet.errors import WatersmeetError
from watersmeet.plan.aggregate import PANE, SKETCH_BUCKETS, AggregatePlan, RunningPlan
from watersmeet.plan.frame import HASH
from watersmeet.query.aggregates import WINDOW, key_column
from watersmeet.state.run import Ints, Run, build_runs, merge_in_parts, select_keys, select_rows, take_rows
from watersmeet.units import iso_time


def runs_of_groups(plan: AggregatePlan, chunk: pa.Table) -> list[Run]:
    """Accumulated rows from the exchange, as runs with one row per group and pane."""
    batch = chunk.combine_chunks().to_batches()[0]
    keys = encoded_keys(plan, [batch.column(key_column(i)) for i in range(len(plan.keys))], batch.num_rows)
    payload = pa.RecordBatch.from_arrays([batch.column(f.name) for f in plan.layout.payload], plan.layout.payload.names)
    panes = None if plan.window is None else batch.column(PANE).to_numpy()
    hashes = batch.column(HASH).to_numpy().view(np.uint64)
    return [combined(plan, run) for run in build_runs(hashes, keys, panes, payload)]


def merged_groups(plan: AggregatePlan, runs: Sequence[Run]) -> list[Run]:
    """The rows of several runs, one row per group and pane."""
    return list(groups_in_parts(plan, runs))


def groups_in_parts(plan: AggregatePlan, runs: Sequence[Run]) -> Iterator[Run]:
    """The same runs, one by one."""
    if len(runs) < 2:
        yield from runs
        return
    for run in merge_in_parts(runs, may_split_keys=False):
        yield combined(plan, run)


def combined(plan: AggregatePlan, run: Run) -> Run:
    """A run in which the rows of one group and pane are combined into one."""
    first = np.zeros(run.rows, dtype=np.bool_)
    rows = run.rows_slice()
    if run.codes is None:
        first[run.starts[:-1] - run.starts[0]] = True
    else:
        codes = run.codes[rows]
        first[:1] = True
        first[1:] = codes[1:] != codes[:-1]
    if first.all():
        return run
    columns = [column.slice(rows.start, run.rows) for column in run.payload.columns]
    reduced = reduce(np.cumsum(first) - 1, int(first.sum()), columns, plan.accumulators)
    before = np.concatenate([[0], np.cumsum(first)])
    return replace(
        run,
        starts=before[run.starts - run.starts[0]].astype(np.int32),
        codes=None if run.codes is None else run.codes[rows][first],
        payload=pa.RecordBatch.from_arrays(reduced, schema=run.payload.schema),
        sieve=None,
        widest=None,
    )


def whole_groups(plan: AggregatePlan, runs: Sequence[Run]) -> list[Run]:
    """The rows of several runs, merged so that no group is in two of the new runs."""
    found = sorted(merged_groups(plan, runs), key=lambda run: int(run.hashes[0]))
    if all(before.hashes[-1] < after.hashes[0] for before, after in pairwise(found)):
        return found
    # The times are too far apart for the codes of so many groups: do half of the groups at a time.
    hashes = np.unique(np.concatenate([run.hashes for run in found]))
    if len(hashes) < 2:
        raise _too_far_apart(found)
    middle, end = int(hashes[len(hashes) // 2]), 1 << 64
    halves = [[run.between_hashes(*bounds) for run in runs] for bounds in ((0, middle), (middle, end))]
    return [run for half in halves for run in whole_groups(plan, [run for run in half if run.rows])]


def _too_far_apart(runs: Sequence[Run]) -> WatersmeetError:
    times = [iso_time(min(run.time_min for run in runs)), iso_time(max(run.time_max for run in runs))]
    return WatersmeetError(
        f"a group has results of event times {times[0]} and {times[1]}, which are too far apart for its windows",
        hint="keep such rows out of the streams with a filter on their event time",
        error_class="EVENT_TIME_OUT_OF_RANGE",
    )


def parts_of_groups(plan: AggregatePlan, wanted: Sequence[Run], runs: Iterable[Run]) -> list[Run]:
    """The parts of groups in `wanted` that the runs hold, as runs of whole groups."""
    found = []
    for run in runs:
        positions = np.unique(np.concatenate([match_keys(one, run).positions for one in wanted]))
        if len(positions):
            found.append(select_keys(run, positions))
    return whole_groups(plan, found)


def shown(plan: AggregatePlan, runs: Sequence[Run]) -> list[pa.RecordBatch]:
    """The groups of runs that have all their parts, as rows for HAVING and the select list."""
    return [_rows(plan, run, np.arange(len(run.hashes)), _columns(run), None) for run in runs if plan.window is None]


def shown_windows(plan: AggregatePlan, run: Run, windows: Windows) -> pa.RecordBatch:
    """The groups of windows over a run that has all their parts."""
    return _rows(plan, run, windows.ranks, windows.values, windows.starts)


def empty_global_group(plan: AggregatePlan) -> pa.RecordBatch:
    """The one group of an aggregation without GROUP BY, before any row: counts are 0, all else is NULL."""
    empty = [pa.nulls(1, value.type) for value in plan.arguments]
    zero = []
    for accumulator in plan.accumulators:
        if accumulator.combine == "add":
            zero.append(lists_of_numbers(np.zeros((1, plan.sketch_size))))
        else:
            zero.append(pa.array([0]) if accumulator.made == "rows" else make(accumulator, empty, 1))
    columns = [*finish(plan, zero), *(zero[i] for i in plan.accumulators_of_intervals)]
    return pa.RecordBatch.from_arrays(columns, schema=plan.shown_schema)


def touched_windows(plan: AggregatePlan, run: Run, delta: Sequence[Run]) -> Iterator[Windows]:
    """The windows of a run that contain rows of a delta, some at a time."""
    assert plan.window is not None
    ranks, panes = [], []
    for part in delta:
        matches = match_keys(part, run)
        position = np.full(len(part.hashes), -1, dtype=np.int64)
        position[matches.keys] = matches.positions
        found = position[part.row_ranks()]
        known = found >= 0
        ranks.append(found[known])
        panes.append(part.times(part.rows_slice())[known])
    return windows_of_panes(plan, run, np.concatenate(ranks), np.concatenate(panes))


def closing_windows(
    plan: AggregatePlan, runs: Iterable[Run], after_us: int | None, until_us: int
) -> Iterator[pa.RecordBatch]:
    """The groups of windows that end after `after_us` and not after `until_us`, of all runs together."""
    assert plan.window is not None
    earliest = None if after_us is None else after_us - plan.window.length_us
    parts = []
    for run in runs:
        if run.time_min < until_us and (earliest is None or run.time_max >= earliest):
            times = run.times(run.rows_slice())
            mask = times < until_us
            if earliest is not None:
                mask &= times >= earliest
            part = select_rows(run, mask) if len(mask) else None
            if part is not None:
                parts.append(part)
    for run in whole_groups(plan, parts):
        for windows in windows_between(plan, run, after_us, until_us):
            yield shown_windows(plan, run, windows)


def _columns(run: Run) -> list[pa.Array]:
    start = int(run.starts[0])
    return [column.slice(start, run.rows) for column in run.payload.columns]


def _rows(
    plan: AggregatePlan, run: Run, ranks: Ints, accumulated: Sequence[pa.Array], starts: Ints | None
) -> pa.RecordBatch:
    columns = decoded_keys(plan, take_rows(run.keys, ranks))
    columns += finish(plan, accumulated)
    columns += [accumulated[i] for i in plan.accumulators_of_intervals]
    if starts is not None:
        assert plan.window is not None
        bounds = [pa.array(t).cast(plan.time_type) for t in (starts, starts + np.int64(plan.window.length_us))]
        columns.append(pa.StructArray.from_arrays(bounds, fields=list(plan.shown_schema.field(WINDOW).type)))
    return pa.RecordBatch.from_arrays(columns, schema=plan.shown_schema)


def with_intervals(plan: AggregatePlan, shown: pa.RecordBatch, seen: Sequence[int]) -> pa.RecordBatch:
    """Rows of groups from the slots, with their intervals; `seen` has the rows of each stream that have arrived."""
    if plan.confidence is None:
        return shown
    arrivals = Arrivals(tuple(seen), plan.confidence.totals)
    columns = shown.columns[: len(shown.columns) - len(plan.accumulators_of_intervals)]
    for one in plan.intervals:
        value = _running(plan, shown, one.value)
        match plan.finishes[one.aggregate].aggregate.function:
            case "count":
                found = final_count(value, arrivals, plan.confidence.level)
            case "sum":
                found = final_sum(value, arrivals, plan.confidence.level)
            case _:
                assert one.count is not None
                found = final_average(value, _running(plan, shown, one.count), arrivals, plan.confidence.level)
        columns += [pa.array(bound, from_pandas=True) for bound in (found.estimate, found.low, found.high)]
    return pa.RecordBatch.from_arrays(columns, schema=plan.output_schema)


def _running(plan: AggregatePlan, shown: pa.RecordBatch, part: RunningPlan) -> Running:
    def column(number: int) -> pa.Array:
        return shown.column(plan.layout.payload.names[number])

    sums, magnitudes = (column(i).cast(pa.float64()).to_numpy() for i in (part.sums, part.magnitudes))
    return Running(
        sums, magnitudes, numbers_of_lists(column(part.sketches)).reshape(shown.num_rows, -1, SKETCH_BUCKETS)
    )


def encoded_keys(plan: AggregatePlan, keys: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
    """Group keys without NULL: per key its value, or zero, and whether it is NULL. Without keys, one constant."""
    columns = [pa.array(np.zeros(rows, dtype=np.int8))] if not keys else []
    for key in keys:
        values = normalise_key(key)
        columns.append(values.fill_null(_zero(values.type)) if values.null_count else values)
        columns.append(pc.is_null(key).cast(pa.int8()))
    return pa.RecordBatch.from_arrays(columns, names=[f"k{i}" for i in range(len(columns))])


def decoded_keys(plan: AggregatePlan, keys: pa.RecordBatch) -> list[pa.Array]:
    decoded = []
    for i, key in enumerate(plan.keys):
        values, unknown = keys.column(2 * i), keys.column(2 * i + 1)
        is_null = pc.equal(unknown, 1)
        decoded.append(pc.if_else(is_null, pa.scalar(None, values.type), values).cast(key.type))
    return decoded


def _zero(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.scalar("", kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(b"", kind)
    if pa.types.is_null(kind):
        return pa.scalar(None, kind)
    width = pa.int32() if kind.bit_width == 32 and not pa.types.is_floating(kind) else pa.int64()
    return pa.scalar(0, width).cast(kind)
