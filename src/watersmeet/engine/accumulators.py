"""Accumulators on whole Arrow arrays: made from the arguments of joined rows, reduced by group, and finished.

`plan/aggregate.py` defines them. Every reduction uses *group numbers*, one per row, so that one function reduces joined
rows, rows of runs and panes of windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.inbox import normalise_key
from watersmeet.engine.sketch import sketch
from watersmeet.errors import WatersmeetError
from watersmeet.plan.accumulator import Accumulator
from watersmeet.plan.aggregate import AggregatePlan, Finish
from watersmeet.query.types import is_decimal, is_floating
from watersmeet.state.moments import EARLIEST_US, LATEST_US
from watersmeet.state.run import Hashes, Ints, take
from watersmeet.units import format_duration, iso_time

DENSE_MIN = 1 << 10
LOW_BITS = 32
LOW_MASK = (1 << LOW_BITS) - 1
HALF_MAX = 1 << (63 - LOW_BITS)
AFTER_SIGN = np.int64((1 << 63) - 1)
SKETCHES_BYTES_MAX = 64 << 20
"""The most bytes of sketches that are made at once."""


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRows:
    """The input of an accumulation: keys and arguments of joined rows, in a windowed aggregation their times, and with
    intervals the ids of their rows, one array for each stream."""

    rows: int
    keys: Sequence[pa.Array]
    arguments: Sequence[pa.Array]
    times: Ints | None
    row_ids: Sequence[Hashes] = ()
    made: Mapping[int, pa.Array] = field(default_factory=dict)
    """By number, accumulators that are made already (`engine/combined_rows.py`)."""

    def in_parts(self, rows_max: int) -> Iterator[JoinedRows]:
        for start in range(0, self.rows, rows_max):
            part = slice(start, min(start + rows_max, self.rows))
            yield JoinedRows(
                part.stop - start,
                [key[part] for key in self.keys],
                [argument[part] for argument in self.arguments],
                None if self.times is None else self.times[part],
                [ids[part] for ids in self.row_ids],
                {number: values[part] for number, values in self.made.items()},
            )


def rows_at_once(plan: AggregatePlan) -> int:
    """The number of joined rows to accumulate at once: each may be a group, with sketches of its own."""
    sketches = sum(a.combine == "add" for a in plan.accumulators)
    return max(1, SKETCHES_BYTES_MAX // max(1, 8 * plan.sketch_size * sketches))


def accumulate(plan: AggregatePlan, joined: JoinedRows) -> tuple[pa.RecordBatch, Ints]:
    """Joined rows as one accumulated row per group and pane, and the first joined row of each."""
    keys, rows = joined.keys, joined.rows
    grouped = [normalise_key(key) for key in keys]
    if plan.pane_us is not None:
        assert joined.times is not None
        _require_windows(plan, joined.times)
        grouped.insert(0, pa.array(joined.times - joined.times % np.int64(plan.pane_us)))
    numbers, first = group_numbers(grouped, rows)
    plain = [i for i, a in enumerate(plan.accumulators) if a.combine != "add"]
    done = joined.made
    made = [done[i] if i in done else make(plan.accumulators[i], joined.arguments, rows) for i in plain]
    found = dict(zip(plain, reduce(numbers, len(first), made, [plan.accumulators[i] for i in plain]), strict=True))
    found |= _sketches(plan, joined, numbers, len(first))
    columns = [take(column, first) for column in grouped]
    columns += [found[i] for i in range(len(plan.accumulators))]
    return pa.RecordBatch.from_arrays(columns, schema=plan.frame), first


def _require_windows(plan: AggregatePlan, times: Ints) -> None:
    """Raise a WatersmeetError if a window of a result would begin or end beyond the range of timestamps."""
    assert plan.window is not None
    length = plan.window.length_us
    for time in (int(times.min()), int(times.max())) if len(times) else ():
        if not EARLIEST_US <= time - length <= time + length <= LATEST_US:
            raise WatersmeetError(
                f"a result of event time {iso_time(time)} ({time} microseconds) has windows of "
                f"{format_duration(length)} that begin or end beyond what a timestamp can hold",
                hint="keep such rows out of the streams with a filter on their event time",
                error_class="EVENT_TIME_OUT_OF_RANGE",
            )


def _sketches(plan: AggregatePlan, joined: JoinedRows, numbers: Ints, count: int) -> dict[int, pa.Array]:
    """The sketches among the accumulators; all at once, since they share hashes."""
    wanted = [i for i, a in enumerate(plan.accumulators) if a.combine == "add"]
    if not wanted:
        return {}
    values = []
    for accumulator in (plan.accumulators[i] for i in wanted):
        column = None if accumulator.argument is None else joined.arguments[accumulator.argument]
        if column is None:
            values.append(np.ones(joined.rows))
        elif accumulator.made == "known sketch":
            values.append(pc.is_valid(column).cast(pa.float64()).to_numpy())
        else:
            values.append(column.cast(pa.float64(), safe=False).fill_null(0).to_numpy())
    found = sketch(joined.row_ids, values, numbers, count)
    return {i: lists_of_numbers(one.reshape(count, -1)) for i, one in zip(wanted, found, strict=True)}


def lists_of_numbers(values: npt.NDArray[np.float64]) -> pa.ListArray:
    """A table of numbers as lists of equal length. (Spark does not accept Arrow's fixed-size lists.)"""
    rows, length = values.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(length))
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))


