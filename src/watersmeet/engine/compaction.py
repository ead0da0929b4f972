"""Which layers of state are merged, and which rows are let go: time buckets, tiers and expiry.

A *layer* is what one epoch wrote for one bucket, all inputs together: one segment, or what is to become one.

Rows of a windowed query are kept in *time buckets* about an eighth of the longest window wide, and no run crosses a
bucket: expiry drops whole extents, and a bucket is sorted again only while rows can still come to it.

| bucket                                   | its layers                                                              |
|------------------------------------------|-------------------------------------------------------------------------|
| open (rows may still arrive)             | tiers: a layer joins its newer neighbours while it is not over 1.5 times |
|                                          | as long as they are together, so there are O(log rows)                  |
| closed (its end is before the watermark) | one: merged once, and then never again                                  |
| unwindowed query                         | one bucket, always open                                                 |

No merge makes a layer longer than `MERGE_ROWS_MAX`, which bounds the memory a merge needs.

A row is dead once no row that may still arrive can meet it: its interval (see `engine/mjoin.py`) ends by the watermark,
which for a row of stream i is t + W_i <= watermark. So nothing is let go that something owed could still need.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.plan.layout import StoreLayout
from watersmeet.state.run import Ints, Run, select_rows

BUCKETS_PER_WINDOW = 8
BUCKET_US_MAX = 1 << 40
UNTIMED_BUCKET = 0
TIER_RATIO = 1.5
MERGE_ROWS_MAX = 1 << 23


def bucket_width_us(stores: Sequence[StoreLayout]) -> int | None:
    """The width of a time bucket; None when no input has a window."""
    spans = [store.span_us for store in stores if store.span_us is not None]
    return min(max(1, max(spans) // BUCKETS_PER_WINDOW), BUCKET_US_MAX) if spans else None


def expired(expires_us: int | None, watermark_us: int | None) -> bool:
    """Whether rows that end by `expires_us` can be part of no future result."""
    return watermark_us is not None and expires_us is not None and expires_us <= watermark_us


def closed(bucket: int, width_us: int | None, watermark_us: int | None) -> bool:
    """Whether no row that is not late can still fall into the bucket."""
    return width_us is not None and watermark_us is not None and (bucket + 1) * width_us <= watermark_us


def ends_of(run: Run, layout: StoreLayout) -> Ints | None:
    """When the rows of a run end, in row order: t + W, or what the store says; None if never."""
    rows = run.rows_slice()
    if run.codes is None or layout.span_us is None:
        return None
    if layout.limit is None:
        return run.times(rows) + np.int64(layout.span_us)
    ends: Ints = run.payload.column(layout.limit).slice(rows.start, run.rows).to_numpy()
    return ends


def by_bucket(run: Run, layout: StoreLayout, width_us: int | None, watermark_us: int | None) -> list[tuple[int, Run]]:
    """The rows of a run that are not dead, one run per time bucket."""
    if width_us is None:
        return [(UNTIMED_BUCKET, run)]
    buckets = run.times(run.rows_slice()) // np.int64(width_us)
    alive = np.ones(len(buckets), dtype=np.bool_)
    ends = ends_of(run, layout)
    if watermark_us is not None and ends is not None:
        alive = ends > watermark_us
    parts = [(int(b), select_rows(run, alive & (buckets == b))) for b in np.unique(buckets[alive])]
    return [(bucket, part) for bucket, part in parts if part is not None]


def merge_groups(rows: Sequence[int], *, is_closed: bool, rows_max: int = MERGE_ROWS_MAX) -> list[range]:
    """Cut layers (their lengths, oldest first) into consecutive groups, each of which becomes one layer."""
    groups: list[range] = []
    end = len(rows)
    while end:
        start, total = end - 1, rows[end - 1]
        while start and total + rows[start - 1] <= rows_max and (is_closed or rows[start - 1] <= TIER_RATIO * total):
            start -= 1
            total += rows[start]
        groups.append(range(start, end))
        end = start
    return groups[::-1]
