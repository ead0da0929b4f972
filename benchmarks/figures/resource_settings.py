"""Figures 8.2 to 8.9 of the dissertation (O7; Zhu 2006, 8.1): plans where CPU, memory, both or neither are short.

    python -m benchmarks.figures.resource_settings [--jobs 2]

| set | short        | the claims                                                                        | figures  |
|-----|--------------|-----------------------------------------------------------------------------------|----------|
| 1   | neither      | mjoin and bjtree: equal throughput, empty queues; bjtree has much more state      | 8.2, 8.3 |
| 2   | CPU          | bjtree: more than twice the throughput of the mjoin, whose queues grow            | 8.4, 8.5 |
| 3   | memory       | equal throughput until the bjtree has no memory left; the mjoin stays within it   | 8.6, 8.7 |
| 4   | both         | only a hybrid is within both budgets: faster than the mjoin, and slower than the  | 8.8, 8.9 |
|     |              | bjtree, which soon has no memory left                                             |          |

Rates, selectivities and windows are those of Table 8.1. As there, the CPU budget is the same in all sets, and the
memory of sets 3 and 4 a tenth of that of sets 1 and 2. Plans are chosen by `optimise` under these budgets.

| ours                                      | why                                                                      |
|-------------------------------------------|--------------------------------------------------------------------------|
| several copies of a set side by side      | machines are faster: 60 rows a second would be fixed costs only          |
| set 4: W = 10 s instead of 50             | 16 million results a second otherwise, of every copy                     |
| one key and further predicates            | nodes over several keys do not spill (`chain_streams.py`)                |
| CPU_BUDGET_S of virtual time              | the paper's machine was the budget (`plan_runs.py`)                      |
| CPU in seconds of the cost model          | plans of set 1, run beside each run, tell how long those are here        |
| memory in files of state, 3 MB and 300 KB | heaps of 300 and 30 MB held Java objects                                 |
| beyond its memory a plan spills           | theirs ended                                                             |
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from benchmarks.figures.chain_streams import Chain
from benchmarks.figures.claims import judged, print_claims
from benchmarks.figures.plan_runs import FULL, Timeline, Trace, run_plans, timeline
from benchmarks.figures.plotting import PLAN_COLOURS, Line, draw
from benchmarks.machine import save
from watersmeet.optimizer.cost import CostModel
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.strategies import Candidate, Choice, optimise
from watersmeet.plan.tree import tree_text

CPU_BUDGET_S = 0.2
"""CPU seconds of the cost model a second."""
AMPLE_BYTES, SHORT_BYTES = 3_000_000, 300_000
MJOIN, BJTREE, HYBRID = "mjoin", "bjtree", "hybrid"


@dataclass(frozen=True, slots=True)
class ResourceSetting:
    """A set of Table 8.1 with its memory."""

    chain: Chain
    memory_bytes: int

    @property
    def budget(self) -> Budget:
        return Budget(CPU_BUDGET_S, self.memory_bytes)


SETTINGS = {
    1: ResourceSetting(Chain((20, 20, 20), (0.05, 0.5), window_s=5, keys=2, copies=10, seconds=20), AMPLE_BYTES),
    2: ResourceSetting(Chain((20, 20, 50), (0.02, 0.5), window_s=15, keys=2, copies=3, seconds=40), AMPLE_BYTES),
    3: ResourceSetting(Chain((10,) * 4, (0.1, 0.15, 0.1), window_s=15, keys=5, copies=2, seconds=30), SHORT_BYTES),
    4: ResourceSetting(Chain((20,) * 4, (0.02, 0.2, 0.05), window_s=10, keys=5, copies=2, seconds=25), SHORT_BYTES),
}


def plans_of(setting: ResourceSetting) -> tuple[dict[str, Candidate], Choice]:
    """The mjoin, the binary tree, and what the optimiser chooses if it is neither; and the choice."""
    model = CostModel(setting.chain.graph, cartesian=False)
    plans = {name: optimise(model, setting.budget, name).winner for name in (MJOIN, BJTREE)}
    choice = optimise(model, setting.budget)
    if choice.winner.tree not in [plan.tree for plan in plans.values()]:
        plans[HYBRID] = choice.winner
    return plans, choice


def run_task(task: tuple[int, int]) -> tuple[dict[str, Trace], float]:
    """All plans of a set for one seed, and the pace of the machine meanwhile."""
    number, seed = task
    setting, first = SETTINGS[number], SETTINGS[1]
    return run_plans(
        setting.chain,
        plans_of(setting)[0],
        setting.memory_bytes,
        seed,
        measured_by=(first.chain, list(plans_of(first)[0].values())),
    )


Plans = Mapping[str, Timeline]
"""Of one set and seed."""
Runs = Mapping[int, Sequence[Plans]]
"""By set; one for each seed."""
Figure = Callable[[Plans], float]


@dataclass(frozen=True, slots=True)
class Claim:
    """Of a set: a ratio that is at least, or more than, `least`."""

    number: int
    text: str
    ratio: Figure
    least: float = 1.0
    is_strict: bool = False

    def judged(self, runs: Runs) -> dict[str, Any]:
        ratios = [self.ratio(plans) for plans in runs[self.number]]
        return judged(f"set {self.number}", self.text, ratios, self.least, is_strict=self.is_strict)


def claims() -> list[Claim]:
    """`model` is the cost analysis; all else was measured. Where the paper says `much`, we say twice."""
    return [
        qualifies(1, MJOIN),
        qualifies(1, BJTREE),
        Claim(1, "results: alike, within 5 %", lambda p: alike(p[MJOIN].results[-1], p[BJTREE].results[-1]), 0.95),
        keeps_up(1, MJOIN),
        keeps_up(1, BJTREE),
        Claim(1, "rows in states: bjtree >= 2 mjoin", lambda p: p[BJTREE].state_rows[-1] / p[MJOIN].state_rows[-1], 2),
        does_not_qualify(2, MJOIN),
        qualifies(2, BJTREE),
        more_results(2, BJTREE, MJOIN, 2.0),
        keeps_up(2, BJTREE),
        Claim(2, "seconds behind: mjoin >= 10 bjtree", lambda p: p[MJOIN].behind_s / p[BJTREE].behind_s, 10),
        qualifies(3, MJOIN),
        does_not_qualify(3, BJTREE),
        Claim(3, "results until a spill: alike, within 5 %", lambda p: alike(early(p, MJOIN), early(p, BJTREE)), 0.95),
        fills_memory(3, BJTREE),
        stays_in_memory(3, MJOIN),
        keeps_up(3, MJOIN),
        more_results(3, MJOIN, BJTREE),
        does_not_qualify(4, MJOIN),
        does_not_qualify(4, BJTREE),
        qualifies(4, HYBRID),
        Claim(4, "results until a spill: bjtree > hybrid", lambda p: early(p, BJTREE) / early(p, HYBRID), 1.0, True),
        Claim(4, "results until a spill: hybrid > mjoin", lambda p: early(p, HYBRID) / early(p, MJOIN), 1.0, True),
        fills_memory(4, BJTREE),
        stays_in_memory(4, HYBRID),
        keeps_up(4, HYBRID),
        Claim(4, "a second behind at the end: mjoin", lambda p: p[MJOIN].behind_s),
        more_results(4, HYBRID, MJOIN),
        more_results(4, HYBRID, BJTREE),
        Claim(4, "state: hybrid > mjoin", lambda p: p[HYBRID].state_bytes_max / p[MJOIN].state_bytes_max, 1.0, True),
        Claim(4, "state: bjtree > hybrid", lambda p: p[BJTREE].state_bytes_max / p[HYBRID].state_bytes_max, 1.0, True),
    ]


def qualifies(number: int, plan: str) -> Claim:
    return Claim(number, f"model: {plan} qualifies (budget / need)", lambda _: room(number, plan))


def does_not_qualify(number: int, plan: str) -> Claim:
    return Claim(number, f"model: {plan} does not qualify (need / budget)", lambda _: 1 / room(number, plan), 1.0, True)


def room(number: int, plan: str) -> float:
    """The budget that is shortest for a plan, by what the model says the plan needs of it."""
    setting = SETTINGS[number]
    needs = plans_of(setting)[0][plan]
    return min(setting.budget.cpu_s / needs.cpu_s, setting.budget.memory_bytes / needs.memory_bytes)


def keeps_up(number: int, plan: str) -> Claim:
    return Claim(number, f"done 1 s after the last arrival: {plan}", lambda p: 1 / p[plan].behind_s)


def more_results(number: int, plan: str, other: str, least: float = 1.0) -> Claim:
    text = f"results at the end: {plan} > {'' if least == 1 else f'{least:g} '}{other}"
    return Claim(number, text, lambda p: p[plan].results[-1] / p[other].results[-1], least, is_strict=True)


def fills_memory(number: int, plan: str) -> Claim:
    budget = SETTINGS[number].memory_bytes
    return Claim(number, f"state over budget: {plan}", lambda p: p[plan].state_bytes_max / budget, is_strict=True)


def stays_in_memory(number: int, plan: str) -> Claim:
    budget = SETTINGS[number].memory_bytes
    return Claim(number, f"budget over state: {plan}", lambda p: budget / p[plan].state_bytes_max)


def alike(one: float, other: float) -> float:
    return min(one, other) / max(one, other)


def early(plans: Plans, plan: str) -> int:
    """Results of a plan by the time that the bjtree spills."""
    return plans[plan].results[plans[BJTREE].first_spill_s]


def plot(runs: Runs) -> None:
    names = {1: "CPU and memory suffice", 2: "CPU is short", 3: "memory is short", 4: "CPU and memory are short"}
    for number, name in names.items():
        chosen = runs[number]
        title, figure = f"set {number}: {name}", f"fig8_{2 * number}_throughput_set{number}"
        styles = {BJTREE: "--"} if number == 1 else {}  # the lines are the same
        lines = [line(chosen, plan, plan, lambda t: t.results, 1e-6, styles.get(plan, "-")) for plan in chosen[0]]
        _draw(figure, f"Figure 8.{2 * number}, {title}", lines, "accumulated results (millions)")
    states = [line(runs[1], plan, f"{plan}, states", lambda t: t.state_rows, 1e-3) for plan in runs[1][0]]
    queues = [line(runs[1], plan, f"{plan}, queues", lambda t: t.queued_rows, 1e-3, "--") for plan in runs[1][0]]
    _draw("fig8_3_rows_set1", f"Figure 8.3, set 1: {names[1]}", states + queues, "rows (thousands)")
    queues = [line(runs[2], plan, plan, lambda t: t.queued_rows, 1e-3) for plan in runs[2][0]]
    _draw("fig8_5_queues_set2", f"Figure 8.5, set 2: {names[2]}", queues, "rows in input queues (thousands)")
    for number in (3, 4):
        active = [line(runs[number], plan, plan, lambda t: t.active_bytes, 1e-3) for plan in runs[number][0]]
        spilled = line(runs[number], BJTREE, "bjtree, with spilled", lambda t: t.state_bytes, 1e-3, ":")
        figure, title = f"fig8_{2 * number + 1}_memory_set{number}", f"Figure 8.{2 * number + 1}, set {number}"
        limit = (SETTINGS[number].memory_bytes / 1000, "memory budget")
        _draw(figure, f"{title}: {names[number]}", [*active, spilled], "active state (KB)", limit)


def line(
    runs: Sequence[Plans],
    plan: str,
    label: str,
    figure: Callable[[Timeline], Sequence[int]],
    scale: float,
    style: str = "-",
) -> Line:
    """The mean over seeds, and the range."""
    values = [[value * scale for value in at] for at in zip(*(figure(plans[plan]) for plans in runs), strict=True)]
    low, high = [min(at) for at in values], [max(at) for at in values]
    return Line(label, range(len(values)), [fmean(at) for at in values], PLAN_COLOURS[plan], style, low, high)


def _draw(name: str, title: str, lines: Sequence[Line], y: str, limit: tuple[float, str] | None = None) -> None:
    draw(name, lines, title=title, x="virtual time (s)", y=y, limit=limit)


def told(number: int, seed: int, traces: Mapping[str, Trace], pace: float) -> list[dict[str, Any]]:
    """The plans of a set and seed for the file of results; CPU in seconds of the model."""
    setting, found = SETTINGS[number], []
    plans, choice = plans_of(setting)
    for name, plan in plans.items():
        trace, times = traces[name], timeline(traces[name], setting.budget.cpu_s * pace)
        measured_cpu_s = fmean(trace.cpu_s[math.ceil(FULL * setting.chain.window_s) :]) / pace
        found.append(
            {
                "set": number,
                "seed": seed,
                "plan": name,
                "tree": tree_text(plan.tree, setting.chain.names),
                "is_chosen": plan.tree == choice.winner.tree,
                "cpu_s_predicted": round(plan.cpu_s, 3),
                "cpu_s": round(measured_cpu_s, 3),
                "pace": round(pace, 3),
                "state_bytes_predicted": round(plan.memory_bytes),
                "active_bytes_max": max(trace.active_bytes),
                "state_bytes_max": times.state_bytes_max,
                "spills": len(trace.spilled_at),
                "results_in_time": times.results[-1],
                "results_at_run_time": sum(trace.results),
                "results_in_clean_up": trace.clean_up_results,
                "queued_rows_at_end": times.queued_rows[-1],
                "behind_s": round(times.behind_s, 2),
            }
        )
    return found


def print_runs(rows: Sequence[dict[str, Any]]) -> None:
    costs = f"{'CPU/s':>7}{'model':>7}{'KB':>7}{'model':>7}"
    print(f"\n{'set':<4}{'plan':<24}{costs}{'spills':>8}{'results':>12}{'behind s':>10}")
    for row in rows:
        name = f"{row['plan']} {row['tree']}{' *' if row['is_chosen'] else ''}"
        cpu = f"{row['cpu_s']:>7.3f}{row['cpu_s_predicted']:>7.3f}"
        state = f"{row['state_bytes_max'] / 1000:>7.0f}{row['state_bytes_predicted'] / 1000:>7.0f}"
        print(
            f"{row['set']:<4}{name:<24}{cpu}{state}{row['spills']:>8}{row['results_in_time']:>12,}{row['behind_s']:>10.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    assert HYBRID in plans_of(SETTINGS[4])[0], "a hybrid is chosen where both resources are short"
    began = time.perf_counter()
    tasks = [(number, seed) for number in (4, 3, 2, 1) for seed in args.seeds]
    runs: dict[int, list[Plans]] = defaultdict(list)
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for (number, seed), (traces, pace) in zip(tasks, pool.map(run_task, tasks), strict=True):
            print(
                f"{time.perf_counter() - began:6.0f} s  set {number}, seed {seed}: {len(traces)} plans exact",
                flush=True,
            )
            budget_s = SETTINGS[number].budget.cpu_s * pace
            runs[number].append({name: timeline(trace, budget_s) for name, trace in traces.items()})
            rows += told(number, seed, traces, pace)
    plot(runs)
    rows.sort(key=lambda row: row["set"])
    judged = [claim.judged(runs) for claim in claims()]
    print_runs(rows)
    print_claims(judged)
    settings = {number: asdict(setting) for number, setting in SETTINGS.items()}
    workload = {"seeds": args.seeds, "cpu_budget_s": CPU_BUDGET_S, "sets": settings}
    chosen = {number: plans_of(setting)[1].reason for number, setting in SETTINGS.items()}
    saved = save("resource_settings", {"workload": workload, "chosen_because": chosen, "claims": judged, "runs": rows})
    print(f"\nwritten to {saved.name}")


if __name__ == "__main__":
    main()
