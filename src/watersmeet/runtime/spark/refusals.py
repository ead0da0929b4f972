"""Why a running query refuses what its handle is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.errors import WatersmeetError


def under_way(going: Mapping[str, Any]) -> WatersmeetError:
    return WatersmeetError(
        f"a migration to {going['plan']} is under way",
        hint="wait until query.migration['phase'] is 'done', or give it up with query.abortMigration()",
        error_class="MIGRATION_UNDER_WAY",
    )


def no_migration() -> WatersmeetError:
    return WatersmeetError("no migration is under way", hint="query.migration says what is", error_class="NO_MIGRATION")


def nothing_pending() -> WatersmeetError:
    return WatersmeetError(
        "nothing waits for approval",
        hint="query.pending says what does; with option('approval', 'ask') the optimiser asks",
        error_class="NOTHING_TO_APPROVE",
    )


def no_state_yet(what: str) -> WatersmeetError:
    return WatersmeetError(
        f"the query has no state before its first micro-batch and cannot be {what}",
        hint="wait for it; the first plan is option('plan', ...)",
        error_class="NO_STATE_YET",
    )


def no_such_slot(slot: object, slots: int) -> WatersmeetError:
    return WatersmeetError(
        f"there is no slot {slot!r}, only 0 to {slots - 1}" if slots > 1 else f"there is no slot {slot!r}, only slot 0",
        hint="the number of slots is option('slots', ...); it may change at a restart",
        error_class="NO_SUCH_SLOT",
    )


def to_itself(slot: int) -> WatersmeetError:
    return WatersmeetError(
        f"slot {slot} cannot give groups to itself",
        hint="write query.relocate(from, to, share), such as query.relocate(0, 1, 0.5)",
        error_class="INVALID_RELOCATION",
    )


def no_share(share: object) -> WatersmeetError:
    return WatersmeetError(
        f"a slot gives away a share of its bytes, more than 0 and at most 1, not {share!r}",
        hint="query.relocate(0, 1, 0.5) moves half of what slot 0 has in use",
        error_class="INVALID_RELOCATION",
    )


def cannot_relocate(why: str) -> WatersmeetError:
    return WatersmeetError(
        f"no group can change slots now: {why}",
        hint="query.migration says what is under way; query.explain() shows the plans of slots",
        error_class="CANNOT_RELOCATE",
    )


def nothing_to_relocate(slot: int) -> WatersmeetError:
    return WatersmeetError(
        f"slot {slot} has no state in use that could move",
        hint="query.partitionGroups() shows groups and bytes; those that owe results stay with slots of one tree",
        error_class="NOTHING_TO_RELOCATE",
    )


def has_ended(what: str) -> WatersmeetError:
    return WatersmeetError(
        f"the query has ended and cannot be {what}", hint="start it again; a finite one cleans up before it ends"
    )


def ended_meanwhile(what: str, then: str) -> WatersmeetError:
    return WatersmeetError(f"the query ended while it was {what}", hint=f"start it again: {then}")


def waits_for_approval(what: str) -> WatersmeetError:
    return WatersmeetError(
        f"the query waits for the approval of its change and cannot be {what}",
        hint="approve it with query.approve(), or stop it: then the checkpoint stays as it is",
        error_class="CHANGE_NOT_APPROVED",
    )


def nothing_to_change() -> WatersmeetError:
    return WatersmeetError(
        "the query is the same, so there is nothing to change",
        hint="to change only its tree, use query.migrate(plan)",
        error_class="NOTHING_TO_CHANGE",
    )


def no_lasting_checkpoint() -> WatersmeetError:
    return WatersmeetError(
        "the query has a temporary checkpoint, which ends with it",
        hint="start it with a checkpointLocation; then it can be changed",
        error_class="NOTHING_TO_CHANGE",
    )


def not_a_join(given: object) -> WatersmeetError:
    return WatersmeetError(
        f"change takes a StreamJoin, not {type(given).__name__}",
        hint="write query.change(join.where('a.v > 10'))",
        error_class="INVALID_ARGUMENT",
    )
