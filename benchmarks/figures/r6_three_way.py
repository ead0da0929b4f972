"""Figures 5 to 7 of R6 (Liu, Jbantova, Rundensteiner 2006, section 3): how much to spill at once, and what.

The claims: the more is pushed at a time, the fewer results at run time (Fig. 5) and the fewer spills (Fig. 6); pushing
the least productive groups yields about 70 % more after 40 minutes than pushing the most productive ones (Fig. 7), and
leaves a fifth of the results to a clean-up that takes a thirteenth of the time.

The paper's set-up: a three-way join on one machine, a tuple every 30 ms, tuple range 30,000, a join rate of 3 for all
partitions (Fig. 5, 6; random choice) or of 4, 2 and 1 for a third of them each (Fig. 7), 200 MB.

| ours                          | why                                                                       |
|-------------------------------|---------------------------------------------------------------------------|
| 40 minutes in all figures     | the time that the paper speaks of                                         |
| 300 partitions                | not given; those of S5                                                    |
| 1.5 MB                        | rows of a few numbers: 36 % of the state that 40 minutes bring            |
| virtual time, batches of 24 s | what a spill costs in time does not hold up arrivals                      |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.figures.plotting import COLOURS, Line, draw
from benchmarks.figures.running import Setting, Trace
from benchmarks.figures.streams import EVEN, THIRDS, Workload, three_streams

ROWS, TUPLE_RANGE, BUDGET_BYTES, BATCH_S = 80_000, 30_000, 1_500_000, 24
PUSHES = (0.1, 0.3, 0.5, 0.7, 1.0)
LESS, MORE = "global-output", "push-more-productive"
EVEN_RATES, UNEVEN_RATES = "join rate 3", "join rates 4, 2, 1"
TIME = "virtual time (minutes)"

Traces = Mapping[tuple[str, Setting], Sequence[Trace]]


def workload(rates: str, seed: int) -> Workload:
    rate, thirds = (3.0, EVEN) if rates == EVEN_RATES else (7 / 3, THIRDS)
    return three_streams(rate, thirds, seed=seed, rows=ROWS, tuple_range=TUPLE_RANGE)


def setting(policy: str | None, fraction: float = 0.3) -> Setting:
    return Setting(policy, BUDGET_BYTES, slots=1, fraction=fraction)


ALL_MEMORY = setting(None)


def settings() -> dict[str, list[Setting]]:
    """What is run for every seed, by rates."""
    return {
        EVEN_RATES: [ALL_MEMORY, *(setting("random", k) for k in PUSHES)],
        UNEVEN_RATES: [ALL_MEMORY, setting(LESS), setting(MORE)],
    }


def plot(traces: Traces) -> None:
    runs = {"all in memory": traces[EVEN_RATES, ALL_MEMORY]}
    runs |= {f"{round(k * 100)} % push": traces[EVEN_RATES, setting("random", k)] for k in PUSHES}
    shades = ["#000000", "#440154", "#3b528b", "#21918c", "#5ec962", "#d9c600"]
    results = [_results(label, run, colour) for (label, run), colour in zip(runs.items(), shades, strict=True)]
    y = "results so far (thousands)"
    draw("fig05_push_results", results, title="R6, Figure 5: results at run time by k %", x=TIME, y=y)
    memory = [
        Line(f"{label} ({run[0].spills} spills)", run[0].minutes, [b[0] / 1e6 for b in run[0].active_bytes], colour)
        for (label, run), colour in zip(runs.items(), shades, strict=True)
    ]
    title = "R6, Figure 6: active state by k %"
    draw("fig06_push_memory", memory, title=title, x=TIME, y="active state (MB)", limit=(BUDGET_BYTES / 1e6, "budget"))
    productive = [
        _results("all in memory", traces[UNEVEN_RATES, ALL_MEMORY], "#000000"),
        _results("push-less-productive\n(global-output)", traces[UNEVEN_RATES, setting(LESS)], COLOURS[LESS]),
        _results(MORE, traces[UNEVEN_RATES, setting(MORE)], COLOURS[MORE]),
    ]
    draw("fig07_productivity", productive, title="R6, Figure 7: which groups are pushed", x=TIME, y=y)


def _results(label: str, run: Sequence[Trace], colour: str) -> Line:
    columns = list(zip(*(trace.results for trace in run), strict=True))
    means, lows, highs = ([of(column) / 1000 for column in columns] for of in (fmean, min, max))
    return Line(label, run[0].minutes, means, colour, low=lows, high=highs)
