"""The chart of the README, `docs/how_fast.svg`: how fast a join is beside others that give the same results.

    python -m benchmarks.chart

Left: seconds of each micro-batch in the last run of `native_spark`. Right: one dot for each recorded run of a
benchmark, and their range. The runs are those of `runs.json`, which says where each figure comes from and which runs
are left out, and the last one in `results/`. Where we need more time than the other side, the dots lie left of 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.machine import RESULTS

RUNS = Path(__file__).parent / "runs.json"
CHART = Path(__file__).parents[1] / "docs" / "how_fast.svg"
TIMES_FASTER = ("spark_rocksdb", "spark_default_store", "spark_chain")
TIMES_SLOWER = ("duckdb", "polars")
COLOURS = {"watersmeet": "#b2182b", "spark (hdfs)": "#2166ac", "spark (rocksdb)": "#7f8fa6"}
NAMES = {"watersmeet": "watersmeet", "spark (hdfs)": "Spark, default store", "spark (rocksdb)": "Spark, RocksDB"}


def result(name: str) -> Any:
    """The last run of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def last_runs() -> dict[str, float]:
    """The figures of the last runs, by their names in `runs.json`."""
    ours, of_spark = (
        result("native_spark")["measured"][side]["steady_s"] for side in ("watersmeet", "spark (rocksdb)")
    )
    one_shot = result("one_shot")["ours_over"]
    return {
        "spark_default_store": result("native_spark")["ratio"],
        "spark_rocksdb": round(of_spark / ours, 2),
        "spark_chain": result("chain_of_keys")["ratio"],
        "duckdb": one_shot["duckdb"],
        "polars": one_shot["polars"],
        "state_growth": result("state_growth")["growth_of_median"],
    }


def runs() -> dict[str, list[float]]:
    """The figures of all recorded runs, by name, in ascending order."""
    kept = json.loads(RUNS.read_text())["figures"]
    last = last_runs()
    return {name: sorted({*(run["value"] for run in figure["runs"]), last[name]}) for name, figure in kept.items()}


def labels() -> dict[str, str]:
    return {name: figure["label"] for name, figure in json.loads(RUNS.read_text())["figures"].items()}


def draw_batches(axes: Axes) -> None:
    for side, figures in result("native_spark")["measured"].items():
        seconds = figures["per_batch_s"]
        axes.plot(range(1, len(seconds) + 1), seconds, color=COLOURS[side], linewidth=2)
        axes.text(len(seconds) + 0.2, seconds[-1], NAMES[side], color=COLOURS[side], va="center", fontsize=9)
    axes.set_yscale("log")
    _plain(axes.yaxis, (1, 3, 10, 30, 60))
    axes.set_xlim(0.5, 14.6)
    axes.set_xticks(range(1, 11))
    axes.set_xlabel("micro-batch of 450,000 rows")
    axes.set_title("Seconds per micro-batch, last run", fontsize=10, loc="left")


def draw_ranges(axes: Axes) -> None:
    found, names = runs(), labels()
    rows = [(name, found[name]) for name in TIMES_FASTER]
    rows += [(name, sorted(1 / value for value in found[name])) for name in TIMES_SLOWER]
    for y, (_, values) in enumerate(reversed(rows)):
        axes.plot([values[0], values[-1]], [y, y], color="#b2182b", linewidth=5, alpha=0.25, solid_capstyle="round")
        axes.plot(values, [y] * len(values), "o", color="#b2182b", markersize=4.5)
        axes.text(300, y, _range_text(values), va="center", ha="right", fontsize=9)
    axes.axvline(1, color="#444444", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(0.3, 300)
    _plain(axes.xaxis, (0.5, 1, 2, 5, 10, 20, 50))
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_yticks(range(len(rows)), [names[name] for name, _ in reversed(rows)], fontsize=9)
    axes.set_xlabel("times as fast (left of 1: slower)")
    axes.set_title("How many times as fast, recorded runs", fontsize=10, loc="left")


def _range_text(values: Sequence[float]) -> str:
    return f"{values[0]:.2g} to {values[-1]:.2g}"


def _plain(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def draw(path: Path) -> None:
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "watersmeet", "font.family": "sans-serif"})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1, 1.05))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    draw_batches(left)
    draw_ranges(right)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    draw(CHART)
    print(CHART)
    for name, values in runs().items():
        print(f"{name}: {_range_text(values)} in {len(values)} runs")
