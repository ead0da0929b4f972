"""What a migration does to the state as a manifest has it: before a build, and after it (M1; dissertation 12.1).

A build epoch runs the new plan on the state of the old one. Shared stores keep their extents, which are in the
manifest by name; the others are built. After it, nothing is left of stores that the new plan does not have.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.plan.buckets import bucket_width_us
from watersmeet.plan.layout import StoreName
from watersmeet.plan.partitioning import even_assignment
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import store_names
from watersmeet.state.manifest import ExtentRef, Manifest, SlotState


def ready_to_build(manifest: Manifest, old: JoinPlan, new: JoinPlan) -> Manifest:
    """The state of the old plan as the build of the new one finds it: groups of keys that are new have slots, and
    extents lie in the time buckets of their new stages."""
    owners = dict(manifest.placement.owners)
    for key in _keys(new):
        owners.setdefault(key, even_assignment(new.partitions, manifest.slots))
    extents = tuple(_bucketed(state, _widths(old, s), _widths(new, s)) for s, state in enumerate(manifest.extents))
    return replace(manifest, placement=Placement(manifest.slots, owners), extents=extents)


def without_other_stores(manifest: Manifest, plan: JoinPlan) -> Manifest:
    """The state without stores and keys that the plan does not have; files that only they need go with them."""
    keys = set(_keys(plan))
    extents = tuple(
        {name: mine for name, mine in state.items() if name in store_names(plan, slot)}
        for slot, state in enumerate(manifest.extents)
    )
    used = {extent.segment for state in extents for mine in state.values() for extent in mine}
    owners = {key: mine for key, mine in manifest.placement.owners.items() if key in keys}
    return replace(
        manifest,
        placement=Placement(manifest.slots, owners),
        extents=extents,
        segments={name: ref for name, ref in manifest.segments.items() if name in used},
    )


def _keys(plan: JoinPlan) -> list[str]:
    return [plan.key_of_stage(stage) for stage in range(plan.stage_count)]


def _widths(plan: JoinPlan, slot: int) -> dict[StoreName, int | None]:
    """The width of the time buckets of every store."""
    found: dict[StoreName, int | None] = {}
    for stage in range(len(plan.stages)):
        layouts = plan.layouts(stage, slot)
        found |= dict.fromkeys((layout.name for layout in layouts), bucket_width_us(layouts))
    return found


def _bucketed(state: SlotState, old: dict[StoreName, int | None], new: dict[StoreName, int | None]) -> SlotState:
    """Extents of shared stores go into the bucket of the new width that theirs begins in. Their rows may reach into
    the next ones: they are found there as well, and expire by their own times."""

    def moved(name: StoreName, extent: ExtentRef) -> ExtentRef:
        before, after = old.get(name), new.get(name)
        if before is None or after is None or before == after:
            return extent
        return replace(extent, bucket=extent.bucket * before // after)

    return {name: tuple(moved(name, extent) for extent in mine) for name, mine in state.items()}
