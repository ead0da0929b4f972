"""Probing: the rows of one delta against the runs of all other inputs of a node, hop by hop, in bounded chunks.

A *partial result* binds some inputs. It is a few integers per row: the number of its key within the delta, an index per
bound input into the rows that were bound (`engine/bound.py` gathers their columns when they are read, so rows that a
predicate drops are not gathered), and, in a windowed query, the interval [latest, limit) that decides whom it may still
join (DESIGN 3.4: a result exists iff max(t) - t_i < W_i for all i):

    latest = max(t_i)          limit = min(t_i + W_i)

A row of a stream is the interval [t, t + W), and two partials belong together iff their intervals meet: each begins
before the other ends. What they make is the intersection. So each hop searches the codes, which are sorted by
`latest`, for the range [latest - span + 1, limit), where `span` is the longest window among the streams of the input
searched; for a stream that is exact, and for stored results the rows that ended too early are then dropped.

Matches are kept as ranges until they are cut into chunks of at most `ROWS_MAX` rows, or of about `BYTES_MAX` bytes
where rows are wide; each chunk is expanded, filtered by the predicates it binds, and taken to the next hop before the
following chunk is touched. A hot key therefore costs time, not memory.

Rows may belong to *generations*; a probe for what is owed (`Generations`) then yields the results whose rows are not
all of one: each partial knows whether it is mixed, and at the last hop one that is not finds other generations only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    split_long,
)
from watersmeet.epoch.pairs import pair_name
from watersmeet.plan.keys import Key
from watersmeet.plan.layout import ENDLESS_US, Field, KeyValue
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.partitioning import group_of
from watersmeet.query.expressions import Column
from watersmeet.state.run import Ints, Mask, Run, key_values_equal, take
from watersmeet.state.sieve import Lookup

ROWS_MAX = 1 << 18
BYTES_MAX = 16 << 20
ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Partials:
    """Partial results, column by column."""

    ranks: Ints
    latest: Ints | None
    limit: Ints | None
    bound: dict[int, Bound]
    mixed: Mask | None = None
    """Whether rows of another generation than the delta's are bound; None where that does not matter."""

    def narrowed(self, rows: Ints | Mask) -> Partials:
        return Partials(
            self.ranks[rows],
            None if self.latest is None else self.latest[rows],
            None if self.limit is None else self.limit[rows],
            {i: bound.narrowed(rows) for i, bound in self.bound.items()},
            None if self.mixed is None else self.mixed[rows],
        )


