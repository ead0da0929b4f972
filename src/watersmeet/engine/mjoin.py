"""Probing: the rows of one delta against the runs of all other inputs of a node, hop by hop, in bounded chunks.

A *partial result* binds some inputs. It is a few integers per row: the number of its key within the delta, an index per
bound input into the rows that were bound (`engine/bound.py` gathers their columns when they are read, so rows that a
predicate drops are not gathered), and, in a windowed query, the interval from latest to last of the times that it may
still join (DESIGN 3.4: a result exists iff max(t) - t_i < W_i for all i):

    latest = max(t_i)          last = min(t_i + W_i) - 1

A row of a stream has the interval from t to t + W - 1. Two partials join iff their intervals overlap: each begins
before the other ends. Their result has the intersection. So each hop searches the codes, which are sorted by `latest`,
for the range from latest - span + 1 to last, where `span` is the longest window among the streams of the searched
input. For a stream the range is exact; for stored results, rows that ended too early are then dropped.

Matches are kept as ranges until they are cut into chunks of at most `ROWS_MAX` rows, or of about `BYTES_MAX` bytes if
rows are wide. Each chunk is expanded, filtered by the predicates it binds, and taken to the next hop before the next
chunk starts. A hot key therefore costs time, not memory. The rows of a chunk follow from the mean width of rows; if the
widest rows could make a chunk larger than `UNEVEN_BYTES_MAX`, ranges are weighed one by one.

Rows may belong to *generations*. A probe for owed results (`Generations`) yields only *mixed* results: their rows are
not all of one generation. At the last hop, a partial that is not mixed matches rows of other generations only. A run of
the same single generation is skipped before it is searched; rows of other runs before their columns are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from watersmeet.engine.bound import Bound
from watersmeet.engine.expressions import evaluate
from watersmeet.engine.kernels import (
    Matches,
    Ranges,
    all_rows,
    cut_points,
    expand,
    match_keys,
    rows_between,
    split_heavy,
    split_long,
)
from watersmeet.engine.partials import Generation, Generations, Joined, Partials, field_values
from watersmeet.epoch.pairs import pair_name
from watersmeet.plan.layout import KeyValue
from watersmeet.plan.nodes import NodePlan
from watersmeet.state.measures import MATCHED, MATCHES, PASSED, TESTED, Figure, key_class_name, residual_name
from watersmeet.state.moments import first_moments, last_moments, last_of_limits
from watersmeet.state.run import Ints, Mask, Run, key_values_equal, take
from watersmeet.state.sieve import Lookup
from watersmeet.state.widths import bytes_between, row_bytes, row_bytes_max

ROWS_MAX = 1 << 18
BYTES_MAX = 16 << 20
UNEVEN_BYTES_MAX = 256 << 20


def probe(
    node: NodePlan,
    origin: int,
    delta: Run,
    targets: Sequence[Sequence[Run]],
    rows_max: int = ROWS_MAX,
    counts: Counter[Figure] | None = None,
    generations: Generations | None = None,
) -> Iterator[Joined]:
    """All results with one row of `delta` as input `origin` and a row of `targets[j]` as every other input j. With
    `generations`, only results over several generations.

    Matches and tested rows are added to `counts`.
    """
    order = node.probe_orders[origin]
    rows_max = min(rows_max, max(1, BYTES_MAX // (1 + _width([delta]) + sum(_width(targets[j]) for j in order))))
    widest = _key_copies(node) * row_bytes_max(delta.keys) + sum(map(_widest, ([delta], *(targets[j] for j in order))))
    counts = Counter() if counts is None else counts
    lookup = Lookup(delta.hashes)
    matched = {}
    for j in order:
        of_runs = [0] * len(targets[j]) if generations is None else generations.targets[j]
        matched[j] = _known_keys(delta, targets[j], of_runs, lookup)
        _count_matches(counts, node, (origin, j), delta, matched[j])
    alive = np.ones(len(delta.hashes), dtype=np.bool_)
    for j in order:
        found = np.zeros(len(delta.hashes), dtype=np.bool_)
        for held in matched[j]:
            found[held.matches.keys] = True
        alive &= found
    is_uneven = rows_max * widest > UNEVEN_BYTES_MAX
    own = None if generations is None else generations.delta
    hop = _Hop(node, origin, delta, matched, rows_max, counts, own, is_uneven)
    ranks = delta.row_ranks()
    rows = np.flatnonzero(alive[ranks])
    for part in hop.parts(rows):
        yield from hop.follow(hop.filtered(hop.start(part + int(delta.starts[0]), ranks[part]), origin), order)


def _width(runs: Sequence[Run]) -> int:
    """The mean payload bytes of a row, approximately, in the run where they are largest."""
    if runs and all(pa.types.is_primitive(kind) for kind in runs[0].payload.schema.types):
        runs = runs[:1]
    return max(
        (run.payload.nbytes // max(1, run.payload.num_rows) for run in runs if run.payload.num_columns), default=0
    )


def _widest(runs: Sequence[Run]) -> int:
    """An upper bound on the payload bytes of a row."""
    return max((row_bytes_max(run.payload) if run.widest is None else run.widest for run in runs), default=0)


def _key_copies(node: NodePlan) -> int:
    """How many copies of its key a result may hold: one per input."""
    return len(node.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A run that has keys of the delta, the positions of these keys, and its generation."""

    run: Run
    matches: Matches
    generation: Generation

    def generation_of(self, rows: Ints) -> Generation:
        return self.generation if isinstance(self.generation, int) else self.generation[rows]


