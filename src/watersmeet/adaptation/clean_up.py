"""Which groups are cleaned up next (S3): the lowest stage that owes something, a range of its groups at a time.

A stage is cleaned up when those below it are, because what they owe arrives there; the order is the papers'
end-of-clean-up punctuation. Every range is an epoch, so a clean-up that is interrupted goes on where it was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from itertools import pairwise

from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import ExtentRef, Manifest, Order

BYTES_AT_ONCE = 64 << 20
"""Closed state of a slot that one epoch cleans up, unless one group has more."""


def owing_ranges(extents: Sequence[ExtentRef]) -> list[tuple[int, int]]:
    """Ranges of groups whose extents are of several generations: what these owe each other is not emitted yet."""
    if all(extent.is_active for extent in extents):
        return []
    changes: dict[int, Counter[int]] = defaultdict(Counter)
    for extent in extents:
        changes[extent.group_low][extent.generation] += 1
        changes[extent.group_high][extent.generation] -= 1
    found: list[tuple[int, int]] = []
    here: Counter[int] = Counter()
    for low, high in pairwise(sorted(changes)):
        here.update(changes[low])
        if sum(extents_here > 0 for extents_here in here.values()) > 1:
            if found and found[-1][1] == low:
                found[-1] = found[-1][0], high
            else:
                found.append((low, high))
    return found


def is_owing(manifest: Manifest) -> bool:
    """Whether results are owed, as far as extents tell."""
    return any(owing_ranges(extents) for stage in manifest.extents for extents in stage)


def cleaning_orders(
    plan: JoinPlan, manifest: Manifest, *, bytes_at_once: int = BYTES_AT_ONCE, kept_slots: Container[int] = ()
) -> tuple[Order, ...]:
    """The orders of the next epoch of a clean-up; none when nothing is owed. What was cleaned up is active again on
    slots that have room for it."""
    for stage in range(len(plan.stages)):
        orders = []
        for slot, extents in enumerate(manifest.extents[stage]):
            if ranges := owing_ranges(extents):
                low, high = ranges[0]
                groups = high - low
                size = sum(manifest.segments[name].bytes for name in {e.segment for e in extents if not e.is_active})
                at_once = max(1, groups * bytes_at_once // max(1, size))
                orders.append(Order(stage, slot, clean=(low, min(high, low + at_once)), keep=slot in kept_slots))
        if orders:
            return tuple(orders)
    return ()


def groups_left(manifest: Manifest) -> int:
    """Partition groups, of all stages, that may owe results."""
    ranges = [r for stage in manifest.extents for extents in stage for r in owing_ranges(extents)]
    return sum(high - low for low, high in ranges)