@dataclass(frozen=True, slots=True)
class Generations:
    """The generation of a delta, and of every run that it probes: only results over several are wanted."""

    delta: int
    targets: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Some results of a node: complete partials, and a way to their fields."""

    node: NodePlan
    delta: Run
    partials: Partials

    @property
    def rows(self) -> int:
        return len(self.partials.ranks)

    def column(self, field: Field) -> pa.Array:
        return field_values(self.node, self.delta, self.partials, field)

    def group_under(self, key: Key, partitions: int, rows: Ints | slice = ALL) -> Ints:
        """The partition groups of results under the key of the node, or under one before it."""
        if key == self.node.key:
            return group_of(self.delta.hashes, partitions)[self.partials.ranks[rows]]
        number = next(i for i, layout in enumerate(self.node.inputs) if key in layout.trail)
        bound = self.partials.bound[number]
        chosen = bound if rows is ALL else bound.narrowed(rows)
        column = chosen.column(self.node.inputs[number].group_column(key))
        return column.to_numpy().view(np.uint16).astype(np.int64)


def field_values(node: NodePlan, delta: Run, partials: Partials, field: Field, of_input: int | None = None) -> pa.Array:
    """The values of a field in partials that bind it (as the input `of_input` holds it, where several do)."""
    number = _holder(node, partials, field) if of_input is None else of_input
    source = node.inputs[number].source(field)
    bound = partials.bound[number]
    match source.kind:
        case "key":
            values = take(delta.keys.column(source.index), partials.ranks)
        case "time":
            assert bound.times is not None
            values = pa.array(bound.times[bound.index])
        case "payload":
            values = bound.column(source.index)
    return values if values.type.equals(source.type) else pc.cast(values, source.type)


def _holder(node: NodePlan, partials: Partials, field: Field) -> int:
    if isinstance(field, Column):
        return node.input_of(field.stream)
    return next(i for i in partials.bound if any(known == field for known, _ in node.inputs[i].sources))


def probe(
    node: NodePlan,
    origin: int,
    delta: Run,
    targets: Sequence[Sequence[Run]],
    rows_max: int = ROWS_MAX,
    counts: Counter[str] | None = None,
    generations: Generations | None = None,
) -> Iterator[Joined]:
    """All results with one row of `delta` as input `origin` and a row of `targets[j]` as every other input j; given
    their `generations`, those over several.

    Matches and tested rows are added to `counts`.
    """
    order = node.probe_orders[origin]
    rows_max = min(rows_max, max(1, BYTES_MAX // (1 + _width([delta]) + sum(_width(targets[j]) for j in order))))
    counts = Counter() if counts is None else counts
    lookup = Lookup(delta.hashes)
    matched = {}
    for j in order:
        foreign = [False] * len(targets[j])
        if generations is not None:
            foreign = [generation != generations.delta for generation in generations.targets[j]]
        matched[j] = _known_keys(delta, targets[j], foreign, lookup)
        _count_matches(counts, node, (origin, j), delta, matched[j])
    alive = np.ones(len(delta.hashes), dtype=np.bool_)
    for j in order:
        found = np.zeros(len(delta.hashes), dtype=np.bool_)
        for held in matched[j]:
            found[held.matches.keys] = True
        alive &= found
    hop = _Hop(node, origin, delta, matched, rows_max, counts, generations is not None)
    ranks = delta.row_ranks()
    rows = np.flatnonzero(alive[ranks])
    for start in range(0, len(rows), rows_max):
        part = rows[start : start + rows_max]
        yield from hop.follow(hop.filtered(hop.start(part + int(delta.starts[0]), ranks[part]), origin), order)


def _width(runs: Sequence[Run]) -> int:
    """About how many bytes the payload of one row has, in the run where it has most."""
    if runs and all(pa.types.is_primitive(kind) for kind in runs[0].payload.schema.types):
        runs = runs[:1]
    return max(
        (run.payload.nbytes // max(1, run.payload.num_rows) for run in runs if run.payload.num_columns), default=0
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A run that has keys of the delta, where, and whether it is of another generation."""

    run: Run
    matches: Matches
    is_foreign: bool


def _known_keys(delta: Run, target: Sequence[Run], foreign: Sequence[bool], lookup: Lookup) -> list[_Held]:
    matched = (_Held(run, match_keys(delta, run, lookup), other) for run, other in zip(target, foreign, strict=True))
    return [held for held in matched if len(held.matches.keys)]


