"""Which partition groups owe results: those with extents of several generations, as far as a manifest tells."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import ExtentRef, Manifest


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


def extents_of_stage(plan: JoinPlan, manifest: Manifest, stage: int, slot: int) -> tuple[ExtentRef, ...]:
    """What a slot has in a stage; stores are numbered as in the stage."""
    return manifest.of(slot, [layout.name for layout in plan.layouts(stage, slot)])


def is_owing(plan: JoinPlan, manifest: Manifest) -> bool:
    """Whether results are owed, as far as extents tell."""
    return groups_left(plan, manifest) > 0


def groups_left(plan: JoinPlan, manifest: Manifest) -> int:
    """Partition groups, of all stages, that may owe results."""
    return sum(high - low for low, high in _all_ranges(plan, manifest))


def _all_ranges(plan: JoinPlan, manifest: Manifest) -> Iterable[tuple[int, int]]:
    if all(extent.is_active for extent in manifest.all_extents()):
        return
    for stage in range(len(plan.stages)):
        for slot in range(manifest.slots):
            yield from owing_ranges(extents_of_stage(plan, manifest, stage, slot))
