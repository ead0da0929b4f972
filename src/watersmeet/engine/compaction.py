"""Which layers of state are merged, and which rows are dropped: time buckets, tiers, shares of work, and expiry.

A *layer* is the rows that one epoch wrote for one bucket, all inputs together: one segment, or a future one.

Rows of a windowed query are kept in *time buckets* about an eighth of the longest window wide, and no run crosses a
bucket: expiry drops whole extents, and a bucket is sorted again only while rows can still arrive for it. A chunk of a
migration has rows of every bucket, so two of them share a file. Arriving rows wait for a chunk, so its epoch merges
nothing.

A merge has a *fan-in*: it waits for some layers of similar length. One more layer costs every probe a little (see
`state/sieve.py`). To write a row once more costs a fifth of its arrival. A higher fan-in makes the first epochs of a
query cheaper, but not the epochs of a large state.
An epoch merges about its *allowance* of rows: a minimum plus some for every row that arrived, or a part of the state.
A wide row counts as several, one for every `row_bytes`. If the allowance could still exceed `MERGE_BYTES_MAX` bytes,
more rows count as several. So merges are bounded by bytes; those of narrow rows are bounded by rows alone.
Layers of up to half an allowance are merged whole. Larger ones are merged range by range of partition groups: the
merged range becomes a layer of its own, a *piece*, and the extents of its members are cut. A slot does one such *share*
of the work in one of `share_every` epochs (which one depends on the slot), or at once where four times `fan_in` layers
overlap. Where small layers are together longer than what arrives (`small_max`), a closed bucket is merged store by
store, in several epochs, and one that will close waits for that. So no epoch merges much.

| bucket                            | small layers, whole                       | large layers, range by range     |
|-----------------------------------|-------------------------------------------|----------------------------------|
| open (rows may still arrive)      | where `small_fan_in` of them are similar: | where `fan_in` of them overlap   |
|                                   | the longest is at most `tier_ratio` times | that are similar in this sense   |
|                                   | as long as all shorter ones together      |                                  |
| closed (it ends by the watermark) | all that have a store in common           | all, wherever two overlap        |
| unwindowed query                  | one bucket, always open                   |                                  |

The lengths of unmerged layers grow geometrically, so a key lies in O(log rows) layers, and a row is written O(log rows)
times. The slot's groups are divided into at most `cells` ranges, the *cells*. A cell may hold more than the allowance:
one hot key does, and without a key one cell has all rows. Up to `CELL_ALLOWANCES` allowances of a cell are merged at
once (and `MERGE_ROWS_MAX` rows). A layer with more than half of that in a cell is never merged there. There are at most
2 * `share_of_state` / `CELL_ALLOWANCES` such layers, 16, because an allowance is a part of the state; or, if these are
more, one for every half of `MERGE_ROWS_MAX` and of `MERGE_BYTES_MAX`.

A row is dead once it can join no future row: its interval (see `engine/mjoin.py`) ends by the watermark, which for a
row of stream i is t + W_i <= watermark. So no row is dropped that an owed result still needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.plan.layout import StoreLayout
from watersmeet.state.moments import last_moments, last_of_limits
from watersmeet.state.run import Ints, Mask, Run, select_rows, take

BUCKETS_AT_ONCE = 32
"""The most buckets for the rows of one run. A batch may span many more: the first may contain all history."""
UNTIMED_BUCKET = 0
MERGE_ROWS_MAX = 1 << 23
MERGE_BYTES_MAX = 1 << 30
CELL_ALLOWANCES = 4
SAMPLE_ROWS = 1 << 12


@dataclass(frozen=True, slots=True)
class Merging:
    """How much merging an epoch may do."""

    rows_per_arrived: int = 9
    share_of_state: int = 32
    rows_min: int = 60_000
    row_bytes: int = 1 << 10
    """A row of more bytes counts as several."""
    fan_in: int = 4
    cells: int = 32
    share_every: int = 5
    """No common factor with `small_fan_in`, so that a share and a merge of small layers are seldom in one epoch."""
    small_fan_in: int = 3
    small_rows_min: int = 60_000
    small_per_arrived: float = 1.25
    small_wait: int = 3
    """Of closed buckets at least one part in so many is merged in an epoch, ..."""
    backlog_ratio: float = 1.5
    """... up to so many times `small_max`. More wait only after many buckets closed at once, as after a migration."""
    long_fan_in: int = 5
    """Of small layers that together are longer than that, in a bucket that will close."""
    tier_ratio: float = 1.0
    lost_max: float = 0.25
    """A layer is written again when this share of the rows in its file belongs to other slots."""

    def allowance(self, arrived: int, held: int) -> int:
        """Rows that an epoch may merge, given the rows that arrived and are held. It also bounds a merge's memory."""
        return min(max(self.rows_min + self.rows_per_arrived * arrived, held // self.share_of_state), MERGE_ROWS_MAX)

    def small_max(self, arrived: int) -> int:
        """The rows of small layers that an epoch may merge where they can wait: few more than arrive."""
        return max(self.small_rows_min, int(self.small_per_arrived * arrived))

    def bounded(self, rows_max: int) -> Lengths:
        """How layers are measured so that a merge of `rows_max` rows has at most `MERGE_BYTES_MAX` bytes."""
        return Lengths(min(self.row_bytes, MERGE_BYTES_MAX // rows_max))

    @property
    def narrow_bytes(self) -> int:
        """Rows of at most this many bytes count once, in a merge of any size."""
        return min(self.row_bytes, MERGE_BYTES_MAX // MERGE_ROWS_MAX)

    def cell_max(self, allowance: int) -> int:
        """The most rows of one cell that are merged at once."""
        return min(CELL_ALLOWANCES * allowance, MERGE_ROWS_MAX)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How layers are measured: in rows, where a wide row counts as several."""

    row_bytes: float

    def of(self, rows: int, size: int) -> int:
        """The length of a number of rows of a total size."""
        return max(rows, math.ceil(size / self.row_bytes))


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a large merge: the layers `members`, in the cells [first, last)."""

    members: tuple[int, ...]
    first: int
    last: int
    rows: int


def closed(bucket: int, width_us: int | None, watermark_us: int | None) -> bool:
    """Whether only late rows can still fall into the bucket."""
    return width_us is not None and watermark_us is not None and (bucket + 1) * width_us <= watermark_us


def last_of(run: Run, layout: StoreLayout) -> Ints | None:
    """The last moments of the rows of a run, in row order: t + W - 1, or the store's limit; None if rows never end."""
    rows = run.rows_slice()
    if run.codes is None or layout.span_us is None:
        return None
    if layout.limit is None:
        return last_moments(run.times(rows), layout.span_us)
    return last_of_limits(run.payload.column(layout.limit).slice(rows.start, run.rows).to_numpy())


def share_alive(run: Run, layout: StoreLayout, watermark_us: int | None) -> float:
    """The share of a run's rows that have not ended; estimated from a sample, if some may have."""
    if watermark_us is None or layout.span_us is None or run.codes is None:
        return 1.0
    if run.time_min + (layout.span_us if layout.limit is None else 0) > watermark_us:
        return 1.0
    rows = np.arange(*run.rows_slice().indices(len(run.codes))[:2], 1 + run.rows // SAMPLE_ROWS)
    if layout.limit is None:
        last = last_moments(run.times(rows), layout.span_us)
    else:
        last = last_of_limits(take(run.payload.column(layout.limit), rows).to_numpy())
    return float(np.mean(last >= watermark_us))


def by_bucket(
    run: Run, layout: StoreLayout, width_us: int | None, watermark_us: int | None, *, in_pairs: bool = False
) -> list[tuple[int, Run]]:
    """The live rows of a run, one run per time bucket. If there are too many buckets, the earliest rows go to a later
    bucket: probes find them there, and they expire there. `in_pairs`: one of two buckets goes to the next one."""
    if width_us is None:
        return [(UNTIMED_BUCKET, run)]
    alive = np.ones(run.rows, dtype=np.bool_)
    if watermark_us is not None and (last := last_of(run, layout)) is not None:
        alive = last >= watermark_us
    newest = run.time_max // width_us
    if run.time_min // width_us == newest:
        kept = select_rows(run, alive)
        return [] if kept is None else [(newest, kept)]
    buckets = run.times(run.rows_slice()) // np.int64(width_us)
    if in_pairs:
        buckets = np.minimum(buckets | 1, newest)
    distinct = np.unique(buckets[alive])[-BUCKETS_AT_ONCE:]
    if len(distinct):
        buckets = np.maximum(buckets, distinct[0])
    parts = [(int(b), select_rows(run, alive & (buckets == b))) for b in distinct]
    return [(bucket, part) for bucket, part in parts if part is not None]


def merge_groups(rows: Sequence[int], merging: Merging, *, is_closed: bool, rows_max: int) -> list[list[int]]:
    """Groups of small layers (given their lengths). Each group becomes one layer; other layers stay.

    No group, if fewer than `small_fan_in` (in a closed bucket: two) layers are similar.
    """
    ratio = np.inf if is_closed else merging.tier_ratio
    members = np.flatnonzero(_similar(np.array(rows, dtype=np.int64)[:, None], ratio))
    if len(members) < (2 if is_closed else merging.small_fan_in):
        return []
    groups: list[list[int]] = [[]]
    total = 0
    for i in map(int, members):
        if groups[-1] and total + rows[i] > rows_max:
            groups.append([])
            total = 0
        groups[-1].append(i)
        total += rows[i]
    return [group for group in groups if len(group) > 1]


def stores_to_merge(rows: Ints, rows_max: int, *, is_first: bool) -> list[int]:
    """The stores to merge now, given the length of every small layer (first axis) in every store: of those with rows in
    several layers as many as fit into `rows_max`, the longest first. The first merge of an epoch takes one at least."""
    lengths = rows.sum(axis=0)
    chosen: list[int] = []
    left = rows_max
    for store in np.argsort(-lengths, kind="stable").tolist():
        if np.count_nonzero(rows[:, store]) > 1 and (lengths[store] <= left or (is_first and not chosen)):
            chosen.append(store)
            left -= lengths[store]
    return chosen


def next_share(rows: Ints, *, ratio: float, fan_in: int, rows_max: int, cell_max: int = MERGE_ROWS_MAX) -> Share | None:
    """The large layers to merge next and their cells, given the rows of every layer (first axis) in every cell.

    None, if fewer than `fan_in` similar layers overlap: none is longer than `ratio` times all shorter ones together.

    The share is the first cell with `fan_in` such layers, and the next cells with the same layers, up to `rows_max`
    rows. So a merge moves up through the groups and leaves few cuts. In the first cell, up to `cell_max` rows of the
    shortest layers are merged. Layers with more than half of that in a cell are not merged there.
    """
    members = _similar(np.where(2 * rows > cell_max, 0, rows), ratio)
    deep = members.sum(axis=0) >= fan_in
    if not deep.any():
        return None
    first = int(deep.argmax())
    alike = (members[:, first:] == members[:, first : first + 1]).all(axis=0)
    width = len(alike) if alike.all() else int(alike.argmin())
    chosen = np.flatnonzero(members[:, first])
    if rows[chosen, first].sum() > cell_max:
        shortest = chosen[np.argsort(rows[chosen, first], kind="stable")]
        fitting = int(np.searchsorted(np.cumsum(rows[shortest, first]), cell_max, side="right"))
        chosen, width = np.sort(shortest[:fitting]), 1
    totals = np.cumsum(rows[chosen, first : first + width].sum(axis=0))
    fitting = max(1, int(np.searchsorted(totals, rows_max, side="right")))
    return Share(tuple(map(int, chosen)), first, first + fitting, int(totals[fitting - 1]))


def _similar(rows: Ints, ratio: float) -> Mask:
    """Per cell: the longest layer that is at most `ratio` times as long as all shorter ones together, and these."""
    order = np.argsort(rows, axis=0, kind="stable")
    lengths = np.take_along_axis(rows, order, axis=0)
    shorter = np.cumsum(lengths, axis=0) - lengths
    joins = (shorter > 0) & (lengths <= ratio * np.maximum(shorter, 1))
    upwards = np.logical_or.accumulate(joins[::-1], axis=0)[::-1]
    members = np.zeros(rows.shape, dtype=np.bool_)
    np.put_along_axis(members, order, upwards & (lengths > 0), axis=0)
    return members
