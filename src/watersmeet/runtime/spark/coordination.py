"""The coordinator of a run, as its options say: what spills, and who changes the plan."""

from __future__ import annotations

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.adaptation.memories import Memories
from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.relocation_policies import RelocationSettings
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.plan.stages import JoinPlan
from watersmeet.planning.planner import Planner
from watersmeet.planning.reoptimizing import Reoptimizer
from watersmeet.runtime.spark.options import JoinOptions
from watersmeet.state.manifest import Manifest


def coordinator_of(plan: JoinPlan, planner: Planner, options: JoinOptions, last: Manifest | None) -> Coordinator:
    """`last` is the last manifest of the checkpoint."""
    budget = options.memory_budget_bytes
    wishes = planner.wishes(last, options.rehearse)
    memories = Memories(planner.query)
    reoptimizer = _reoptimizer(plan, planner, options, memories)
    spill, relocator = spill_settings(options), relocator_of(options)
    return Coordinator(plan, options.slots, budget, spill, wishes, reoptimizer, memories, relocator)


def coordinator_of_change(plan: JoinPlan, options: JoinOptions) -> Coordinator:
    """The coordinator of an old query, until its state is that of a new one."""
    return Coordinator(plan, options.slots, options.memory_budget_bytes, spill_settings(options))


def spill_settings(options: JoinOptions) -> SpillSettings | None:
    """What spills, and when; None if nothing does."""
    if options.spill is None or options.memory_budget_bytes is None:
        return None
    return SpillSettings(
        policy=options.spill,
        budget_bytes=options.memory_budget_bytes,
        fraction=options.spill_fraction,
        upkeep=options.spill_upkeep,
    )


def relocator_of(options: JoinOptions) -> Relocator | None:
    """What moves groups between slots; None if they stay."""
    if options.relocation is None or options.slots < 2:
        return None
    return Relocator(
        RelocationSettings(
            policy=options.relocation,
            threshold=options.relocation_threshold,
            interval_s=options.relocation_interval_s,
            bounds=options.relocation_bounds,
            ratio=options.active_disk_ratio,
            limit_bytes=options.active_disk_limit_bytes,
            budget_bytes=options.memory_budget_bytes,
            fraction=options.spill_fraction,
        )
    )


def _reoptimizer(plan: JoinPlan, planner: Planner, options: JoinOptions, memories: Memories) -> Reoptimizer | None:
    """The optimiser of the run; None if there is nothing to choose, or if it is off and the plan was chosen."""
    looks = options.reoptimize
    if len(planner.query.streams) < 3:
        return None
    if looks is None:
        return Reoptimizer(planner, memories, yields=True, once=True) if planner.is_fallback(plan) else None
    return Reoptimizer(
        planner,
        memories,
        interval_s=looks.interval_s,
        asks=options.approval,
        yields=not looks.is_given,
    )
