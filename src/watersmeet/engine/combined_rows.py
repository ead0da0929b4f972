"""Rows with weights on whole Arrow arrays: made of raw rows, combined, and multiplied where they are joined.

`plan/weights.py` says what they are. Combining is a bag operation: how often, and which rows at once, changes no sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.accumulators import group_numbers, make, reduce
from watersmeet.engine.layers import Merge
from watersmeet.engine.partials import Joined
from watersmeet.plan.accumulator import Accumulator
from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.plan.layout import Field
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import Leaf
from watersmeet.plan.weights import Part, Weighing, combined_streams, is_part, is_weight, weight_of
from watersmeet.query.expressions import Column
from watersmeet.query.types import is_decimal
from watersmeet.state.run import Ints, Run, merge_in_parts, take_rows

DIGITS_OF_SUM = 56
DIGITS_OF_WEIGHT = 19
"""A DECIMAL of so many digits times a weight has at most Arrow's 76."""


def part_of_rows(part: Part, rows: int, column: pa.Array | None) -> pa.Array:
    """The part of single rows, given the column that it is of."""
    arguments = [] if column is None else [column]
    return make(Accumulator(part.made, None if column is None else 0, "sum", part.type), arguments, rows)


def field_of(joined: Joined, field: Field) -> pa.Array:
    """A field of joined rows; of rows without weights, a part is made."""
    if not isinstance(field, Part):
        return joined.column(field)
    layout = joined.node.inputs[joined.node.input_of(field.stream)]
    if any(known == field for known, _ in layout.sources):
        return joined.column(field)
    return part_of_rows(
        field, joined.rows, None if field.column is None else joined.column(Column(field.stream, field.column))
    )


def with_combined(plan: JoinPlan, stage: int, deltas: list[list[Run]]) -> list[list[Run]]:
    """The deltas of a stage, with the rows of streams that are combined on arrival combined."""
    trees = (layout.tree for layout in plan.stages[stage].inputs)
    return [
        list(map(combined_rows, runs)) if isinstance(tree, Leaf) and tree.kept == "group" else runs
        for tree, runs in zip(trees, deltas, strict=True)
    ]


def merging_of(plan: JoinPlan, stage: int) -> Merge:
    """How runs of a store are merged: where only one stream has weights, and its rows are combined, those of the
    store are."""
    trees = [layout.tree for layout in plan.stages[stage].inputs]
    streams = frozenset(name for tree in trees for name in combined_streams(plan.names, tree))
    return partial(_merged, {weight_of(name).name for name in streams}) if streams else merge_in_parts


def _merged(weights: set[str], runs: Sequence[Run]) -> Iterator[Run]:
    for run in merge_in_parts(runs):
        found = [name for name in run.payload.schema.names if is_weight(name)]
        yield combined_rows(run) if len(found) == 1 and found[0] in weights else run


def combined_rows(run: Run) -> Run:
    """A run in which rows that differ in nothing but their parts are one row."""
    names, rows = run.payload.schema.names, run.rows_slice()
    payload = run.payload.slice(rows.start, run.rows)
    parts = [i for i, name in enumerate(names) if is_part(name)]
    others = [payload.column(i) for i in range(len(names)) if i not in parts]
    ranks = run.row_ranks()
    told_apart = [pa.array(ranks if run.codes is None else run.codes[rows]), *others]
    numbers, first = group_numbers(told_apart, run.rows)
    if len(first) == run.rows:
        return run
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    kept = first[order]
    columns = list(take_rows(payload, kept).columns)
    sums = [Accumulator("value", None, "sum", payload.column(i).type) for i in parts]
    for i, summed in zip(
        parts, reduce(place[numbers], len(kept), [payload.column(i) for i in parts], sums), strict=True
    ):
        columns[i] = summed
    return replace(
        run,
        starts=np.searchsorted(ranks[kept], np.arange(len(run.hashes) + 1)).astype(np.int32),
        codes=None if run.codes is None else run.codes[rows][kept],
        payload=pa.RecordBatch.from_arrays(columns, schema=run.payload.schema),
        sieve=None,
        widest=None,
    )


def weighed(plan: AggregatePlan, joined: Joined, arguments: Sequence[pa.Array]) -> Mapping[int, pa.Array]:
    """By number, the accumulators of joined rows that weights change; none if rows have none."""
    return {
        i: _times(_value(plan.accumulators[i], weighing, joined, arguments), _product(weighing, joined))
        for i, weighing in enumerate(plan.weighings)
        if weighing is not None
    }


def _value(accumulator: Accumulator, weighing: Weighing, joined: Joined, arguments: Sequence[pa.Array]) -> pa.Array:
    return make(accumulator, arguments, joined.rows) if weighing.part is None else field_of(joined, weighing.part)


def _product(weighing: Weighing, joined: Joined) -> Ints:
    found = np.ones(joined.rows, dtype=np.int64)
    for weight in weighing.weights:
        found = found * field_of(joined, weight).to_numpy()
    return found


def _times(values: pa.Array, weights: Ints) -> pa.Array:
    """Sums that overflow do so as sums of single rows would."""
    kind = values.type
    if (weights == 1).all():
        return values
    if not is_decimal(kind):
        return pc.multiply(values, pa.array(weights).cast(kind, safe=False))
    wide = values.cast(pa.decimal256(DIGITS_OF_SUM, kind.scale))
    return pc.multiply(wide, pa.array(weights).cast(pa.decimal256(DIGITS_OF_WEIGHT, 0))).cast(kind)
