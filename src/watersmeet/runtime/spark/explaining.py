"""The text of `query.explain`: the query, its plan, and other plans as the running query sees them."""

from __future__ import annotations

from watersmeet.observe.explain import explain_text
from watersmeet.observe.measured import measured
from watersmeet.planning.planner import FALLBACK, NOTHING_SEEN, Planner
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.join_progress import KeptProgress


def explained(planner: Planner, driver: EpochDriver, kept: KeptProgress, mode: str | None) -> str:
    """The query and its plan, with candidate plans ("cost") or the stores of another plan ("diff")."""
    query, plan, epochs = planner.query, driver.plan, list(kept.epochs)
    parts = [explain_text(query, plan, kept.resting.slots, epochs[-1] if epochs else None)]
    if planner.is_fallback(plan) and driver.coordinator.is_fallback:
        parts.append(FALLBACK)
    if mode == "cost":
        known = measured(query, plan, epochs) if epochs else NOTHING_SEEN
        parts.append(f"\n{planner.costs_text(known, running=plan.trees[0])}")
    if mode == "diff":
        parts.append(f"\n{planner.diff_text(plan, driver.coordinator.better_plan, kept.migrated)}")
    return "\n".join(parts)