def numbers_of_lists(lists: pa.Array) -> npt.NDArray[np.float64]:
    """Lists of equal length as a table of numbers."""
    return lists.flatten().to_numpy().reshape(len(lists), -1) if len(lists) else np.zeros((0, 0))


def group_numbers(columns: Sequence[pa.Array], rows: int) -> tuple[Ints, Ints]:
    """The number of every row's group, and the first row of every group; NULLs are equal here."""
    numbers = np.zeros(rows, dtype=np.int64)
    first = np.zeros(min(rows, 1), dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        size = max(1, len(encoded.dictionary))
        numbers, first = _numbered(numbers * np.int64(size) + codes, len(first) * size)
    return numbers, first


def _numbered(values: Ints, below: int) -> tuple[Ints, Ints]:
    """Values numbered without gaps, and the first row of each; without sorting, if the values are dense."""
    if below > 4 * len(values) + DENSE_MIN:
        _, first, numbers = np.unique(values, return_index=True, return_inverse=True)
        return numbers, first
    present = np.zeros(below, dtype=np.bool_)
    present[values] = True
    numbers = (np.cumsum(present) - 1)[values]
    first = np.empty(int(present.sum()), dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(values) - 1, -1, -1)
    return numbers, first


def make(accumulator: Accumulator, arguments: Sequence[pa.Array], rows: int) -> pa.Array:
    """An accumulator of every single row."""
    if accumulator.argument is None:
        return pa.array(np.ones(rows, dtype=np.int64))
    values = arguments[accumulator.argument]
    if accumulator.made == "known":
        return pc.is_valid(values).cast(pa.int64())
    if accumulator.combine == "unite":
        values = normalise_key(values)
        known = pc.is_valid(values).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(known)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values.drop_null(), type=accumulator.type)
    if accumulator.made == "ordered":
        return _ordered(values)
    if accumulator.made == "magnitude":
        return pc.abs(values.cast(pa.float64(), safe=False)).fill_null(0)
    values = values.cast(accumulator.type, safe=not is_floating(accumulator.type))  # not every BIGINT is a double
    if accumulator.combine != "sum":
        return values
    values = values.fill_null(pa.scalar(Decimal(0) if is_decimal(accumulator.type) else 0, accumulator.type))
    match accumulator.made:
        case "high":
            return pa.array(values.to_numpy() >> np.int64(LOW_BITS))
        case "low":
            return pa.array(values.to_numpy() & np.int64(LOW_MASK))
    return values


def reduce(
    numbers: Ints, count: int, columns: Sequence[pa.Array], accumulators: Sequence[Accumulator]
) -> list[pa.Array]:
    """One value of every accumulator for each of `count` groups; every group has a row."""
    plain = [i for i, a in enumerate(accumulators) if a.combine not in ("unite", "add")]
    table = pa.table([pa.array(numbers), *(columns[i] for i in plain)], ["group", *(str(i) for i in plain)])
    found = table.group_by("group", use_threads=False).aggregate([(str(i), accumulators[i].combine) for i in plain])
    order = np.empty(count, dtype=np.int64)
    order[found.column("group").to_numpy()] = np.arange(count)
    reduced = []
    for i, accumulator in enumerate(accumulators):
        if accumulator.combine == "unite":
            reduced.append(_united(numbers, count, columns[i]))
        elif accumulator.combine == "add":
            parts = numbers_of_lists(columns[i])
            added = np.zeros((count, parts.shape[1]))
            np.add.at(added, numbers, parts)
            reduced.append(lists_of_numbers(added))
        else:
            values = found.column(f"{i}_{accumulator.combine}").combine_chunks()
            reduced.append(take(values, order).cast(accumulator.type))
    return reduced


