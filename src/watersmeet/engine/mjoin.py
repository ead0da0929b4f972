"""Probing: the rows of one delta against the runs of all other inputs, hop by hop, in bounded chunks.

A *partial result* binds some inputs. It is three or four integers per row: the number of its key within the delta, an
index per bound input into columns gathered when that input was bound, and, in a windowed query, the two times that
decide whom it may still join (DESIGN 3.4: a result exists iff max(t) - t_i < W_i for all i):

    latest = max(t_i)          the next row needs  t > latest - W_next
    limit  = min(t_i + W_i)    the next row needs  t < limit

so each hop is one search for the half-open range [latest - W_next + 1, limit). Matches are kept as ranges until they
are cut into chunks of at most `ROWS_MAX`; each chunk is expanded, filtered by the residual predicates it binds, and
taken to the next hop before the following chunk is touched. A hot key therefore costs time, not memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.expressions import evaluate
from watersmeet.engine.kernels import (
    Ranges,
    all_rows,
    cut_points,
    expand,
    match_keys,
    rows_between,
    split_long,
)
from watersmeet.plan.layout import ColumnSource
from watersmeet.plan.mjoin import MJoinPlan
from watersmeet.query.expressions import Column
from watersmeet.state.run import Ints, Mask, Run, take

ROWS_MAX = 1 << 18
UNBOUNDED_US = 1 << 61
"""Stands for no window: longer than any span between two Spark timestamps."""


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """What a partial result holds of one bound input: gathered columns, and for each partial its row in them."""

    payload: dict[int, pa.Array]
    times: Ints | None
    index: Ints

    def narrowed(self, rows: Ints | Mask) -> Bound:
        return replace(self, index=self.index[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Partials:
    """Partial results, column by column."""

    ranks: Ints
    latest: Ints | None
    limit: Ints | None
    bound: dict[int, Bound]

    def narrowed(self, rows: Ints | Mask) -> Partials:
        return Partials(
            self.ranks[rows],
            None if self.latest is None else self.latest[rows],
            None if self.limit is None else self.limit[rows],
            {i: bound.narrowed(rows) for i, bound in self.bound.items()},
        )


def probe(
    plan: MJoinPlan, origin: int, delta: Run, targets: Sequence[Sequence[Run]], rows_max: int = ROWS_MAX
) -> Iterator[pa.RecordBatch]:
    """All results with one row of `delta` as input `origin` and a row of `targets[j]` as every other input j."""
    order = plan.probe_orders[origin]
    positions = {j: [match_keys(delta, run) for run in targets[j]] for j in order}
    alive = np.ones(len(delta.hashes), dtype=np.bool_)
    for j in order:
        found = np.zeros(len(delta.hashes), dtype=np.bool_)
        for matched in positions[j]:
            found |= matched >= 0
        alive &= found
    hop = _Hop(plan, origin, delta, targets, positions, rows_max)
    ranks = delta.row_ranks()
    rows = np.flatnonzero(alive[ranks])
    for start in range(0, len(rows), rows_max):
        part = rows[start : start + rows_max]
        yield from hop.follow(hop.start(part + int(delta.starts[0]), ranks[part]), order)


@dataclass(frozen=True, slots=True, eq=False)
class _Hop:
    """One probe: the delta, whom it probes, and where its keys lie there."""

    plan: MJoinPlan
    origin: int
    delta: Run
    targets: Sequence[Sequence[Run]]
    positions: dict[int, list[Ints]]
    rows_max: int

    def start(self, rows: Ints, ranks: Ints) -> Partials:
        times = latest = limit = None
        if self.plan.windowed:
            times = latest = self.delta.times(rows)
            limit = latest + self._window(self.origin)
        payload = {i: self.delta.payload.column(i).take(pa.array(rows)) for i in self._needed(self.origin)}
        return Partials(ranks, latest, limit, {self.origin: Bound(payload, times, np.arange(len(rows)))})

    def follow(self, partials: Partials, order: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The results of partials that have yet to be joined with the inputs of `order`."""
        if not order:
            if len(partials.ranks):
                yield self.results(partials)
            return
        target, *rest = order
        found = [split_long(self._search(partials, target, i), self.rows_max) for i in range(len(self.targets[target]))]
        sizes = np.concatenate([ranges.count for ranges in found]) if found else np.zeros(0, dtype=np.int64)
        edges = np.cumsum([0, *(len(ranges.count) for ranges in found)])
        cuts = cut_points(sizes, self.rows_max)
        for low, high in pairwise(cuts):
            pieces = [
                (run, ranges.slice(max(low, int(first)) - int(first), min(high, int(last)) - int(first)))
                for run, ranges, first, last in zip(self.targets[target], found, edges, edges[1:], strict=False)
                if first < high and last > low
            ]
            yield from self.follow(self._filtered(self._bind(partials, target, pieces), target), rest)

    def results(self, partials: Partials) -> pa.RecordBatch:
        columns = [self._column(partials, column.input, column.source) for column in self.plan.output]
        return pa.RecordBatch.from_arrays(columns, schema=self.plan.output_schema)

    def _search(self, partials: Partials, target: int, number: int) -> Ranges:
        run = self.targets[target][number]
        positions = self.positions[target][number][partials.ranks]
        if partials.latest is None or partials.limit is None:
            return all_rows(run, positions)
        return rows_between(run, positions, partials.latest - self._window(target) + 1, partials.limit)

    def _bind(self, partials: Partials, target: int, pieces: Sequence[tuple[Run, Ranges]]) -> Partials:
        expanded = [(run, *expand(ranges)) for run, ranges in pieces]
        parents = np.concatenate([needles for _, needles, _ in expanded])
        times = latest = limit = None
        if partials.latest is not None and partials.limit is not None:
            times = np.concatenate([run.times(rows) for run, _, rows in expanded])
            latest = np.maximum(partials.latest[parents], times)
            limit = np.minimum(partials.limit[parents], times + self._window(target))
        payload = {
            i: pa.concat_arrays([take(run.payload.column(i), rows) for run, _, rows in expanded])
            for i in self._needed(target)
        }
        bound = {i: earlier.narrowed(parents) for i, earlier in partials.bound.items()}
        bound[target] = Bound(payload, times, np.arange(len(parents)))
        return Partials(partials.ranks[parents], latest, limit, bound)

    def _filtered(self, partials: Partials, newest: int) -> Partials:
        """Apply the residual predicates whose last column has just been bound."""
        names = {store.stream: i for i, store in enumerate(self.plan.stores)}
        for residual in self.plan.residuals:
            if newest not in residual.inputs or not residual.inputs <= partials.bound.keys():
                continue

            def column(ref: Column, partials: Partials = partials) -> pa.Array:
                store = names[ref.stream]
                return self._column(partials, store, self.plan.stores[store].source(ref.name))

            keep = evaluate(residual.predicate, column)
            if not keep.all():
                partials = partials.narrowed(keep)
        return partials

    def _column(self, partials: Partials, store: int, source: ColumnSource) -> pa.Array:
        bound = partials.bound[store]
        match source.kind:
            case "key":
                values = take(self.delta.keys.column(source.index), partials.ranks)
            case "time":
                assert bound.times is not None
                values = pa.array(bound.times[bound.index])
            case "payload":
                values = take(bound.payload[source.index], bound.index)
        return values if values.type.equals(source.type) else pc.cast(values, source.type)

    def _needed(self, store: int) -> range:
        return range(len(self.plan.stores[store].payload))

    def _window(self, store: int) -> np.int64:
        window = self.plan.stores[store].window_us
        return np.int64(UNBOUNDED_US if window is None else min(window, UNBOUNDED_US))
