"""Which groups are cleaned up next (S3): those of the lowest stage that owes results, an interval of groups at a time.

A stage is cleaned up after the stages below it, because their owed results arrive there. The order is the papers'
end-of-clean-up punctuation. Every interval is an epoch, so an interrupted clean-up continues where it was.
"""

from __future__ import annotations

from collections.abc import Container

from watersmeet.epoch.kinds import Clean
from watersmeet.epoch.owing import extents_of_stage, owing_groups
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import Manifest
from watersmeet.state.shares import byte_shares, bytes_of

BYTES_AT_ONCE = 64 << 20
"""The most closed state of a slot that one epoch cleans up, unless a single group has more."""


def cleaning_orders(
    plan: JoinPlan, manifest: Manifest, *, bytes_at_once: int = BYTES_AT_ONCE, kept_slots: Container[int] = ()
) -> tuple[Clean, ...]:
    """The orders of the next epoch of a clean-up; none when nothing is owed. On slots that have room, cleaned-up state
    becomes active again."""
    for stage in range(len(plan.stages)):
        held = [extents_of_stage(plan, manifest, stage, slot) for slot in range(manifest.slots)]
        owing = [owing_groups(extents) for extents in held]
        if any(owing):
            shares = byte_shares(held)
            slots = [slot for slot, groups in enumerate(owing) if groups]
            closed = {slot: {e.segment for e in held[slot] if not e.is_active} for slot in slots}
            sizes = {slot: bytes_of(closed[slot], manifest.segments, shares[slot]) for slot in slots}
            return tuple(
                Clean(stage, slot, *_first(owing[slot], bytes_at_once, sizes[slot]), keep=slot in kept_slots)
                for slot in slots
            )
    return ()


def returning(plan: JoinPlan, manifest: Manifest, slot: int) -> tuple[Clean, ...]:
    """The order to clean up the closed groups of the slot's lowest stage that has any. They become active."""
    for stage in range(len(plan.stages)):
        owned = Groups.of(manifest.placement.owners[plan.key_of_stage(stage)], slot)
        if owned and any(not extent.is_active for extent in extents_of_stage(plan, manifest, stage, slot)):
            return (Clean(stage, slot, owned.low, owned.high, keep=True),)
    return ()


def _first(owing: Groups, bytes_at_once: int, size: int) -> tuple[int, int]:
    """An interval of groups that starts at the first that owes results, of about `bytes_at_once` bytes."""
    groups = owing.numbers()
    last = min(len(groups), max(1, len(groups) * bytes_at_once // max(1, size)))
    return int(groups[0]), int(groups[last - 1]) + 1
