"""Figures 16.5 to 16.8 of the dissertation (M7; Zhu 2006, 16.3): intermediate rows and output through a migration.

    python -m benchmarks.figures.migration_output [--seeds 1] [--jobs 2]

The claims, low set: moving state reaches the new plan's number of intermediate rows before a parallel track (16.5), and
output is alike (16.6). High set, where the old plan does not keep up: all that migrate are far ahead of it; moving
state is silent for a while, a parallel track has more output at first and fewer intermediate rows (16.7, 16.8); moving
state still ends earlier.

The paper's set-up: Table 16.1, W 1 s and 2 s; a migration at 10 s. Ours as in `migration_lengths.py`. Runs last 20 and
30 s instead of 50, for time: all has happened by then. *Intermediate* rows are those in stores of results; where rows
wait, the paper's count may have them too, so the figure of the high set shows them in a line of its own.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import Any

from benchmarks.figures.chain_streams import Chain
from benchmarks.figures.claims import judged, print_claims
from benchmarks.figures.migration_lengths import NEW, OLD, SLOWNESS
from benchmarks.figures.migration_runs import TICKS, Experiment, Trace, run
from benchmarks.figures.plotting import MIGRATION_COLOURS, Line, draw, over_seeds
from benchmarks.machine import save
from watersmeet.adaptation.migration import MOVING_STATE, PARALLEL_TRACK, STRATEGIES

MIGRATE_S = 10.0
OLD_PLAN, NEW_PLAN = "old plan", "new plan"
LOW, HIGH = "low", "high"
SECONDS = {LOW: 20, HIGH: 30}
EARLY_S = 2.0
"""What the paper calls the initial stage of migration."""


def experiment(name: str) -> Experiment:
    window_s, rate, keys, copies = (1.0, 10.0, 10, 10) if name == LOW else (2.0, 20.0, 5, 4)
    selectivities = (0.1, 0.02, 0.02) if name == LOW else (0.2, 0.05, 0.05)
    tick_s = window_s / TICKS
    chain = Chain((rate * tick_s,) * 4, selectivities, TICKS, keys, copies, round(SECONDS[name] / tick_s))
    return Experiment(chain, tick_s, SLOWNESS, OLD, NEW, MIGRATE_S)


Runs = Mapping[str, Sequence[Mapping[str, Trace]]]
"""By set; for each seed, by strategy or plan."""


def run_task(task: tuple[str, int]) -> dict[str, Trace]:
    name, seed = task
    given = experiment(name)
    batches = given.chain.batches(seed)
    found = {OLD_PLAN: run(given, batches, OLD, None), NEW_PLAN: run(given, batches, NEW, None)}
    for strategy in STRATEGIES[1:]:
        found[strategy] = run(given, batches, OLD, strategy)
    return found


def claims(runs: Runs) -> list[dict[str, Any]]:
    low, high = runs[LOW], runs[HIGH]
    found = [
        judged(
            LOW,
            "intermediate rows: old plan >= 2 new plan",
            [_held(each[OLD_PLAN]) / _held(each[NEW_PLAN]) for each in low],
            2,
            is_strict=False,
        ),
        judged(
            LOW,
            "like the new plan: moving state before parallel track",
            [_like_new(each, PARALLEL_TRACK) / _like_new(each, MOVING_STATE) for each in low],
            1,
            is_strict=True,
        ),
    ]
    for strategy in STRATEGIES[1:]:
        alike = [min(_alike(each[strategy], each[OLD_PLAN], at) for at in range(11, SECONDS[LOW])) for each in low]
        found.append(judged(LOW, f"{strategy}: output like the old plan's, within 5 %", alike, 0.95, is_strict=False))
    for who in (NEW_PLAN, *STRATEGIES[1:]):
        ratios = [_gain(each[who], each[OLD_PLAN]) for each in high]
        found.append(judged(HIGH, f"{who}: output after 10 s >= 1.5 old plan", ratios, 1.5, is_strict=False))
    early = MIGRATE_S + EARLY_S
    found += [
        judged(
            HIGH,
            "moving state: silent >= 5 x as long as parallel track",
            [
                each[MOVING_STATE].longest_gap_s(MIGRATE_S, 20) / each[PARALLEL_TRACK].longest_gap_s(MIGRATE_S, 20)
                for each in high
            ],
            5,
            is_strict=False,
        ),
        judged(
            HIGH,
            "parallel track: more output at first",
            [_since(each[PARALLEL_TRACK], early) / _since(each[MOVING_STATE], early) for each in high],
            1,
            is_strict=True,
        ),
        judged(
            HIGH,
            "parallel track: fewer intermediate rows at first",
            [
                _held(each[MOVING_STATE], MIGRATE_S, early) / _held(each[PARALLEL_TRACK], MIGRATE_S, early)
                for each in high
            ],
            1,
            is_strict=True,
        ),
        judged(
            HIGH,
            "moving state: the migration ends earlier",
            [each[PARALLEL_TRACK].migrations[0][1] / each[MOVING_STATE].migrations[0][1] for each in high],
            1,
            is_strict=True,
        ),
        judged(
            HIGH,
            "moving state: all is done earlier",
            [each[PARALLEL_TRACK].seconds[-1] / each[MOVING_STATE].seconds[-1] for each in high],
            1,
            is_strict=True,
        ),
    ]
    return found


def _held(trace: Trace, low: float = 5.0, high: float | None = None) -> float:
    """Mean intermediate rows."""
    high = trace.experiment.seconds if high is None else high
    return fmean(trace.intermediate_at(low + (high - low) * i / 50) for i in range(51))


def _like_new(runs: Mapping[str, Trace], strategy: str) -> float:
    """How long after the migration is asked for the intermediate rows are within 10 % of the new plan's."""
    trace, new = runs[strategy], runs[NEW_PLAN]
    steps = [MIGRATE_S + i * trace.experiment.tick_s / 4 for i in range(1, 200)]
    return next(at - MIGRATE_S for at in steps if trace.intermediate_at(at) <= 1.1 * new.intermediate_at(at))


