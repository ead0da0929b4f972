"""Partition groups that owe results: by the manifest, those with extents of several generations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import NO_GROUPS, Groups
from watersmeet.state.manifest import SEVERAL, ExtentRef, Manifest


def owing_groups(extents: Sequence[ExtentRef]) -> Groups:
    """Groups with extents of several generations: results that span generations are not emitted yet."""
    if all(extent.is_active for extent in extents):
        return NO_GROUPS
    by_generation: dict[int, set[Groups]] = defaultdict(set)
    for extent in extents:
        by_generation[extent.generation].add(extent.groups)
    size = max(extent.groups.high for extent in extents)
    generations = np.zeros(size, dtype=np.int64)
    for generation, held in by_generation.items():
        there = np.any([groups.mask(size) for groups in held], axis=0)
        generations += np.where(there, 2 if generation == SEVERAL else 1, 0)
    return Groups.where(generations > 1)


def extents_of_stage(plan: JoinPlan, manifest: Manifest, stage: int, slot: int) -> tuple[ExtentRef, ...]:
    """The extents of a slot in a stage; stores are numbered as in the stage."""
    return manifest.of(slot, [layout.name for layout in plan.layouts(stage, slot)])


def is_owing(plan: JoinPlan, manifest: Manifest) -> bool:
    """Whether results may be owed, by the extents of the manifest."""
    return groups_left(plan, manifest) > 0


def groups_left(plan: JoinPlan, manifest: Manifest) -> int:
    """Partition groups, of all stages, that may owe results."""
    if all(extent.is_active for extent in manifest.all_extents()):
        return 0
    places = ((stage, slot) for stage in range(len(plan.stages)) for slot in range(manifest.slots))
    return sum(len(owing_groups(extents_of_stage(plan, manifest, stage, slot))) for stage, slot in places)
