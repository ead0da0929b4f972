"""A start with another number of slots where slots have stores of their own.

Where all slots have equal stores, the state is placed on other slots at once (`epoch/after.py`). Otherwise it stays on
its slots at first, and the query may run on them. While no migration is under way and before further rows are taken in,
what is owed is emitted there. Then one epoch moves the groups, and receivers make the stores that they lack.
"""

from __future__ import annotations

from watersmeet.adaptation.migration import draining
from watersmeet.epoch.kinds import Cleaning
from watersmeet.epoch.relocation import fitting, moves_between
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest

OTHER_SLOTS = "the run has another number of slots"


def step_to_slots(plan: JoinPlan, last: Manifest, placement: Placement, bytes_at_once: int) -> Cleaning:
    """The next epoch on the way to a placement on another number of slots."""
    moves = moves_between(last.placement, placement)
    if fitting(plan, last, moves) == moves:
        return Cleaning((), OTHER_SLOTS, moves, slots=placement.slots)
    return Cleaning(draining(plan, last, bytes_at_once), OTHER_SLOTS)
