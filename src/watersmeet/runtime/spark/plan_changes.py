"""Changes of the plan that the handle of a running query is asked for: migrate, give up, approve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.adaptation.coordinator import ASKED_FOR
from watersmeet.adaptation.migration import require_fit, strategy_named
from watersmeet.epoch.goals import Abort, Migrate
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

    def approve(self) -> None:
        reoptimizer = self.driver.coordinator.reoptimizer
        if reoptimizer is None or not reoptimizer.approve():
            raise refusals.nothing_pending()
        if (goal := reoptimizer.wish()) is not None:
            self._carry_out(goal)

    def _carry_out(self, goal: Migrate | Abort) -> None:
        if self.has_ended:
            raise refusals.has_ended("migrated")
        try:
            self.driver.adapt(goal)
        except Stopped:
            raise refusals.ended_meanwhile("migrated", "it goes on by the plan that it has") from None
        if self.driver.state.last is None:  # then there was nothing to do, and the plan is not chosen yet
            raise refusals.nothing_to_migrate()
