"""All figures on spilling: Figures 16 to 20 of S5 and 5 to 7 of R6, their claims, and what upkeep and penalty do.

    python -m benchmarks.figures.spill_throughput

Every run is checked against the count of the whole join. PNG and CSV go to `out/`, claims and figures of all runs to
`benchmarks/results/spill_figures.json`. README.md explains the figures.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from statistics import fmean
from typing import Any

from benchmarks.figures import r6_three_way as r6
from benchmarks.figures import s5_five_streams as s5
from benchmarks.figures.claims import claims, print_claims
from benchmarks.figures.decisions import evidence, print_evidence
from benchmarks.figures.running import BATCH_S, Setting, Trace, run
from benchmarks.figures.streams import PARTITIONS, Workload
from benchmarks.machine import save

Task = tuple[str, int]
"""A workload and a seed: what one process runs at a time."""
BASES = {
    **dict.fromkeys(s5.RATIOS, s5.setting(s5.GLOBAL)),
    r6.EVEN_RATES: r6.setting("random"),
    r6.UNEVEN_RATES: r6.setting(r6.LESS),
}
"""What clean-up CPU is told as a ratio to: `global-output`, or a random 30 %-push."""


def workload_of(task: Task) -> Workload:
    name, seed = task
    return s5.workload(name, seed) if name in s5.RATIOS else r6.workload(name, seed)


def run_task(task: Task) -> tuple[Task, int, list[Trace]]:
    """All settings on one workload: with the number of results of its whole join."""
    name, _ = task
    workload = workload_of(task)
    if name in s5.RATIOS:
        everything = run(workload, Setting(None), batch_s=BATCH_S)
        return task, workload.results, [everything, *(run(workload, setting) for setting in s5.settings())]
    return task, workload.results, [run(workload, one, batch_s=r6.BATCH_S) for one in r6.settings()[name]]


def traced(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, int, list[Trace]]]:
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_task, tasks)


def collected(
    done: Iterable[tuple[Task, int, list[Trace]]],
) -> tuple[dict[tuple[str, Setting], list[Trace]], dict[str, list[int]]]:
    """Traces by workload and setting, and results of whole joins by workload; in the order of seeds."""
    traces: dict[tuple[str, Setting], list[Trace]] = defaultdict(list)
    whole: dict[str, list[int]] = defaultdict(list)
    began = time.perf_counter()
    for (name, seed), results, found in done:
        print(f"{time.perf_counter() - began:6.0f} s  {name}, seed {seed}: {len(found)} runs exact", flush=True)
        whole[name].append(results)
        for trace in found:
            traces[name, trace.setting].append(trace)
    return traces, whole


def summaries(
    traces: Mapping[tuple[str, Setting], Sequence[Trace]], whole: Mapping[str, Sequence[int]]
) -> list[dict[str, Any]]:
    """Per workload and setting: means over seeds with least and greatest; clean-up CPU relative to `BASES`."""
    found = []
    for (name, setting), runs in traces.items():
        base = traces[name, BASES[name]]
        everything = traces[name, Setting(None) if name in s5.RATIOS else r6.ALL_MEMORY]
        row: dict[str, Any] = {"workload": name, **asdict(setting)}
        row["run_results"] = s5.spread([t.run_results for t in runs])
        row["share_of_whole_join"] = s5.spread([t.run_results / n for t, n in zip(runs, whole[name], strict=True)])
        row["spills"] = s5.spread([t.spills for t in runs])
        row["clean_up_results"] = s5.spread([t.clean_up_results for t in runs])
        pairs = list(zip(runs, base, strict=True))
        row["clean_up_cpu_over_base"] = s5.spread([t.clean_up_cpu_s / b.clean_up_cpu_s for t, b in pairs])
        pairs = list(zip(runs, everything, strict=True))
        row["run_cpu_over_all_in_memory"] = s5.spread([t.run_cpu_s / e.run_cpu_s for t, e in pairs])
        row["budget_of_state"] = s5.spread([_share(setting, e) for e in everything])
        for what in ("spilled_bytes", "spilled_groups"):
            stages = sorted({stage for t in runs for stage in getattr(t, what)})
            row[f"{what}_by_stage"] = {stage: round(fmean(getattr(t, what)[stage] for t in runs)) for stage in stages}
        found.append(row)
    return found


def _share(setting: Setting, everything: Trace) -> float:
    """The budget of all slots, of the state at the end without one."""
    return (
        0.0 if setting.policy is None else setting.slot_budget_bytes * setting.slots / sum(everything.active_bytes[-1])
    )


def print_summaries(rows: Sequence[dict[str, Any]]) -> None:
    print(
        f"\n{'workload':<20}{'policy':<24}{'upkeep':<12}{'k':>5}{'results':>12}{'of all':>8}{'spills':>8}"
        f"{'clean-up CPU':>14}"
    )
    for row in rows:
        policy = row["policy"] or "all in memory"
        cpu = f"{row['clean_up_cpu_over_base'][0]:.2f}"
        figures = (
            f"{row['run_results'][0]:>12,.0f}{row['share_of_whole_join'][0]:>8.1%}{row['spills'][0]:>8.1f}{cpu:>14}"
        )
        print(f"{row['workload']:<20}{policy:<24}{row['upkeep']:<12}{row['fraction']:>5.0%}{figures}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="processes; the figures are the same, CPU ratios nearly so")
    args = parser.parse_args()
    names = [*s5.RATIOS, *r6.settings()]
    traces, whole = collected(traced([(name, seed) for name in names for seed in args.seeds], args.jobs))
    s5.plot(traces)
    r6.plot(traces)
    rows = summaries(traces, whole)
    judged = [claim.judged(traces) for claim in claims()]
    print_summaries(rows)
    print_claims(judged)
    decisions = evidence(args.seeds[0])
    print_evidence(decisions)
    parameters = {
        "seeds": args.seeds,
        "partitions": PARTITIONS,
        "s5": {"rows": s5.ROWS, "tuple_range": s5.TUPLE_RANGE, "batch_s": BATCH_S},
        "r6": {"rows": r6.ROWS, "tuple_range": r6.TUPLE_RANGE, "batch_s": r6.BATCH_S},
    }
    spreads = "lists are mean, least and greatest over seeds"
    found = {"whole_join": whole, "claims": judged, "decisions": decisions, "runs": rows}
    saved = save("spill_figures", {"workload": parameters, "note": spreads, **found})
    print(f"\nwritten to {saved.name}")


if __name__ == "__main__":
    main()