@dataclass(frozen=True, slots=True, eq=False)
class _Hop:
    """One probe: the delta, whom it probes, and where its keys lie there."""

    node: NodePlan
    origin: int
    delta: Run
    targets: dict[int, list[_Held]]
    rows_max: int
    counts: Counter[str]
    mixed_only: bool

    def start(self, rows: Ints, ranks: Ints) -> Partials:
        latest = limit = None
        if self.node.windowed:
            latest = self.delta.times(rows)
        bound = Bound([(self.delta.payload, rows)], latest, np.arange(len(rows)))
        if latest is not None:
            ends = self.node.inputs[self.origin].limit
            limit = latest + self._span(self.origin) if ends is None else bound.column(ends).to_numpy()
        mixed = np.zeros(len(rows), dtype=np.bool_) if self.mixed_only else None
        return Partials(ranks, latest, limit, {self.origin: bound}, mixed)

    def follow(self, partials: Partials, order: Sequence[int]) -> Iterator[Joined]:
        """The results of partials that have yet to be joined with the inputs of `order`."""
        if not order:
            if len(partials.ranks):
                yield Joined(self.node, self.delta, partials)
            return
        target, *rest = order
        by_key = np.argsort(partials.ranks, kind="stable")
        ranks = partials.ranks[by_key]
        found = []
        for held in self.targets[target]:
            needles, positions = held.matches.of_needles(by_key, ranks)
            if partials.mixed is not None and not rest and not held.is_foreign:
                mixed = partials.mixed[needles]
                needles, positions = needles[mixed], positions[mixed]
            found.append(split_long(self._search(partials, target, held.run, needles, positions), self.rows_max))
        sizes = np.concatenate([ranges.count for ranges in found]) if found else np.zeros(0, dtype=np.int64)
        edges = np.cumsum([0, *(len(ranges.count) for ranges in found)])
        for low, high in pairwise(cut_points(sizes, self.rows_max)):
            pieces = [
                (held, ranges.slice(max(low, int(first)) - int(first), min(high, int(last)) - int(first)))
                for held, ranges, first, last in zip(self.targets[target], found, edges, edges[1:], strict=False)
                if first < high and last > low
            ]
            yield from self.follow(self.filtered(self._bind(partials, target, pieces), target), rest)

    def _search(self, partials: Partials, target: int, run: Run, needles: Ints, positions: Ints) -> Ranges:
        """The rows of a run that some partials meet, given the positions of their keys in it."""
        if partials.latest is None or partials.limit is None:
            found = all_rows(run, positions)
        else:
            low = partials.latest[needles] - self._span(target) + 1
            found = rows_between(run, positions, low, partials.limit[needles])
        return replace(found, needle=needles[found.needle])

    def _bind(self, partials: Partials, target: int, pieces: Sequence[tuple[_Held, Ranges]]) -> Partials:
        expanded = [self._still_open(partials, target, held.run, *expand(ranges)) for held, ranges in pieces]
        parents = np.concatenate([needles for _, needles, _ in expanded])
        mixed = None
        if partials.mixed is not None:
            foreign = np.repeat([held.is_foreign for held, _ in pieces], [len(rows) for _, _, rows in expanded])
            mixed = partials.mixed[parents] | foreign
        self.counts["matched"] += len(parents)
        times = latest = limit = None
        if partials.latest is not None:
            times = np.concatenate([run.times(rows) for run, _, rows in expanded])
        newest = Bound([(run.payload, rows) for run, _, rows in expanded], times, np.arange(len(parents)))
        if times is not None and partials.latest is not None and partials.limit is not None:
            ends = self.node.inputs[target].limit
            end = times + self._span(target) if ends is None else newest.column(ends).to_numpy()
            latest = np.maximum(partials.latest[parents], times)
            limit = np.minimum(partials.limit[parents], end)
        bound = {i: earlier.narrowed(parents) for i, earlier in partials.bound.items()}
        return Partials(partials.ranks[parents], latest, limit, {**bound, target: newest}, mixed)

    def _still_open(
        self, partials: Partials, target: int, run: Run, needles: Ints, rows: Ints
    ) -> tuple[Run, Ints, Ints]:
        """Matches whose stored interval has not ended before the partial begins; for streams the search was exact."""
        ends = self.node.inputs[target].limit
        if ends is None or partials.latest is None:
            return run, needles, rows
        keep = take(run.payload.column(ends), rows).to_numpy() > partials.latest[needles]
        return (run, needles, rows) if keep.all() else (run, needles[keep], rows[keep])

    def filtered(self, partials: Partials, newest: int) -> Partials:
        """Apply the predicates whose last input has just been bound; when it is the first, those over it alone."""
        bound = partials.bound.keys()
        for equality in self.node.equalities:
            if newest in (equality.left, equality.right) and {equality.left, equality.right} <= bound:
                field = KeyValue(equality.key_class)
                sides = [
                    field_values(self.node, self.delta, partials, field, i) for i in (equality.left, equality.right)
                ]
                partials = self._kept(partials, key_values_equal(*sides), f"key {equality.key_class}")
        for residual in self.node.residuals:
            if newest in residual.inputs and residual.inputs <= bound:
                column = partial(field_values, self.node, self.delta, partials)
                keep = evaluate(residual.predicate, column, len(partials.ranks))
                partials = self._kept(partials, keep, f"residual {residual.number}")
        return partials

    def _kept(self, partials: Partials, keep: Mask, predicate: str) -> Partials:
        passed = int(np.count_nonzero(keep))
        self.counts[f"tested.{predicate}"] += len(keep)
        self.counts[f"passed.{predicate}"] += passed
        return partials if passed == len(keep) else partials.narrowed(keep)

    def _span(self, store: int) -> np.int64:
        span = self.node.inputs[store].span_us
        return np.int64(ENDLESS_US if span is None else span)


def _count_matches(
    counts: Counter[str], node: NodePlan, pair: tuple[int, int], delta: Run, matched: Sequence[_Held]
) -> None:
    """How many pairs of rows of a delta and a store agree on the key."""
    name = pair_name(*(node.inputs[i].label for i in pair))
    ours = np.diff(delta.starts).astype(np.int64)
    for held in matched:
        positions = held.matches.positions
        theirs = held.run.starts[positions + 1] - held.run.starts[positions]
        counts[f"matches.{name}"] += int(ours[held.matches.keys] @ theirs)