def _known_keys(delta: Run, target: Sequence[Run], of_runs: Sequence[Generation], lookup: Lookup) -> list[_Held]:
    matched = (_Held(run, match_keys(delta, run, lookup), its) for run, its in zip(target, of_runs, strict=True))
    return [held for held in matched if len(held.matches.keys)]


_Matched: TypeAlias = tuple[Run, Ints, Ints]
"""Rows of a run, by number, and the partials that they match."""


@dataclass(frozen=True, slots=True, eq=False)
class _Hop:
    """One probe: the delta, the runs it probes, and the positions of its keys in them."""

    node: NodePlan
    origin: int
    delta: Run
    targets: dict[int, list[_Held]]
    rows_max: int
    counts: Counter[Figure]
    generation: Generation | None
    """The generation of the delta, if only mixed results are wanted."""
    is_uneven: bool

    def parts(self, rows: Ints) -> Iterator[Ints]:
        """Rows of the delta, some at a time."""
        sizes = np.ones(len(rows), dtype=np.int64)
        if self.is_uneven:
            sizes = self._sizes(sizes, row_bytes(self.delta.payload, rows + int(self.delta.starts[0])))
        for low, high in pairwise(cut_points(sizes, self.rows_max)):
            yield rows[low:high]

    def start(self, rows: Ints, ranks: Ints) -> Partials:
        latest = last = None
        if self.node.windowed:
            latest = self.delta.times(rows)
        bound = Bound([(self.delta.payload, rows)], latest, np.arange(len(rows)))
        if latest is not None:
            ends = self.node.inputs[self.origin].limit
            last = last_moments(latest, self._span(self.origin)) if ends is None else _stored_last(bound, ends)
        generation = mixed = weights = None
        if self.generation is not None:
            own = self.generation
            generation = np.full(len(rows), own, dtype=np.int32) if isinstance(own, int) else own[rows]
            mixed = np.zeros(len(rows), dtype=np.bool_)
        if self.is_uneven:
            keys = row_bytes(self.delta.keys, np.arange(len(self.delta.hashes)))
            weights = row_bytes(self.delta.payload, rows) + _key_copies(self.node) * keys[ranks]
        return Partials(ranks, latest, last, {self.origin: bound}, generation, mixed, weights)

    def follow(self, partials: Partials, order: Sequence[int]) -> Iterator[Joined]:
        """The results of partials that have yet to be joined with the inputs of `order`."""
        if not order:
            if len(partials.ranks):
                yield Joined(self.node, self.delta, partials)
            return
        target, *rest = order
        by_key = np.argsort(partials.ranks, kind="stable")
        ranks = partials.ranks[by_key]
        found, sizes = [], [np.zeros(0, dtype=np.int64)]
        for held in self.targets[target]:
            needles, positions = held.matches.of_needles(by_key, ranks)
            if partials.generation is not None and not rest and isinstance(held.generation, int):
                mixed = _is_mixed(partials, needles, held.generation)
                needles, positions = needles[mixed], positions[mixed]
            ranges = split_long(self._search(partials, target, held.run, needles, positions), self.rows_max)
            if partials.weights is not None:
                ranges, weights = split_heavy(ranges, partial(_weigh, partials.weights, held.run), BYTES_MAX)
                sizes.append(self._sizes(ranges.count, weights))
            else:
                sizes.append(ranges.count)
            found.append(ranges)
        edges = np.cumsum([0, *(len(ranges.count) for ranges in found)])
        for low, high in pairwise(cut_points(np.concatenate(sizes), self.rows_max)):
            pieces = [
                (held, ranges.slice(max(low, int(first)) - int(first), min(high, int(last)) - int(first)))
                for held, ranges, first, last in zip(self.targets[target], found, edges, edges[1:], strict=False)
                if first < high and last > low
            ]
            bound = self._bind(partials, target, pieces, mixed_only=not rest)
            yield from self.follow(self.filtered(bound, target), rest)

    def _sizes(self, counts: Ints, weights: Ints) -> Ints:
        """The part of a chunk that rows take, in rows, by their number or by their bytes."""
        return np.maximum(counts, np.ceil(weights * (self.rows_max / BYTES_MAX)).astype(np.int64))

    def _search(self, partials: Partials, target: int, run: Run, needles: Ints, positions: Ints) -> Ranges:
        """The rows of a run that match some partials, given the positions of their keys in it."""
        if partials.latest is None or partials.last is None:
            found = all_rows(run, positions)
        else:
            first = first_moments(partials.latest[needles], self._span(target))
            found = rows_between(run, positions, first, partials.last[needles])
        return replace(found, needle=needles[found.needle])

    def _bind(
        self, partials: Partials, target: int, pieces: Sequence[tuple[_Held, Ranges]], *, mixed_only: bool
    ) -> Partials:
        expanded = [self._still_open(partials, target, held.run, *expand(ranges)) for held, ranges in pieces]
        generation = mixed = None
        if partials.generation is not None:
            expanded, mixed = self._of_generations(partials, [held for held, _ in pieces], expanded, mixed_only)
        parents = np.concatenate([needles for _, needles, _ in expanded])
        if partials.generation is not None:
            generation = partials.generation[parents]
        self.counts[Figure(MATCHED)] += len(parents)
        times = latest = last = None
        if partials.latest is not None:
            times = np.concatenate([run.times(rows) for run, _, rows in expanded])
        newest = Bound([(run.payload, rows) for run, _, rows in expanded], times, np.arange(len(parents)))
        if times is not None and partials.latest is not None and partials.last is not None:
            ends = self.node.inputs[target].limit
            end = last_moments(times, self._span(target)) if ends is None else _stored_last(newest, ends)
            latest = np.maximum(partials.latest[parents], times)
            last = np.minimum(partials.last[parents], end)
        weights = None
        if partials.weights is not None:
            new = [row_bytes(run.payload, rows) for run, _, rows in expanded]
            weights = partials.weights[parents] + np.concatenate(new)
        bound = {i: earlier.narrowed(parents) for i, earlier in partials.bound.items()}
        return Partials(partials.ranks[parents], latest, last, {**bound, target: newest}, generation, mixed, weights)

    def _of_generations(
        self, partials: Partials, held: Sequence[_Held], expanded: Sequence[_Matched], mixed_only: bool
    ) -> tuple[list[_Matched], Mask]:
        """Matches, and which of them are mixed. With `mixed_only`, the others are left out."""
        found, marks = [], []
        for one, (run, needles, rows) in zip(held, expanded, strict=True):
            mixed = _is_mixed(partials, needles, one.generation_of(rows))
            if mixed_only and not mixed.all():
                needles, rows, mixed = needles[mixed], rows[mixed], mixed[mixed]
            found.append((run, needles, rows))
            marks.append(mixed)
        return found, np.concatenate(marks)

    def _still_open(self, partials: Partials, target: int, run: Run, needles: Ints, rows: Ints) -> _Matched:
        """Matches whose stored interval does not end before the partial begins; for streams the search was exact."""
        ends = self.node.inputs[target].limit
        if ends is None or partials.latest is None:
            return run, needles, rows
        stored = last_of_limits(take(run.payload.column(ends), rows).to_numpy())
        keep = stored >= partials.latest[needles]
        return (run, needles, rows) if keep.all() else (run, needles[keep], rows[keep])

    def filtered(self, partials: Partials, newest: int) -> Partials:
        """Apply the predicates whose last input has just been bound; for the first input, predicates over it alone."""
        bound = partials.bound.keys()
        for equality in self.node.equalities:
            if newest in (equality.left, equality.right) and {equality.left, equality.right} <= bound:
                field = KeyValue(equality.key_class)
                sides = [
                    field_values(self.node, self.delta, partials, field, i) for i in (equality.left, equality.right)
                ]
                partials = self._kept(partials, key_values_equal(*sides), key_class_name(equality.key_class))
        for residual in self.node.residuals:
            if newest in residual.inputs and residual.inputs <= bound:
                column = partial(field_values, self.node, self.delta, partials)
                keep = evaluate(residual.predicate, column, len(partials.ranks))
                partials = self._kept(partials, keep, residual_name(residual.number))
        return partials

    def _kept(self, partials: Partials, keep: Mask, predicate: str) -> Partials:
        passed = int(np.count_nonzero(keep))
        self.counts[Figure(TESTED, predicate)] += len(keep)
        self.counts[Figure(PASSED, predicate)] += passed
        return partials if passed == len(keep) else partials.narrowed(keep)

    def _span(self, store: int) -> int | None:
        return self.node.inputs[store].span_us


