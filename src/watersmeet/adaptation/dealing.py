"""Clean-up by all slots: groups that owe results are dealt out before a clean-up, by their closed bytes (001, Fig. 12).

Where one slot has spilled most of the state, it alone would do most of the clean-up. A group that is dealt out stays
with its new slot. It owes results, so it goes to a slot with the same stores (`epoch/relocation.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.adaptation.evening import evened
from watersmeet.adaptation.figures import Floats
from watersmeet.adaptation.relocating import fixed_because
from watersmeet.epoch.owing import extents_of_stage, owing_groups
from watersmeet.epoch.relocation import alike_slots
from watersmeet.plan.placement import Move
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest

RATIO_MIN = 1.25
"""The closed bytes of the fullest slot over their mean, below which nothing is dealt out."""


def dealt(plan: JoinPlan, manifest: Manifest, bytes_min: int) -> tuple[Move, ...]:
    """The moves before the next epoch of a clean-up: of groups of the lowest stage that owes results. There are none if
    no slot has `bytes_min` closed bytes: then moves cost more than they save."""
    if manifest.slots < 2 or fixed_because(manifest) is not None:
        return ()
    for stage in range(len(plan.stages)):
        held = [extents_of_stage(plan, manifest, stage, slot) for slot in range(manifest.slots)]
        owing = [owing_groups(extents) for extents in held]
        if any(owing):
            key = plan.key_of_stage(stage)
            size = _closed_bytes(plan, manifest, stage)
            size[~np.any([groups.mask(plan.partitions) for groups in owing], axis=0)] = 0.0
            alike = alike_slots(plan, key, manifest.slots)
            return tuple(move for slots in alike for move in _evened(manifest, key, size, bytes_min, slots))
    return ()


def _evened(manifest: Manifest, key: str, size: Floats, bytes_min: int, slots: Sequence[int]) -> tuple[Move, ...]:
    """Moves of groups among some slots."""
    owners = np.array(manifest.placement.owners[key], dtype=np.int64)
    mine = np.flatnonzero(np.isin(owners, slots))
    places = np.searchsorted(slots, owners[mine])
    by_slot = np.bincount(places, weights=size[mine], minlength=len(slots))
    if by_slot.max() < max(bytes_min, RATIO_MIN * by_slot.mean()):
        return ()
    new = owners.copy()
    new[mine] = np.array(slots)[evened(places, size[mine], size[mine], len(slots))]
    found: dict[tuple[int, int], list[int]] = {}
    for group in np.flatnonzero(new != owners).tolist():
        found.setdefault((int(owners[group]), int(new[group])), []).append(group)
    return tuple(Move(key, *places, tuple(groups)) for places, groups in sorted(found.items()))


def _closed_bytes(plan: JoinPlan, manifest: Manifest, stage: int) -> Floats:
    """The bytes of closed extents by group: an extent's rows are taken to be spread over its groups."""
    found = np.zeros(plan.partitions)
    rows: dict[str, int] = {}
    for extent in manifest.all_extents():
        rows[extent.segment] = rows.get(extent.segment, 0) + extent.rows
    for slot in range(manifest.slots):
        for extent in extents_of_stage(plan, manifest, stage, slot):
            if not extent.is_active:
                size = manifest.segments[extent.segment].bytes * extent.rows / max(1, rows[extent.segment])
                found[extent.groups.numbers()] += size / len(extent.groups)
    return found
