"""A start with another number of slots where slots have stores of their own.

Where all slots have equal stores, the state is placed on other slots at once (`epoch/after.py`). Otherwise it stays on
its slots at first, and the query may run on them. While no migration is under way and before further rows are taken in,
what is owed is emitted there. Then one epoch moves the groups, and receivers make the stores that they lack.
"""

from __future__ import annotations

from watersmeet.adaptation.migration import draining
from watersmeet.epoch.kinds import Cleaning
from watersmeet.epoch.relocation import fitting, to_slots
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest

OTHER_SLOTS = "the run has another number of slots"


def step_to_slots(plan: JoinPlan, last: Manifest, slots: int, bytes_at_once: int) -> Cleaning:
    """The next epoch on the way to a number of slots that the state does not have."""
    moves = to_slots(plan, last, slots)
    if fitting(plan, last, moves) == moves:
        return Cleaning((), OTHER_SLOTS, moves, slots=slots)
    return Cleaning(draining(plan, last, bytes_at_once), OTHER_SLOTS)
