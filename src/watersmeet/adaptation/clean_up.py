"""Which groups are cleaned up next (S3): the lowest stage that owes something, an interval of its groups at a time.

A stage is cleaned up when those below it are, because what they owe arrives there; the order is the papers'
end-of-clean-up punctuation. Every interval is an epoch, so a clean-up that is interrupted goes on where it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

import numpy as np

from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import NO_GROUPS, Groups
from watersmeet.state.manifest import ExtentRef, Manifest, Order
from watersmeet.state.shares import byte_shares, bytes_of

BYTES_AT_ONCE = 64 << 20
"""Closed state of a slot that one epoch cleans up, unless one group has more."""


def owing_groups(extents: Sequence[ExtentRef]) -> Groups:
    """Groups whose extents are of several generations: what these owe each other is not emitted yet."""
    if all(extent.is_active for extent in extents):
        return NO_GROUPS
    by_generation: dict[int, set[Groups]] = defaultdict(set)
    for extent in extents:
        by_generation[extent.generation].add(extent.groups)
    size = max(extent.groups.high for extent in extents)
    generations = np.zeros(size, dtype=np.int64)
    for held in by_generation.values():
        generations += np.any([groups.mask(size) for groups in held], axis=0)
    return Groups.where(generations > 1)


def is_owing(manifest: Manifest) -> bool:
    """Whether results are owed, as far as extents tell."""
    return any(owing_groups(extents) for stage in manifest.extents for extents in stage)


def cleaning_orders(
    plan: JoinPlan, manifest: Manifest, *, bytes_at_once: int = BYTES_AT_ONCE, kept_slots: Container[int] = ()
) -> tuple[Order, ...]:
    """The orders of the next epoch of a clean-up; none when nothing is owed. What was cleaned up is active again on
    slots that have room for it."""
    for stage in range(len(plan.stages)):
        held = manifest.extents[stage]
        owing = [owing_groups(extents) for extents in held]
        if any(owing):
            shares = byte_shares(held)
            slots = [slot for slot, groups in enumerate(owing) if groups]
            closed = {slot: {e.segment for e in held[slot] if not e.is_active} for slot in slots}
            sizes = {slot: bytes_of(closed[slot], manifest.segments, shares[slot]) for slot in slots}
            return tuple(
                Order(stage, slot, clean=_first(owing[slot], bytes_at_once, sizes[slot]), keep=slot in kept_slots)
                for slot in slots
            )
    return ()


def _first(owing: Groups, bytes_at_once: int, size: int) -> tuple[int, int]:
    """An interval from the first group that owes, with as many of them as have about so many bytes."""
    groups = owing.numbers()
    last = min(len(groups), max(1, len(groups) * bytes_at_once // max(1, size)))
    return int(groups[0]), int(groups[last - 1]) + 1


def groups_left(manifest: Manifest) -> int:
    """Partition groups, of all stages, that may owe results."""
    return sum(len(owing_groups(extents)) for stage in manifest.extents for extents in stage)
