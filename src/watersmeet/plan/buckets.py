"""Time buckets: a stage keeps the rows of a windowed query in ranges of event time about an eighth of a window wide."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.plan.layout import StoreLayout

BUCKETS_PER_WINDOW = 8
BUCKET_US_MAX = 1 << 40


def bucket_width_us(stores: Sequence[StoreLayout]) -> int | None:
    """The width of a time bucket of a stage with these stores; None when no input has a window."""
    spans = [store.span_us for store in stores if store.span_us is not None]
    return min(max(1, max(spans) // BUCKETS_PER_WINDOW), BUCKET_US_MAX) if spans else None
