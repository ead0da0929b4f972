"""Which groups are cleaned up next (S3): the lowest stage that owes something, a range of its groups at a time.

A stage is cleaned up when those below it are, because what they owe arrives there; the order is the papers'
end-of-clean-up punctuation. Every range is an epoch, so a clean-up that is interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Container

from watersmeet.epoch.kinds import Clean
from watersmeet.epoch.owing import extents_of_stage, owing_ranges
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest

BYTES_AT_ONCE = 64 << 20
"""Closed state of a slot that one epoch cleans up, unless one group has more."""


def cleaning_orders(
    plan: JoinPlan, manifest: Manifest, *, bytes_at_once: int = BYTES_AT_ONCE, kept_slots: Container[int] = ()
) -> tuple[Clean, ...]:
    """The orders of the next epoch of a clean-up; none when nothing is owed. What was cleaned up is active again on
    slots that have room for it."""
    for stage in range(len(plan.stages)):
        orders = []
        for slot in range(manifest.slots):
            extents = extents_of_stage(plan, manifest, stage, slot)
            if ranges := owing_ranges(extents):
                low, high = ranges[0]
                groups = high - low
                size = sum(manifest.segments[name].bytes for name in {e.segment for e in extents if not e.is_active})
                at_once = max(1, groups * bytes_at_once // max(1, size))
                orders.append(Clean(stage, slot, low, min(high, low + at_once), keep=slot in kept_slots))
        if orders:
            return tuple(orders)
    return ()
