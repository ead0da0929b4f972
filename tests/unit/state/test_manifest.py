"""Manifests: what they say of stores and totals, and how they are dealt out anew without touching a file."""

from dataclasses import replace

import pytest

from watersmeet.plan.layout import StoreName
from watersmeet.plan.placement import Placement, even_placement
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import (
    BEFORE_FIRST_EPOCH,
    ExtentRef,
    Manifest,
    PlanText,
    SegmentRef,
    before_first_epoch,
    placed,
)
from watersmeet.state.measures import Counts

SEGMENT = SegmentRef("000000000004-00-0000-x-0.seg", 1234, 0xDEADBEEF)
KEYS = ("a.k = b.k", "b.l = c.l")
STORES = [StoreName(streams, key, "v int64") for key in KEYS for streams in ("a", "b")]


def manifest(slots: int = 1, partitions: int = 8) -> Manifest:
    """Two stages of two stores each, of which every slot has a run of its own groups."""

    def state(slot: int) -> dict[StoreName, tuple[ExtentRef, ...]]:
        low, high = slot * partitions // slots, (slot + 1) * partitions // slots
        return {
            name: (ExtentRef(SEGMENT.name, i, 0, -1, 10, -2, Groups.between(low, high)),)
            for i, name in enumerate(STORES)
            if low < high
        }

    return Manifest(
        epoch=4,
        batch=7,
        plan=PlanText("((a b) c)", {"(a b)": [[1], [0]]}),
        placement=even_placement(KEYS, partitions, slots),
        watermark_us=-5,
        times_max_us=(None, 12),
        last_seen_ms=(0, 99),
        segments={SEGMENT.name: SEGMENT},
        extents=tuple(state(slot) for slot in range(slots)),
        counters=Counts.named({"rows": 3}),
        gauges={
            "a b by a.k = b.k": Counts.named({"state_rows": 10, "state_rows.a": 10}),
            "groups": Counts.named({"state_rows": 2}),
        },
    )


def covered(value: Manifest) -> list[tuple[StoreName, int, int]]:
    """(store, run, group) of every extent, each as often as it is held."""
    return sorted(
        (name, e.index, g)
        for slot in value.extents
        for name, extents in slot.items()
        for e in extents
        for g in e.groups.numbers()
    )


def require_placed(value: Manifest) -> None:
    """Every extent is of groups that its slot owns under the key of its store."""
    for slot, state in enumerate(value.extents):
        for name, extents in state.items():
            owners = value.placement.owners[name.key]
            assert all(owners[g] == slot for e in extents for g in e.groups.numbers())


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 11])
def test_other_slots_hold_every_group_of_every_run_once(slots):
    before = manifest(slots=2)
    after = placed(before, even_placement(KEYS, 8, slots))
    assert after.slots == len(after.extents) == slots
    assert covered(after) == covered(before)
    require_placed(after)


def test_there_and_back_holds_the_same():
    before = manifest(slots=3)
    again = before
    for slots in (7, 1, 3):
        again = placed(again, even_placement(KEYS, 8, slots))
    assert covered(again) == covered(before)
    assert again.placement == before.placement


def test_the_same_placement_changes_nothing():
    before = manifest(slots=2)
    assert placed(before, even_placement(KEYS, 8, 2)) is before


def test_groups_that_were_moved_one_by_one_are_dealt_out_too():
    scattered = placed(manifest(slots=2), Placement(2, dict.fromkeys(KEYS, (0, 1) * 4)))
    assert covered(scattered) == covered(manifest(slots=2))
    require_placed(scattered)
    assert covered(placed(scattered, even_placement(KEYS, 8, 3))) == covered(scattered)


def test_a_store_lies_where_its_own_key_says():
    moved = Placement(2, {KEYS[0]: (0,) * 8, KEYS[1]: (1,) * 8})
    after = placed(manifest(slots=2), moved)
    assert [{name.key for name in state} for state in after.extents] == [{KEYS[0]}, {KEYS[1]}]
    assert covered(after) == covered(manifest(slots=2))


def test_stores_are_numbered_in_the_order_asked_for():
    value = manifest(slots=2)
    unknown = StoreName("c", KEYS[0], "v int64")
    found = value.of(1, [STORES[3], unknown, STORES[0]])
    assert [(extent.store, extent.index) for extent in found] == [(0, 3), (2, 0)]


def test_totals_are_counters_and_the_gauges_of_all_stages_together():
    assert manifest().totals.by_name() == {"rows": 3, "state_rows": 12, "state_rows.a": 10}


def test_before_the_first_epoch_there_is_nothing():
    value = before_first_epoch(PlanText("(a b)"), 2, KEYS, 8, 3)
    assert (value.epoch, value.watermark_us, dict(value.segments)) == (BEFORE_FIRST_EPOCH, None, {})
    assert value.extents == ({}, {}, {})
    assert value.totals.by_name() == {}
    assert not value.outbox.shows
    assert list(value.all_extents()) == []
    assert replace(value, epoch=0).slots == 3
