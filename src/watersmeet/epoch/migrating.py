"""How a migration changes the state in a manifest, before a build and after it (M1; dissertation 12.1).

A build epoch runs the new plan on the state of the old one. Shared stores keep their extents, which the manifest lists
by store name; the others are built. Afterwards, stores that the new plan does not have are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from watersmeet.epoch.kinds import Build, Cleaning, Epoch, Switch, moves_of
from watersmeet.epoch.relocation import relocated
from watersmeet.plan.buckets import bucket_width_us
from watersmeet.plan.carrying import Carry
from watersmeet.plan.handover import is_handed_over, left_behind
from watersmeet.plan.layout import BUILD, StoreName
from watersmeet.plan.partitioning import even_assignment
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import Built, leaf_stores, pins, store_names
from watersmeet.state.manifest import ExtentRef, Manifest, MigrationState, SlotState, within

T = TypeVar("T")


def ready_to_run(manifest: Manifest, plan: JoinPlan, epoch: Epoch) -> Manifest:
    """The state on which an epoch runs: groups have moved, or what the epoch builds has its place."""
    if isinstance(epoch, Build | Switch):
        return ready_to_build(manifest, plan, epoch)
    return relocated(manifest, plan, moves_of(epoch), epoch.slots if isinstance(epoch, Cleaning) else None)


def ready_to_build(manifest: Manifest, old: JoinPlan, epoch: Build | Switch) -> Manifest:
    """The state of the old plan, prepared for the epoch that leads to a new one: groups of new keys have slots, and
    extents are in the time buckets of their new stages."""
    new, carry = epoch.plan, epoch.rebuild.carry if isinstance(epoch, Build) else None
    if is_handed_over(old) and old.towards is not None and manifest.migration is not None and manifest.migration.fed:
        manifest = without_other_stores(manifest, old.towards)  # other stores have lost groups
    if carry is not None:
        manifest = _carried(manifest, carry)
    owners = dict(manifest.placement.owners)
    for key in _keys(new):
        owners.setdefault(key, even_assignment(new.partitions, manifest.slots))
    extents = tuple(_bucketed(state, _widths(old, s), _widths(new, s)) for s, state in enumerate(manifest.extents))
    return replace(manifest, placement=Placement(manifest.slots, owners), extents=extents)


def _carried(manifest: Manifest, carry: Carry) -> Manifest:
    """The state of another query: stores that are not shared are only read, and streams have new numbers."""

    def of_streams(values: Sequence[T], otherwise: T) -> tuple[T, ...]:
        return tuple(otherwise if old is None else values[old] for old in carry.streams)

    return replace(
        manifest,
        extents=tuple({carry.renamed(name): mine for name, mine in state.items()} for state in manifest.extents),
        times_max_us=of_streams(manifest.times_max_us, None),
        last_seen_ms=of_streams(manifest.last_seen_ms, 0),
    )


def without_other_stores(manifest: Manifest, plan: JoinPlan) -> Manifest:
    """The state without stores and keys that the plan does not have, and without segments that only they need."""
    keys = set(_keys(plan))
    extents = tuple(
        {name: mine for name, mine in state.items() if name in store_names(plan, slot)}
        for slot, state in enumerate(manifest.extents)
    )
    owners = {key: mine for key, mine in manifest.placement.owners.items() if key in keys}
    return _with_extents(replace(manifest, placement=Placement(manifest.slots, owners)), extents)


def fed_up_to(manifest: Manifest, plan: JoinPlan, high: int) -> Manifest:
    """The state after a chunk of a migration: groups below `high` are fed, complete or handed over. In the last case
    they leave the stores that only the old plan has."""
    assert manifest.migration is not None
    extents = manifest.extents
    if is_handed_over(plan):
        extents = tuple(_without_groups(plan, state, slot, high) for slot, state in enumerate(extents))
    return _with_extents(replace(manifest, migration=replace(manifest.migration, fed=high)), extents)


def _without_groups(plan: JoinPlan, state: SlotState, slot: int, high: int) -> SlotState:
    gone = left_behind(plan, slot)
    cut = {name: within(mine, high, plan.partitions) if name in gone else mine for name, mine in state.items()}
    return {name: mine for name, mine in cut.items() if mine}


def _with_extents(manifest: Manifest, extents: tuple[SlotState, ...]) -> Manifest:
    """The state with other extents, and without segments that none of them needs."""
    used = {extent.segment for state in extents for mine in state.values() for extent in mine}
    segments = {name: ref for name, ref in manifest.segments.items() if name in used}
    return replace(manifest, extents=extents, segments=segments)


def switched(manifest: Manifest, epoch: Switch) -> Manifest:
    """The state after an epoch that begins, ends or gives up a migration."""
    plan = epoch.plan
    match epoch.move:
        case "begin":
            going = MigrationState(epoch.strategy, epoch.reason, 0, epoch.asked, _last_expiry(plan, manifest))
            extents = tuple(_pinned(plan, state, slot) for slot, state in enumerate(manifest.extents))
            begun = replace(manifest, extents=extents, migration=going)
            return begun if plan.since is None else without_other_stores(begun, plan)
        case "end":
            if epoch.built is not None:
                extents = tuple(_taken(plan, state, epoch.built, slot) for slot, state in enumerate(manifest.extents))
                manifest = replace(manifest, extents=extents)
            return without_other_stores(replace(manifest, migration=None), plan)
        case "give up":
            return without_other_stores(replace(manifest, migration=None), plan)


def _pinned(plan: JoinPlan, state: SlotState, slot: int) -> SlotState:
    """The state of a slot, with the stores that the migration reads also as they are now."""
    names = {replace_track(layout.name, ""): layout.name for layout in pins(plan, slot)}
    return {**state, **{pin: state[name] for name, pin in names.items() if name in state}}


def _last_expiry(plan: JoinPlan, manifest: Manifest) -> int | None:
    """The watermark at which all rows of now have expired; None if some never do."""
    spans = {stream: layout.span_us for stream, layout in leaf_stores(plan).items()}
    if not plan.windowed or any(span is None for span in spans.values()):
        return None
    times = ((time, spans[stream]) for stream, time in enumerate(manifest.times_max_us) if time is not None)
    return max((time + span for time, span in times if span is not None), default=manifest.watermark_us)


def _taken(plan: JoinPlan, state: SlotState, built: Built, slot: int) -> SlotState:
    """The state of a slot under the new plan: stores that were built beside the running ones, and shared stores."""
    found = {name: mine for name, mine in state.items() if not name.track}
    for stage, by_slot in enumerate(built):
        layouts = plan.layouts(stage, slot)
        for number in by_slot[slot]:
            name = layouts[number].name
            found.pop(name, None)
            if mine := state.get(replace_track(name, BUILD), ()):
                found[name] = mine
    return found


def replace_track(name: StoreName, track: str) -> StoreName:
    return name._replace(track=track)


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
    """Extents of shared stores go into the new bucket in which their old bucket begins. Their rows may reach into the
    next buckets: probes find them there as well, and they expire by their own times."""

    def moved(name: StoreName, extent: ExtentRef) -> ExtentRef:
        before, after = old.get(name), new.get(name)
        if before is None or after is None or before == after:
            return extent
        return replace(extent, bucket=extent.bucket * before // after)

    return {name: tuple(moved(name, extent) for extent in mine) for name, mine in state.items()}