def _since(trace: Trace, at: float) -> int:
    return trace.results_at(at) - trace.results_at(MIGRATE_S)


def _gain(trace: Trace, old: Trace) -> float:
    end = trace.experiment.seconds
    return _since(trace, end) / _since(old, end)


def _alike(trace: Trace, old: Trace, at: float) -> float:
    one, other = trace.results_at(at), old.results_at(at)
    return min(one, other) / max(one, other)


def plot(runs: Runs) -> None:
    for name, first in ((LOW, 5), (HIGH, 7)):
        given = experiment(name)
        seconds = [i / 2 for i in range(2 * SECONDS[name] + 1)]
        scale = 1 / given.chain.copies

        def lines(figure: Any, name: str = name, seconds: list[float] = seconds, scale: float = scale) -> list[Line]:
            return [
                over_seeds(
                    who,
                    seconds,
                    [[figure(each[who], at) * scale for at in seconds] for each in runs[name]],
                    MIGRATION_COLOURS[who],
                    "--" if who in (OLD_PLAN, NEW_PLAN) else "-",
                )
                for who in (OLD_PLAN, *STRATEGIES[1:], NEW_PLAN)
            ]

        def output(trace: Trace, at: float) -> float:
            return float(trace.results_at(at + 0.5) - trace.results_at(at - 0.5))

        x, title = "virtual time (s)", f"Figure 16.{first}, {name} set"
        draw(
            f"fig16_{first}_intermediate_{name}", lines(Trace.intermediate_at), title=title, x=x, y="intermediate rows"
        )
        title = f"Figure 16.{first + 1}, {name} set"
        draw(f"fig16_{first + 1}_output_{name}", lines(output), title=title, x=x, y="results a second")
        if name == HIGH:
            title = "high set: rows that wait"
            draw("fig16_7_waiting_high", lines(Trace.waiting_at), title=title, x=x, y="rows that have arrived and wait")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    tasks = [(name, seed) for seed in args.seeds for name in SECONDS]
    runs: dict[str, list[dict[str, Trace]]] = defaultdict(list)
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for (name, seed), found in zip(tasks, pool.map(run_task, tasks), strict=True):
            runs[name].append(found)
            for who, trace in found.items():
                rows.append({"set": name, "seed": seed, "run": who, "load": round(trace.load, 3),
                             "length_s": round(trace.length_s, 3) if trace.migrations else None,
                             "done_s": round(trace.seconds[-1], 2)})  # fmt: skip
                print(*rows[-1].values(), flush=True)
    plot(runs)
    verdicts = claims(runs)
    print_claims(verdicts)
    save("migration_output", {"workload": {"seeds": args.seeds}, "claims": verdicts, "runs": rows})


if __name__ == "__main__":
    main()
