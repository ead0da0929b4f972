"""The statistics of a step: pairs and matches, tested predicates, partition groups, and time spent.

| figure                   | source                                                                                    |
|--------------------------|-------------------------------------------------------------------------------------------|
| selectivity of a key     | rows of the joined inputs, from which the driver computes *pairs* (`epoch/pairs.py`);     |
|                          | pairs with equal keys are *matches*, counted per distinct key                             |
| selectivity of a residual| rows tested, and rows that passed                                                         |
| P_output of a group      | final results of the query that the group has a part in (S2), by key and group            |
| P_inter of a group       | intermediate results that the group has a part in                                         |
| P_size of a group        | bytes of its rows in a stage, by store                                                    |
| local output of a group  | results that the topmost node of its own stage has emitted, final or not                  |
| arrivals of a group      | rows added to each store of a stage                                                       |
| C_i, C_d, C_j            | nanoseconds to store, expire and match, divided by the rows stored, expired, matched      |

Results that were joined under several keys carry their partition groups under the earlier keys (`StoreLayout.trail`).
So the results themselves give the statistics of groups on other slots and in other stages: the papers' tracing (S2,
Alg. 1) and their UpdatePartitionStatistics message (S4, Alg. 2) are a column and a sum. Groups of the current key are
counted for all results. Groups of earlier keys are counted for a sample, chosen by row hash. In a query without windows
they are counted for all results, because the hash would be that of the key alone.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

import numpy as np

from watersmeet.engine.layers import rows_by_group
from watersmeet.engine.partials import ALL, Joined
from watersmeet.epoch.key_sketch import BUCKETS, KeyClasses, SketchedKey, packed
from watersmeet.epoch.task import GroupCounts, GroupFigure, InputRows, NodeInput, Seen
from watersmeet.plan.keys import key_name
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.partitioning import group_of
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef
from watersmeet.state.measures import STATE_ROWS, STORE_BYTES, Figure, Measure
from watersmeet.state.run import Hashes, Ints, Run

SAMPLE = 8
"""One result in `SAMPLE` is traced to the groups of earlier keys."""

WEIGHED_MAX = 1 << 12
"""The number of extents whose bytes per group are cached."""

T = TypeVar("T")


class Tally:
    """The figures of one step."""

    def __init__(self, partitions: int, sketched: Sequence[KeyClasses] = ()) -> None:
        self.partitions, self.sketched = partitions, sketched
        self._sketches: dict[SketchedKey, Ints] = {}
        self.counts: Counter[Figure] = Counter()
        self.seen: dict[str, Seen] = {}
        self.inputs: dict[NodeInput, InputRows] = {}
        self._groups: dict[GroupFigure, Ints] = defaultdict(lambda: np.zeros(partitions, dtype=np.int64))

    def count(self, measure: Measure, value: int, of: str = "") -> None:
        """Add to a figure."""
        self.counts[Figure(measure, of)] += value

    @contextmanager
    def spent_on(self, what: Measure) -> Iterator[None]:
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self.count(what, time.perf_counter_ns() - began)

    def timed(self, what: Measure, items: Iterable[T]) -> Iterator[T]:
        """The same items. The time to make them is counted, the time to use them is not."""
        source = iter(items)
        while True:
            with self.spent_on(what):
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item

    def trace(self, joined: Joined, *, is_final: bool, emitted_by: int | None = None) -> None:
        """Credit the groups that have a part in some results: groups of this stage's key, and of earlier keys.

        `emitted_by` is the stage that emits the results; None if another node of the same stage takes them.
        """
        kind: Literal["output", "inter"] = "output" if is_final else "inter"
        node, partials = joined.node, joined.partials
        if node.key:
            by_key = np.bincount(partials.ranks, minlength=len(joined.delta.hashes))
            groups = group_of(joined.delta.hashes, self.partitions)
            by_group = _sums(groups, by_key, self.partitions)
            self._groups[GroupFigure(kind, key_name(node.key))] += by_group
            if emitted_by is not None:
                self._groups[GroupFigure("local", stage=emitted_by)] += by_group
        earlier = dict.fromkeys(key for layout in node.inputs for key in layout.trail if key != node.key)
        if earlier:
            sample, weight = _sample(joined)
            for key in earlier:
                groups = joined.group_under(key, self.partitions, sample)
                traced = weight * np.bincount(groups, minlength=self.partitions)
                self._groups[GroupFigure(kind, key_name(key))] += traced

    def see(self, stream: str, rows: int, latest_us: int | None) -> None:
        """Count arrived rows of a stream, including those that are dropped later."""
        before, latest = self.seen.get(stream, (0, None))
        times = [t for t in (latest, latest_us) if t is not None]
        self.seen[stream] = before + rows, max(times, default=None)

    def sketch(self, key: SketchedKey, hashes: Hashes) -> None:
        """Count arrived rows by the hash of a key."""
        buckets = (hashes >> np.uint64(64 - BUCKETS.bit_length() + 1)).astype(np.int64)
        rows = np.bincount(buckets, minlength=BUCKETS)
        self._sketches[key] = self._sketches[key] + rows if key in self._sketches else rows

    def sketches(self) -> dict[SketchedKey, bytes]:
        return {key: packed(rows) for key, rows in self._sketches.items()}

    def arrived(self, stage: int, store: int, run: Run) -> None:
        """Count rows that were added to a store."""
        self._groups[GroupFigure("arrived", stage=stage, store=store)] += rows_by_group(run, self.partitions)

    def weigh(self, stage: int, stores: Sequence[StoreLayout], held: Iterable[tuple[ExtentRef, Run]]) -> None:
        """Count bytes per store and group, and rows and bytes per store, of the state of a slot in a stage."""
        rows, weights = [0] * len(stores), [0] * len(stores)
        for extent, run in held:
            weight, by_group = weight_of(extent, run, self.partitions)
            rows[extent.store] += extent.rows
            weights[extent.store] += weight
            self._groups[GroupFigure("size", stage=stage, store=extent.store)] += by_group
        for number, layout in enumerate(stores):
            self.count(STATE_ROWS, rows[number], layout.label)
            self.count(STORE_BYTES, weights[number], layout.label)

    def groups(self) -> GroupCounts:
        """The figures that are not zero."""
        found: GroupCounts = {}
        for figure, values in self._groups.items():
            known = np.flatnonzero(values)
            if len(known):
                found[figure] = known.tolist(), values[known].tolist()
        return found


_weighed: dict[tuple[str, int, Groups, int], tuple[int, Ints]] = {}
"""The weights of extents, by segment, run and groups; most extents stay from epoch to epoch."""


def weight_of(extent: ExtentRef, run: Run, partitions: int) -> tuple[int, Ints]:
    """The kept bytes of an extent, whose rows the run holds, in total and by group."""
    place = extent.segment, extent.index, extent.groups, partitions
    found = _weighed.get(place)
    if found is None:
        rows = rows_by_group(run, partitions)
        if len(_weighed) >= WEIGHED_MAX:
            _weighed.clear()
        kept = run.kept_bytes()
        found = _weighed[place] = kept, rows * kept // max(1, run.rows)
    return found


def _sums(groups: Ints, counts: Ints, partitions: int) -> Ints:
    return np.bincount(groups, weights=counts, minlength=partitions).astype(np.int64)


def _sample(joined: Joined) -> tuple[Ints | slice, int]:
    """A sample of the results, chosen by their content, and the weight of each."""
    partials = joined.partials
    if partials.last is None:
        return ALL, 1
    mixed: Hashes = joined.delta.hashes[partials.ranks]
    times = (bound.times[bound.index] for bound in partials.bound.values() if bound.times is not None)
    for more in (partials.last, *times):
        mixed = (mixed ^ more.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return np.flatnonzero((mixed >> np.uint64(40)) % np.uint64(SAMPLE) == 0), SAMPLE
