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

A row of input i is dead once no row that may still arrive can be within its window: t + W_i <= watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.plan.layout import StoreLayout
from watersmeet.state.run import Run, select_rows

BUCKETS_PER_WINDOW = 8
BUCKET_US_MAX = 1 << 40
UNTIMED_BUCKET = 0
TIER_RATIO = 1.5
MERGE_ROWS_MAX = 1 << 23


def bucket_width_us(stores: Sequence[StoreLayout]) -> int | None:
    """The width of a time bucket; None when no input has a window."""
    windows = [store.window_us for store in stores if store.window_us is not None]
    return min(max(1, max(windows) // BUCKETS_PER_WINDOW), BUCKET_US_MAX) if windows else None


def expired(time_max: int, window_us: int | None, watermark_us: int | None) -> bool:
    """Whether rows up to `time_max` can be part of no future result."""
    return watermark_us is not None and window_us is not None and time_max + window_us <= watermark_us


def closed(bucket: int, width_us: int | None, watermark_us: int | None) -> bool:
    """Whether no row that is not late can still fall into the bucket."""
    return width_us is not None and watermark_us is not None and (bucket + 1) * width_us <= watermark_us


def by_bucket(run: Run, width_us: int | None, window_us: int | None, watermark_us: int | None) -> list[tuple[int, Run]]:
    """The rows of a run that are not dead, one run per time bucket."""
    if width_us is None:
        return [(UNTIMED_BUCKET, run)]
    times = run.times(run.rows_slice())
    buckets = times // np.int64(width_us)
    alive = np.ones(len(times), dtype=np.bool_)
    if watermark_us is not None and window_us is not None:
        alive = times > watermark_us - window_us
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