def _united(numbers: Ints, count: int, lists: pa.ListArray) -> pa.ListArray:
    """The distinct elements of all lists of a group."""
    parents = numbers[pc.list_parent_indices(lists).to_numpy()]
    elements = pc.list_flatten(lists)
    _, first = group_numbers([pa.array(parents), elements], len(parents))
    by_group = first[np.argsort(parents[first], kind="stable")]
    offsets = np.searchsorted(parents[by_group], np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), take(elements, by_group), type=lists.type)


def _ordered(values: pa.Array) -> pa.Array:
    """Floats as integers of the same order: NaN is the greatest, and -0.0 is 0.0."""
    plain = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(plain), np.nan, plain + 0.0).view(np.int64)
    unknown = pc.is_null(values).to_numpy(zero_copy_only=False)
    return pa.array(bits ^ ((bits >> np.int64(63)) & AFTER_SIGN), mask=unknown)


def _from_ordered(values: pa.Array) -> pa.Array:
    unknown = pc.is_null(values).to_numpy(zero_copy_only=False)
    ordered = values.fill_null(0).to_numpy()
    bits = ordered ^ ((ordered >> np.int64(63)) & AFTER_SIGN)
    return pa.array(bits.view(np.float64), mask=unknown)


def finish(plan: AggregatePlan, accumulated: Sequence[pa.Array]) -> list[pa.Array]:
    """The aggregates of the query, for groups given by their accumulators."""
    return [_finished(one, [accumulated[i] for i in one.accumulators]) for one in plan.finishes]


def _finished(one: Finish, parts: Sequence[pa.Array]) -> pa.Array:
    kind = one.aggregate.type
    match one.aggregate.function:
        case "count":
            return parts[0]
        case "min" | "max":
            floating = is_floating(kind)
            return (_from_ordered(parts[0]) if floating else parts[0]).cast(kind)
        case "count_distinct":
            return pc.list_value_length(parts[0]).cast(pa.int64())
        case "sum":
            return _or_null(_sum(one, parts), parts[0], kind)
        case "avg":
            return _or_null(_mean(one, parts), parts[0], kind)


def _or_null(values: pa.Array, known: pa.Array, kind: pa.DataType) -> pa.Array:
    """NULL for groups without any known value."""
    return pc.if_else(pc.greater(known, 0), values, pa.scalar(None, kind))


def _sum(one: Finish, parts: Sequence[pa.Array]) -> pa.Array:
    kind = one.aggregate.type
    if len(parts) == 2:
        try:
            return parts[1].cast(kind)
        except pa.ArrowInvalid:
            raise _overflow(one) from None
    high, low = (part.to_numpy() for part in parts[1:])
    high = high + (low >> np.int64(LOW_BITS))
    if len(high) and (high.min() < -HALF_MAX or high.max() >= HALF_MAX):
        raise _overflow(one)
    return pa.array((high << np.int64(LOW_BITS)) + (low & np.int64(LOW_MASK)))


def _mean(one: Finish, parts: Sequence[pa.Array]) -> pa.Array:
    kind = one.aggregate.type
    known = np.maximum(parts[0].to_numpy(), 1)
    if is_decimal(kind):
        return _decimal_mean(one, parts[1], known)
    total = parts[1].to_numpy().astype(np.float64)
    if len(parts) == 3:
        total = total * float(1 << LOW_BITS) + parts[2].to_numpy()
    return pa.array(total / known)


def _decimal_mean(one: Finish, totals: pa.Array, known: Ints) -> pa.Array:
    """Rounded half up, as Spark does. In Python, because Arrow's division truncates; once per group, not per row."""
    kind = one.aggregate.type
    unit = Decimal(1).scaleb(-kind.scale)
    with localcontext(prec=100):
        pairs = zip(totals.to_pylist(), known.tolist(), strict=True)
        means = [(total / count).quantize(unit, ROUND_HALF_UP) for total, count in pairs]
    try:
        return pa.array(means, kind)
    except pa.ArrowInvalid:
        raise _overflow(one) from None


def _overflow(one: Finish) -> WatersmeetError:
    argument = one.aggregate.argument
    return WatersmeetError(
        f"{one.aggregate.function}({argument.sql if argument else '*'}) has left the range of {one.aggregate.type}",
        hint="cast the argument to a wider type, such as DOUBLE or DECIMAL(38, 0)",
        error_class="ARITHMETIC_OVERFLOW",
    )
