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


def nothing_to_migrate() -> WatersmeetError:
    return WatersmeetError(
        "the query has no state to migrate before its first micro-batch",
        hint="wait for it, or set option('plan', ...) before the start",
        error_class="NOTHING_TO_MIGRATE",
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