def _weigh(weights: Ints, run: Run, ranges: Ranges) -> Ints:
    """The bytes of ranges once they are bound, including the bytes of their needles."""
    rows = bytes_between(run.payload, ranges.start, ranges.start + ranges.count)
    return rows + ranges.count * weights[ranges.needle]


def _stored_last(bound: Bound, column: int) -> Ints:
    """The last moments of bound rows that are stored results."""
    return last_of_limits(bound.column(column).to_numpy())


def _is_mixed(partials: Partials, needles: Ints, generation: Generation) -> Mask:
    """Which partials are mixed once they have bound rows of the given generations."""
    assert partials.generation is not None
    assert partials.mixed is not None
    mixed: Mask = partials.mixed[needles] | (partials.generation[needles] != generation)
    return mixed


def _count_matches(
    counts: Counter[Figure], node: NodePlan, pair: tuple[int, int], delta: Run, matched: Sequence[_Held]
) -> None:
    """Count the pairs of rows of a delta and a store with equal keys."""
    figure = Figure(MATCHES, pair_name(*(node.inputs[i].label for i in pair)))
    ours = np.diff(delta.starts).astype(np.int64)
    for held in matched:
        positions = held.matches.positions
        theirs = held.run.starts[positions + 1] - held.run.starts[positions]
        counts[figure] += int(ours[held.matches.keys] @ theirs)
