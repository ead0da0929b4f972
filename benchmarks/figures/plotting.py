"""Figures as PNG, and the same numbers as CSV beside them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, TextIO

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import FixedLocator, NullLocator

OUT = Path(__file__).parent / "out"
COLOURS = {
    "global-output-penalty": "#b2182b",
    "global-output": "#ef6548",
    "local-output": "#2166ac",
    "bottom-up": "#4d4d4d",
    "random": "#999999",
    "largest": "#8c6bb1",
    "balanced": "#1b9e77",
    "rate-based": "#d9a300",
    "push-more-productive": "#2166ac",
}
"""A policy has one colour in all figures; those of S2 are drawn solid, the others dashed."""
MIGRATION_COLOURS = {
    "moving-state": "#b2182b",
    "parallel-track": "#2166ac",
    "backfill": "#1b9e77",
    "just-in-time": "#d9a300",
    "new plan": "#999999",
    "old plan": "#4d4d4d",
    "without migration": "#4d4d4d",
}
PLAN_COLOURS = {"mjoin": "#2166ac", "bjtree": "#b2182b", "hybrid": "#1b9e77"}
OF_S2 = ("global-output-penalty", "global-output", "local-output", "bottom-up", "push-more-productive")


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str | None = None
    style: str = "-"
    low: Sequence[float] | None = None
    """With `high`: the range over seeds."""
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Points:
    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str


def over_seeds(
    label: str, x: Sequence[float], by_seed: Sequence[Sequence[float]], colour: str, style: str = "-"
) -> Line:
    """The mean of some seeds, and their range."""
    values = list(zip(*by_seed, strict=True))
    low, high = [min(at) for at in values], [max(at) for at in values]
    return Line(label, x, [fmean(at) for at in values], colour, style, low, high)


def styled(policy: str) -> dict[str, Any]:
    """Colour and style of a policy's line."""
    return {"colour": COLOURS[policy], "style": "-" if policy in OF_S2 else "--"}


def draw(
    name: str,
    lines: Sequence[Line],
    *,
    title: str,
    x: str,
    y: str,
    limit: tuple[float, str] | None = None,
    x_from: float = 0,
    y_from: float = 0,
    log_y: bool = False,
) -> None:
    """Lines over time or another measure, in the order given by their last values; `limit` is a level with its name."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=110, layout="constrained")
    for line in lines:
        axes.plot(line.x, line.y, line.style, color=line.colour, label=line.label, linewidth=1.6)
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.15, linewidth=0)
    if limit is not None:
        axes.axhline(limit[0], color="#000000", linewidth=0.8, linestyle=":", label=limit[1])
    _finish(axes, title, x, y, log_y=log_y)
    axes.set_xlim(left=x_from)
    if not log_y:
        axes.set_ylim(bottom=y_from)
    _save(figure, name)
    _write_csv(name, lines, x)


def draw_points(
    name: str,
    groups: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x: str,
    y: str,
    colours: Sequence[str],
) -> None:
    """Points by group over a logarithmic axis, with the median of each group as a cross."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=110, layout="constrained")
    for (group, points), colour in zip(groups.items(), colours, strict=True):
        xs, ys = zip(*points, strict=True)
        axes.scatter(xs, ys, s=18, color=colour, alpha=0.55, linewidth=0, label=group)
        axes.scatter(
            median(xs), median(ys), s=140, color=colour, marker="X", edgecolor="white", label=f"{group}, median"
        )
    _finish(axes, title, x, y)
    axes.set_ylim(auto=True)
    axes.set_xscale("log")
    axes.margins(0.05)
    _save(figure, name)
    with _csv(name) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", x, y])
        writer.writerows([group, *map("{:.6g}".format, point)] for group, points in groups.items() for point in points)


def draw_bars(
    name: str,
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]],
    *,
    title: str,
    y: str,
    colours: Sequence[str],
) -> None:
    """By group and bar: the mean, and the least and greatest over seeds."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=110, layout="constrained")
    bars = list(next(iter(groups.values())))
    width = 0.8 / len(bars)
    for number, bar in enumerate(bars):
        at = [i - 0.4 + (number + 0.5) * width for i in range(len(groups))]
        mean, low, high = zip(*(groups[group][bar] for group in groups), strict=True)
        errors = [[m - v for m, v in zip(mean, low, strict=True)], [v - m for m, v in zip(mean, high, strict=True)]]
        axes.bar(at, mean, width * 0.92, label=bar, color=colours[number], yerr=errors, error_kw={"linewidth": 0.8})
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_xlim(-0.5, len(groups) - 0.5)
    _finish(axes, title, "average join ratios of Join1, Join2, Join3", y)
    _save(figure, name)
    with _csv(name) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "bar", "mean", "min", "max"])
        writer.writerows([group, bar, *values[bar]] for group, values in groups.items() for bar in bars)


def draw_predictions(name: str, groups: Sequence[Points], *, title: str, x: str, y: str) -> None:
    """Points of several kinds on two logarithmic axes, with the line on which both are equal, and twice and half it."""
    figure, axes = pyplot.subplots(figsize=(7.5, 5.5), dpi=110, layout="constrained")
    for group in groups:
        axes.scatter(group.x, group.y, s=22, color=group.colour, alpha=0.75, linewidth=0, label=group.label)
    values = [value for group in groups for value in (*group.x, *group.y)]
    ends = [min(values) * 0.8, max(values) * 1.25]
    axes.plot(ends, ends, color="#000000", linewidth=0.8, label="equal")
    for factor in (0.5, 2):
        axes.plot(ends, [factor * end for end in ends], color="#000000", linewidth=0.6, linestyle=":")
    axes.set_xscale("log")
    _finish(axes, title, x, y, log_y=True)
    ticks = [step * 10**power for power in range(-3, 7) for step in (1, 2, 5)]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    _save(figure, name)
    with _csv(name) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", x, y])
        writer.writerows(
            [group.label, round(at, 3), round(value, 3)]
            for group in groups
            for at, value in zip(group.x, group.y, strict=True)
        )


def _finish(axes: pyplot.Axes, title: str, x: str, y: str, *, log_y: bool = False) -> None:
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _save(figure: pyplot.Figure, name: str) -> None:
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png", metadata={"Software": None})
    pyplot.close(figure)


def _write_csv(name: str, lines: Sequence[Line], x: str) -> None:
    with _csv(name) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([x, *(line.label for line in lines)])
        for number, at in enumerate(max((line.x for line in lines), key=len)):
            found = (line.y[number] if number < len(line.y) else None for line in lines)
            writer.writerow([round(at, 3), *("" if value is None else round(value, 3) for value in found)])


def _csv(name: str) -> TextIO:
    OUT.mkdir(exist_ok=True)
    return (OUT / f"{name}.csv").open("w", newline="")
