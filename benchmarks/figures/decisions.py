"""What the global policies were told when they decided, and what they chose: why the penalty helps or not.

For both policies on one seed of each ratio, over all decisions at run time:

| figure         | what it is                                                                                        |
|----------------|---------------------------------------------------------------------------------------------------|
| inter counted  | P_inter of all groups of Join1, in bytes: what their results take where they are stored            |
| inter held     | bytes of results of Join1 and Join2 that are in memory: what the groups of Join1 could still free  |
| inputs held    | bytes of rows of A, B and C; of D; of E                                                           |
| chosen         | groups per decision, by join, of the 150 that a slot has of each                                  |
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks.figures import s5_five_streams as s5
from benchmarks.figures.running import Setting, Trace, policy_of, run
from benchmarks.figures.streams import Workload
from watersmeet.adaptation.figures import Floats, GroupFigures
from watersmeet.adaptation.spill_policies import choose

JOINS = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Decision:
    inter_counted_bytes: float
    inter_held_bytes: float
    inputs_held_bytes: tuple[float, ...]
    chosen: tuple[int, ...]


class Witness:
    """A policy that notes what it is told, and decides as another does."""

    def __init__(self, policy: str, fraction: float) -> None:
        self.policy, self.fraction = policy_of(policy), fraction
        self.seen: list[Decision] = []

    def __call__(self, figures: GroupFigures) -> Floats:
        scores = np.asarray(self.policy(figures), dtype=np.float64)
        gone = figures.stage[choose(figures, self.policy, self.fraction * float(figures.size.sum()))]
        by_store = [np.nansum(figures.sizes[figures.stage == join], axis=0) for join in JOINS]
        self.seen.append(
            Decision(
                float(figures.inter[figures.stage == 0].sum()),
                float(by_store[1][0] + by_store[2][0]),  # the results of the join below are the first input
                (float(by_store[0].sum()), float(by_store[1][1]), float(by_store[2][1])),
                tuple(int(np.count_nonzero(gone == join)) for join in JOINS),
            )
        )
        return scores


def evidence(seed: int) -> list[dict[str, Any]]:
    """A row per ratios and policy."""
    found = []
    for ratios in s5.RATIOS:
        workload = s5.workload(ratios, seed)
        for policy in (s5.GLOBAL, s5.PENALTY):
            trace, seen = _witnessed(workload, s5.setting(policy))
            found.append({"workload": ratios, "policy": policy, "spills": trace.spills, **_summary(seen)})
    return found


def _witnessed(workload: Workload, setting: Setting) -> tuple[Trace, list[Decision]]:
    assert setting.policy is not None
    witness = Witness(setting.policy, setting.fraction)
    trace = run(workload, setting, policy=witness)
    return trace, witness.seen[: trace.spills]  # afterwards it is asked during clean-up, and not heeded


def _summary(seen: list[Decision]) -> dict[str, Any]:
    late = seen[len(seen) // 2 :]
    return {
        "inter_counted_over_held": round(median(d.inter_counted_bytes / d.inter_held_bytes for d in late), 2),
        "inter_held_mb": round(fmean(d.inter_held_bytes for d in late) / 1e6, 2),
        "inputs_held_mb": [round(fmean(d.inputs_held_bytes[join] for d in late) / 1e6, 2) for join in JOINS],
        "groups_chosen": [round(fmean(d.chosen[join] for d in late)) for join in JOINS],
    }


def print_evidence(rows: list[dict[str, Any]]) -> None:
    print("\nthe later half of decisions, one slot of two; by Join1, Join2, Join3")
    print(f"{'ratios':<8}{'policy':<24}{'P_inter / held':>15}{'held MB':>9}  {'inputs MB':<20}groups chosen of 150")
    for row in rows:
        figures = f"{row['inter_counted_over_held']:>15}{row['inter_held_mb']:>9}  {row['inputs_held_mb']!s:<20}"
        print(f"{row['workload']:<8}{row['policy']:<24}{figures}{row['groups_chosen']}")
