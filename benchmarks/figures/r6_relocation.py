"""Figures 9 to 14 of R6 (Liu, Jbantova, Rundensteiner 2006, sections 4 and 5): relocation, alone and with spills.

| figure | the claim                                                                                                |
|--------|----------------------------------------------------------------------------------------------------------|
| 9      | load alternates tenfold: results are about those of all-in-memory for any theta_r from 50 to 90 %; 24    |
|        | relocations at 90 %, 2 at 50 %                                                                           |
| 10     | at 90 % memory stays balanced                                                                            |
| 11     | one machine has 60 %: without relocation it spills after two thirds of the run, with it nobody does      |
| 12     | one machine has two thirds: lazy-disk above no relocation; if all spill, run-time results are alike, but |
|        | the clean-up is four times shorter                                                                       |
| 13     | one machine's partitions have join rate 4, the others' 1: active-disk overtakes lazy-disk                |
| 14     | the same with tuple ranges 15K and 45K: a major gain                                                     |

| ours                                  | why                                                                       |
|---------------------------------------|---------------------------------------------------------------------------|
| 10 rows a second of each stream       | 33 there; the state is 1.5 to 2 MB, so a byte stands for 130 of theirs    |
| 60 minutes; 40 for Figures 13 and 14  | the texts speak of 40 minutes and six hours                               |
| budgets as shares of the whole state  | so that spills begin where the text says: see `BUDGETS`                   |
| Figures 13 and 14: 10 and 30 % spill  | k is not given; a spill of 30 % alone lets slots differ by over theta_r   |
| values are drawn, not in fixed ranges | with the same means; all groups of a slot are alike                       |
| a virtual clock, batches of 20 s      | prices in `relocation_runs.py`: a move costs network, a spill disk; a     |
|                                       | batch waits for the slowest slot                                          |
| tau_m holds for whole batches         | 45 s there, so 60 s here                                                  |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.figures.plotting import Line, draw
from benchmarks.figures.relocation_runs import Experiment, Trace, Way

JOIN_RATE_3 = 33
"""Values per group for a join rate of 3 and a tuple range of 30,000."""
STATE_BYTES = {60: 1_900_000, 40: 1_300_000}
"""Of everything, after so many minutes; measured with all in memory."""
BUDGETS = {"fig11": 0.4, "fig12": 0.2, "fig12_long": 0.05, "fig13": 0.12, "fig14": 0.12}
"""Of that, per slot."""
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
TIME = "virtual time (minutes)"

Key = tuple[str, Way]
Traces = Mapping[Key, Sequence[Trace]]


def _budget(name: str, minutes: int) -> int:
    return round(BUDGETS[name] * STATE_BYTES[minutes])


SKEWED = (2 / 3, 1 / 6, 1 / 6)
THIRDS = (1 / 3, 1 / 3, 1 / 3)
EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment("fig09", 60, (0.5, 0.5), (JOIN_RATE_3,) * 2, alternates=True),
        Experiment("fig11", 60, (0.6, 0.2, 0.2), (JOIN_RATE_3,) * 3, budget_bytes=_budget("fig11", 60)),
        Experiment("fig12", 60, SKEWED, (JOIN_RATE_3,) * 3, budget_bytes=_budget("fig12", 60)),
        Experiment("fig12_long", 60, SKEWED, (JOIN_RATE_3,) * 3, budget_bytes=_budget("fig12_long", 60)),
        Experiment("fig13", 40, THIRDS, (25, 100, 100), budget_bytes=_budget("fig13", 40)),
        Experiment("fig14", 40, THIRDS, (12, 150, 150), budget_bytes=_budget("fig14", 40)),
    )
}
ALL_IN_MEMORY, NONE = Way(in_memory=True), Way()
LAZY, ACTIVE = Way("lazy-disk"), Way("active-disk")
LITTLE = 0.1
"""The share of memory that a slot spills at a time, in the second run of Figures 13 and 14."""
LAZY_LITTLE, ACTIVE_LITTLE = Way("lazy-disk", fraction=LITTLE), Way("active-disk", fraction=LITTLE)


def at(threshold: float) -> Way:
    return Way("lazy-disk", threshold, in_memory=True)


def ways(name: str) -> list[Way]:
    """What is run for every seed."""
    match name:
        case "fig09":
            return [ALL_IN_MEMORY, *map(at, THRESHOLDS)]
        case "fig13" | "fig14":
            return [ALL_IN_MEMORY, LAZY, ACTIVE, LAZY_LITTLE, ACTIVE_LITTLE]
        case _:
            return [ALL_IN_MEMORY, NONE, LAZY]


def plot(traces: Traces) -> None:
    """Draw the figures whose experiments were run."""
    run = {name for name, _ in traces}
    first = [("all in memory", ALL_IN_MEMORY, "#000000")]
    if "fig09" in run:
        shades = ("#440154", "#3b528b", "#21918c", "#5ec962", "#d9c600")
        sweep = [(f"theta_r {round(100 * t)} %", at(t), shade) for t, shade in zip(THRESHOLDS, shades, strict=True)]
        title = "R6, Figure 9: results by theta_r, load alternates"
        _results("fig09_thresholds", "fig09", [*first, *sweep], traces, title)
        _memory(traces)
    plain = [*first, ("no relocation", NONE, "#4d4d4d"), ("lazy-disk", LAZY, "#2166ac")]
    active = [
        *first,
        ("active-disk, 10 % a spill", ACTIVE_LITTLE, "#b2182b"),
        ("lazy-disk, 10 % a spill", LAZY_LITTLE, "#2166ac"),
        ("active-disk, 30 %", ACTIVE, "#fdbb84"),
        ("lazy-disk, 30 %", LAZY, "#9ecae1"),
    ]
    for name, file, lines, what in (
        ("fig11", "fig11_relocation", plain, "relocation against spilling"),
        ("fig12", "fig12_lazy_disk", plain, "lazy-disk against no relocation"),
        ("fig13", "fig13_active_disk", active, "active-disk against lazy-disk"),
        ("fig14", "fig14_active_disk", active, "the same, productivity differs more"),
    ):
        if name in run:
            _results(file, name, lines, traces, f"R6, Figure {int(name[3:])}: {what}")


def _results(file: str, name: str, lines: Sequence[tuple[str, Way, str]], traces: Traces, title: str) -> None:
    drawn = []
    for label, way, colour in lines:
        runs = traces[name, way]
        count = min(len(run.results) for run in runs)
        columns = [[run.results[i] / 1000 for run in runs] for i in range(count)]
        means, lows, highs = ([of(column) for column in columns] for of in (fmean, min, max))
        if runs[0].relocations:
            label = f"{label}\n({fmean(run.relocations for run in runs):.0f} relocations)"
        drawn.append(Line(label, runs[0].minutes[:count], means, colour, low=lows, high=highs))
    draw(file, drawn, title=title, x=TIME, y="results so far (thousands)")


def _memory(traces: Traces) -> None:
    """Of the first seed."""
    drawn = []
    for label, way, style in (("no relocation", ALL_IN_MEMORY, "--"), ("theta_r 90 %", at(0.9), "-")):
        run = traces["fig09", way][0]
        for slot, colour in enumerate(("#2166ac", "#b2182b")):
            held = [by_slot[slot] / 1e6 for by_slot in run.active_bytes]
            drawn.append(Line(f"{label}, slot {slot}", run.minutes, held, colour, style))
    title = "R6, Figure 10: memory while load alternates"
    draw("fig10_memory", drawn, title=title, x=TIME, y="active state (MB)")
