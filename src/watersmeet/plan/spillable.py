"""Which state may leave memory with its results owed (spill), and why other state may not.

| state                                        | spills | because                                                      |
|----------------------------------------------|--------|--------------------------------------------------------------|
| of nodes that share a key                    | yes    | its partition groups can be closed one by one                |
| of a join with intervals (`confidence`)      | no     | intervals need every result of the rows that have arrived    |
| of a node without a key                      | no     | it is a single partition group                               |
| of a node over several keys (`plan/hops.py`) | no     | its partition groups differ from hop to hop                  |
| that a migration builds                      | no     | only the running plan can owe results                        |
| that a migration replaces, or completes      | no     | what its groups owe would not be known                       |
| of an aggregation                            | no     | new results must find the accumulators of their group        |

State that does not spill and exceeds the budget stays active on disk.
"""

from __future__ import annotations

from watersmeet.plan.handover import is_handed_over
from watersmeet.plan.stages import JoinPlan

INTERVALS = "intervals are wrong while results are owed"


def kept_because(plan: JoinPlan, stage: int) -> str | None:
    """Why the state of a stage does not spill; None if it does."""
    if stage == len(plan.stages):
        return "new results must find the accumulators of their group"
    if plan.aggregate is not None and plan.aggregate.confidence is not None:
        return INTERVALS
    if plan.stages[stage].is_built:
        return "what a migration builds owes nothing"
    if plan.stages[stage].is_marked or plan.since is not None or is_handed_over(plan):
        return "a migration that is under way needs it"
    if plan.stages[stage].hops:
        return "a node over several keys has no partition groups"
    if not plan.stages[stage].key:
        return "a node without a key is a single partition group"
    return None


def can_spill(plan: JoinPlan, stage: int) -> bool:
    return kept_because(plan, stage) is None


def spillable_stages(plan: JoinPlan) -> list[int]:
    return [stage for stage in range(plan.stage_count) if can_spill(plan, stage)]
