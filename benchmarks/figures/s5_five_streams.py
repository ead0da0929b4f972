"""Figures 16 to 20 of S5 (Liu, Zhu, Rundensteiner 2006, section 6): which groups to spill in a tree of three joins.

The claim: for average join ratios 3,1,1 (Fig. 16), 1,3,3 (19) and 3,2,3 (20), run-time results rank global output with
penalty, global output, and far below them local output and bottom-up; with penalty it spills less often than without
(13 times and 10 in Fig. 17), bottom-up least (7 in Fig. 18).

The paper's set-up: five streams, a tuple every 50 ms on each, 50 minutes, 300 partitions, two machines, 60 MB each.

| ours                                     | why                                                                       |
|------------------------------------------|---------------------------------------------------------------------------|
| tuple range 60,000: the whole run        | not given for these figures; the whole join has 2 to 10 million results   |
| ratios 4 : 2 : 1 by thirds of partitions | not given; those of R6, Figure 7                                          |
| 3 MB per slot                            | rows of a few numbers, no objects: 5 to 22 % of the state without budget  |
| virtual time, micro-batches of 50 s      | what a spill costs in time does not hold up arrivals                      |
| 30 % of active state go at once          | not given; the default of R6, 3.2                                         |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.figures.plotting import OF_S2, Line, draw, draw_bars, styled
from benchmarks.figures.running import WEIGHTED, Setting, Trace
from benchmarks.figures.streams import Workload, five_streams

RATIOS = {"3,1,1": (3, 1, 1), "1,3,3": (1, 3, 3), "3,2,3": (3, 2, 3)}
FIGURES = {"3,1,1": "fig16", "1,3,3": "fig19", "3,2,3": "fig20"}
PENALTY, GLOBAL, LOCAL, BOTTOM_UP = "global-output-penalty", "global-output", "local-output", "bottom-up"
POLICIES = (PENALTY, GLOBAL, LOCAL, BOTTOM_UP, "random", "largest", "balanced", "rate-based")
UPKEEPS = ("cumulative", "reset", "ewma")
WEIGHTS = (0.1, 0.3)
"""Of P_inter, between those of `global-output` (0) and `global-output-penalty` (1)."""
ROWS, TUPLE_RANGE, BUDGET_BYTES = 60_000, 60_000, 3_000_000
TIME = "virtual time (minutes)"

Key = tuple[str, Setting]
"""Ratios and setting; a list of traces, one per seed, belongs to it."""
Traces = Mapping[Key, Sequence[Trace]]


def workload(ratios: str, seed: int) -> Workload:
    return five_streams(RATIOS[ratios], seed=seed, rows=ROWS, tuple_range=TUPLE_RANGE)


def setting(policy: str, upkeep: str = "reset") -> Setting:
    return Setting(policy, BUDGET_BYTES, upkeep=upkeep)


def settings() -> list[Setting]:
    """All that is run for every ratio and seed."""
    upkept = [setting(policy, upkeep) for upkeep in UPKEEPS if upkeep != "reset" for policy in (PENALTY, GLOBAL)]
    weighted = [setting(f"{WEIGHTED}{weight}") for weight in WEIGHTS]
    return [*(setting(policy) for policy in POLICIES), *upkept, *weighted]


def plot(traces: Traces) -> None:
    for ratios, figure in FIGURES.items():
        _plot_results(ratios, figure, traces)
    _plot_memory("fig17", (GLOBAL, PENALTY), traces)
    _plot_memory("fig18", (PENALTY, BOTTOM_UP), traces)
    _plot_upkeeps(traces)
    _plot_weights(traces)


def _plot_results(ratios: str, figure: str, traces: Traces) -> None:
    by_policy = {policy: traces[ratios, setting(policy)] for policy in POLICIES}
    ranked = sorted(by_policy, key=lambda policy: -fmean(t.run_results for t in by_policy[policy]))
    lines = []
    for policy in ranked:
        columns = list(zip(*(trace.results for trace in by_policy[policy]), strict=True))
        lines.append(
            Line(
                policy,
                by_policy[policy][0].minutes,
                [fmean(column) / 1000 for column in columns],
                low=[min(column) / 1000 for column in columns] if policy in OF_S2 else None,
                high=[max(column) / 1000 for column in columns] if policy in OF_S2 else None,
                **styled(policy),
            )
        )
    title = f"S5, Figure {figure[3:]}: results at run time, join ratios {ratios}"
    draw(f"{figure}_results_{_slug(ratios)}", lines, title=title, x=TIME, y="results so far (thousands)")


def _plot_memory(figure: str, policies: Sequence[str], traces: Traces) -> None:
    """Of the first seed and the first slot."""
    lines = []
    for policy in policies:
        trace = traces["3,1,1", setting(policy)][0]
        label = f"{policy}\n({trace.spills} spills, both slots)"
        lines.append(Line(label, trace.minutes, [slots[0] / 1e6 for slots in trace.active_bytes], **styled(policy)))
    title = f"S5, Figure {figure[3:]}: active state of one slot, join ratios 3,1,1"
    limit = BUDGET_BYTES / 1e6, "budget"
    draw(f"{figure}_memory_3_1_1", lines, title=title, x=TIME, y="active state (MB)", limit=limit)


def _plot_upkeeps(traces: Traces) -> None:
    shown = {
        ratios: {
            f"{'with' if policy == PENALTY else 'without'} penalty, {upkeep}": spread(
                [t.run_results / 1000 for t in traces[ratios, setting(policy, upkeep)]]
            )
            for policy in (GLOBAL, PENALTY)
            for upkeep in UPKEEPS
        }
        for ratios in RATIOS
    }
    colours = ["#fdd0a2", "#fd8d3c", "#d94801", "#fcbba1", "#ef3b2c", "#99000d"]
    title = "Upkeep of figures, global policies"
    draw_bars("upkeep", shown, title=title, y="results at run time (thousands)", colours=colours)


def _plot_weights(traces: Traces) -> None:
    shown = {}
    for ratios in RATIOS:
        base = [t.run_results for t in traces[ratios, setting(GLOBAL)]]
        shown[ratios] = {
            label: spread([t.run_results / b for t, b in zip(traces[ratios, setting(policy)], base, strict=True)])
            for label, policy in weights().items()
        }
    y = "results at run time / those of global-output"
    colours = ["#ef6548", "#9ecae1", "#4292c6", "#b2182b"]
    draw_bars("penalty_weight", shown, title="How much P_inter counts", y=y, colours=colours)


def weights() -> dict[str, str]:
    """What the weight of P_inter is called, and the policy that has it."""
    between = {f"weight {weight:g}": f"{WEIGHTED}{weight}" for weight in WEIGHTS}
    return {"weight 0 (global-output)": GLOBAL, **between, "weight 1 (penalty)": PENALTY}


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, least and greatest."""
    return round(fmean(values), 3), round(min(values), 3), round(max(values), 3)


def _slug(ratios: str) -> str:
    return ratios.replace(",", "_")
