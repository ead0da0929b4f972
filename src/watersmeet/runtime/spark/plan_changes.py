"""Changes of plan and placement that the handle of a running query is asked for: migrate, abort, approve, relocate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.adaptation.coordinator import ASKED_FOR
from watersmeet.adaptation.migration import require_fit, strategy_named
from watersmeet.adaptation.relocating import fixed_because
from watersmeet.epoch.goals import Abort, Asked, Migrate, Relocate
from watersmeet.plan.placement import groups_moved
from watersmeet.planning.planner import Planner
from watersmeet.runtime.spark import refusals
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.outside import Stopped


@dataclass(frozen=True, slots=True)
class PlanChanges:
    """The changes of one query. What cannot be done is refused before anything changes."""

    driver: EpochDriver
    planner: Planner
    going: Mapping[str, Any] | None
    """The current migration, or the last one."""
    has_ended: bool

    def migrate(self, plan: str, strategy: str) -> None:
        goal = Migrate(self.planner.plan_named(plan), strategy_named(strategy), ASKED_FOR)
        if self.going is not None and self.going["phase"] != "done":
            raise refusals.under_way(self.going)
        require_fit(self.driver.plan, goal.plan, goal.strategy, self.driver.coordinator.slots)
        self._carry_out(goal)

    def give_up(self) -> None:
        if self.going is None or self.going["phase"] == "done":
            raise refusals.no_migration()
        self._carry_out(Abort(ASKED_FOR))

    def relocate(self, sender: int, receiver: int, share: float) -> int:
        """The number of groups that change slots."""
        slots = self.driver.coordinator.slots
        for slot in (sender, receiver):
            if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < slots:
                raise refusals.no_such_slot(slot, slots)
        if sender == receiver:
            raise refusals.to_itself(sender)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise refusals.no_share(share)
        with self.driver.gate:
            before = self.driver.state.last
            if before is not None and (why := fixed_because(before)) is not None:
                raise refusals.cannot_relocate(why)
            self._carry_out(Relocate(sender, receiver, share, ASKED_FOR), "relocated", "its groups are where they were")
            after = self.driver.state.last
        moved = 0 if before is None or after is None else groups_moved(before.placement, after.placement)
        if not moved:
            raise refusals.nothing_to_relocate(sender)
        return moved

    def approve(self) -> None:
        reoptimizer = self.driver.coordinator.reoptimizer
        if reoptimizer is None or not reoptimizer.approve():
            raise refusals.nothing_pending()
        if (goal := reoptimizer.wish()) is not None:
            self._carry_out(goal)

    def _carry_out(self, goal: Asked, what: str = "migrated", then: str = "it goes on by the plan that it has") -> None:
        if self.has_ended:
            raise refusals.has_ended(what)
        try:
            self.driver.adapt(goal)
        except Stopped:
            raise refusals.ended_meanwhile(what, then) from None
        if self.driver.state.last is None:  # then there was nothing to do, and the plan is not chosen yet
            raise refusals.no_state_yet(what)
