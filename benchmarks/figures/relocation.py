"""Figures 9 to 14 of R6, on relocation, and their claims.

    python -m benchmarks.figures.relocation [--seeds 1 2 3] [--jobs 2] [--experiments fig12 fig12_long]

Every run is checked against the count of the whole join. PNG and CSV go to `out/`, claims and figures of all runs to
`benchmarks/results/relocation_figures.json`; those of experiments that are not run stay there. `r6_relocation.py` has
the set-ups, README.md the findings.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import Any

from benchmarks.figures import r6_relocation as r6
from benchmarks.figures.claims import judged, print_claims
from benchmarks.figures.relocation_runs import PRICES, RATE, Trace, Way, run
from benchmarks.machine import RESULTS, save

Task = tuple[str, Way, int]
NAME = "relocation_figures"


def run_task(task: Task) -> tuple[Task, Trace]:
    name, way, seed = task
    return task, run(r6.EXPERIMENTS[name], way, seed)


def traced(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Trace]]:
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_task, tasks)


def claims(traces: r6.Traces) -> list[dict[str, Any]]:
    """What the paper and the issue claim of the experiments that were run, as ratios by seed."""
    run = {name for name, _ in traces}
    found: list[dict[str, Any]] = []

    def claim(name: str, text: str, ratios: Sequence[float], least: float, *, is_strict: bool = False) -> None:
        found.append(judged(name, text, ratios, least, is_strict=is_strict))

    def ratios(name: str, one: Way, other: Way, of: Callable[[Trace], float]) -> list[float]:
        pairs = zip(traces[name, one], traces[name, other], strict=True)
        return [of(first) / max(1e-9, of(second)) for first, second in pairs]

    def area(trace: Trace) -> float:
        return trace.area(trace.minutes[-1])

    if "fig09" in run:
        for threshold in r6.THRESHOLDS:
            text = f"results over time at {threshold:.0%} >= 0.97 of all in memory"
            claim("fig09", text, ratios("fig09", r6.at(threshold), r6.ALL_IN_MEMORY, area), 0.97)
        moves = ratios("fig09", r6.at(0.9), r6.at(0.5), lambda trace: trace.relocations)
        claim("fig09", "relocations: 90 % > 50 %", moves, 1.0, is_strict=True)
        claim("fig09", "relocations: 90 % >= 12 times 50 % (24 and 2)", moves, 12.0)
        uneven = ratios("fig09", r6.ALL_IN_MEMORY, r6.at(0.9), lambda trace: trace.summary()["unevenness_mean"])
        claim("fig10", "max/mean memory: none > 90 %", uneven, 1.0, is_strict=True)
    more = "results: lazy-disk > none"
    if "fig11" in run:
        claim("fig11", more, ratios("fig11", r6.LAZY, r6.NONE, _run_results), 1.0, is_strict=True)
        nobody = [1.0 / (1 + trace.spills) for trace in traces["fig11", r6.LAZY]]
        claim("fig11", "lazy-disk never spills (1 / (1 + spills))", nobody, 1.0)
    if "fig12" in run:
        claim("fig12", more, ratios("fig12", r6.LAZY, r6.NONE, _run_results), 1.0, is_strict=True)
    if "fig12_long" in run:
        alike = ratios("fig12_long", r6.LAZY, r6.NONE, _run_results)
        claim("fig12_long", "results: lazy-disk >= 0.95 none", alike, 0.95)
    for name in run & {"fig12", "fig12_long"}:
        paths = ratios(name, r6.NONE, r6.LAZY, lambda trace: trace.clean_up_s)
        claim(name, "critical path of clean-up: none >= 3 lazy-disk", paths, 3.0)
    for name in sorted(run & {"fig13", "fig14"}):
        for active, lazy in ((r6.ACTIVE_LITTLE, r6.LAZY_LITTLE), (r6.ACTIVE, r6.LAZY)):
            text = f"results: active-disk > lazy-disk, {lazy.fraction:.0%} a spill"
            claim(name, text, ratios(name, active, lazy, _run_results), 1.0, is_strict=True)
    return found


def _run_results(trace: Trace) -> float:
    return trace.results[-1]


def kept(what: str, key: str, run: Container[str]) -> list[dict[str, Any]]:
    """What the committed results have of experiments that were not run."""
    path = RESULTS / f"{NAME}.json"
    known = json.loads(path.read_text())[what] if path.exists() else []
    return [one for one in known if one[key] not in run]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="processes; the figures are the same")
    parser.add_argument(
        "--experiments", nargs="+", default=list(r6.EXPERIMENTS), choices=r6.EXPERIMENTS, help="default: all"
    )
    args = parser.parse_args()
    tasks = [(name, way, seed) for name in args.experiments for way in r6.ways(name) for seed in args.seeds]
    traces: dict[r6.Key, list[Trace]] = defaultdict(list)
    began = time.perf_counter()
    for (name, way, seed), trace in traced(tasks, args.jobs):
        traces[name, way].append(trace)
        told = f"{trace.results[-1]:,.0f} of {trace.whole:,} results, {trace.relocations} relocations"
        print(
            f"{time.perf_counter() - began:6.0f} s  {name}, {way.label} {way.threshold}, seed {seed}: {told}",
            flush=True,
        )
    r6.plot(traces)
    found = claims(traces)
    print_claims(found)
    rows = [
        {"experiment": name, "policy": way.label, "threshold": way.threshold, "runs": [t.summary() for t in runs]}
        for (name, way), runs in traces.items()
    ]
    for row in rows:
        means = {what: fmean(one[what] for one in row["runs"]) for what in row["runs"][0]}
        print(row["experiment"], row["policy"], row["threshold"], {what: round(v, 2) for what, v in means.items()})
    workload = {"seeds": args.seeds, "rate": RATE, "prices": str(PRICES), "budgets": r6.BUDGETS}
    run = {*args.experiments, *(["fig10"] if "fig09" in args.experiments else [])}
    found = sorted([*kept("claims", "workload", run), *found], key=lambda one: one["workload"])
    rows = sorted([*kept("runs", "experiment", run), *rows], key=lambda one: one["experiment"])
    saved = save(NAME, {"workload": workload, "claims": found, "runs": rows})
    print(f"\nwritten to {saved.name}")


if __name__ == "__main__":
    main()
