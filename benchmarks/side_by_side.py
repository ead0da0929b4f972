"""Two commits of this repository against each other, on the same workload, in pairs of runs.

    python -m benchmarks.side_by_side OLD NEW WORKLOAD [--pairs N] [-- arguments of the workload]

OLD and NEW are git revisions, checked out into a temporary folder. WORKLOAD is a module of `benchmarks/workloads`, and
is taken from the tree that this runs in, for both: only `src` differs. The two runs of a pair follow each other, and
pairs begin with either side in turn. Every run is a process of its own, in an environment that has no other watersmeet,
for Spark's Python workers as well. What it reads is prepared before, and both sides must find the same results.

A run is measured by its wall time and by the CPU time of all its processes (`process_tree.py`): Python, the JVM and
its workers. On a machine that others use, CPU is the figure to look at. The ratio is new / old, so that less than 1 is
better; the interval is one for the median ratio that assumes no distribution (`paired.py`).
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import pkgutil
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import workloads
from benchmarks.machine import save
from benchmarks.paired import Side, order_of, summary
from benchmarks.process_tree import Measured, measured

ROOT = Path(__file__).parents[1]
PAIRS_MIN = 10
SHARED = ("__main__", "on_spark")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A workload with its arguments, and where everything is."""

    workload: str
    arguments: tuple[str, ...]
    folder: Path
    trees: Mapping[Side, Path]

    def step(self, step: str, side: Side) -> tuple[Measured, dict[str, Any]]:
        """Prepare the workload or run it with one side, and what a run reports; it ends us if it fails."""
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        src = self.trees[side] / "src"
        command = [sys.executable, "-m", "benchmarks.workloads", self.workload, step, src, self.folder / "data", work]
        done = measured([*map(str, command), *self.arguments], self._environment(src, work), work)
        if done.code != 0:
            sys.exit(f"{self.workload} failed with the {side} commit (exit code {done.code}):\n{done.output}")
        return done, json.loads((work / "report.json").read_text()) if step == "run" else {}

    def _environment(self, src: Path, work: Path) -> dict[str, str]:
        """Ours, without what could lead to another watersmeet; temporary files go where they are removed."""
        left_out = ("PYTHON", "PYSPARK", "SPARK", "WATERSMEET")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join((str(src), str(self.folder / "harness"))),
            "PYTHONHASHSEED": "0",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(work),
        }


@contextmanager
def worktrees(revisions: Mapping[Side, str], folder: Path) -> Iterator[dict[Side, Path]]:
    """Both revisions checked out below a folder, compiled; they are gone at the end."""
    trees: dict[Side, Path] = {side: folder / side for side in revisions}
    try:
        for side, tree in trees.items():
            git("worktree", "add", "--quiet", "--detach", str(tree), revisions[side])
            compileall.compile_dir(tree / "src", quiet=2)
        yield trees
    finally:
        for tree in trees.values():
            if tree.exists():
                git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def compare(comparison: Comparison, pairs: int) -> tuple[list[dict[str, dict[str, float]]], dict[str, Any]]:
    """The figures of all pairs, told as they are made, and what all runs report: arguments and findings."""
    comparison.step("prepare", "new")
    made: list[dict[str, dict[str, float]]] = []
    report: dict[str, Any] = {}
    print("pair        CPU old     new  new/old      wall old     new  new/old", flush=True)
    for pair in range(pairs):
        figures: dict[str, dict[str, float]] = {}
        for side in order_of(pair):
            done, this = comparison.step("run", side)
            report = report or this
            if this != report:
                sys.exit(f"the {side} commit has other results: {this}, and before {report}")
            figures[side] = {"cpu_s": round(done.cpu_s, 3), "wall_s": round(done.wall_s, 3)}
        made.append({side: figures[side] for side in ("old", "new")})
        columns = []
        for unit in ("cpu_s", "wall_s"):
            old, new = figures["old"][unit], figures["new"][unit]
            columns.append(f"{old:10.2f} {new:7.2f} {new / old:8.3f}")
        print(f"{pair + 1:4d}     {'     '.join(columns)}", flush=True)
    return made, report


def main() -> None:
    names = sorted(m.name for m in pkgutil.iter_modules(workloads.__path__) if m.name not in SHARED)
    ours, arguments = split(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="a git revision")
    parser.add_argument("new", help="a git revision")
    parser.add_argument("workload", choices=names)
    parser.add_argument("--pairs", type=int, default=PAIRS_MIN, help=f"pairs of runs (default {PAIRS_MIN})")
    args = parser.parse_args(ours)
    if args.pairs < 1:
        parser.error("at least one pair is needed")
    if args.pairs < PAIRS_MIN:
        print(f"warning: {args.pairs} pairs say little; {PAIRS_MIN} or more were meant", file=sys.stderr)
    asked_for: dict[Side, str] = {"old": args.old, "new": args.new}
    revisions = {side: git("rev-parse", "--verify", f"{name}^{{commit}}") for side, name in asked_for.items()}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-side-by-side-") as name,
        worktrees(revisions, Path(name)) as trees,
    ):
        without = shutil.ignore_patterns("results", "out", "__pycache__")
        shutil.copytree(Path(__file__).parent, Path(name) / "harness" / "benchmarks", ignore=without)
        pairs, report = compare(Comparison(args.workload, tuple(arguments), Path(name), trees), args.pairs)
    result: dict[str, Any] = {"workload": args.workload, **report}
    result["revisions"] = {side: {"asked_for": asked_for[side], "commit": revisions[side]} for side in revisions}
    for label, unit in (("CPU", "cpu_s"), ("wall time", "wall_s")):
        figures = summary([pair["new"][unit] / pair["old"][unit] for pair in pairs])
        result[f"{unit[:-2]}_new_over_old"] = figures
        interval = figures["interval_95"] or "none: too few pairs"
        print(f"{label}: median of new/old {figures['median_ratio']}, 95 % interval {interval}")
    for side in ("old", "new"):
        seconds = {
            unit: round(statistics.median(pair[side][unit] for pair in pairs), 3) for unit in ("cpu_s", "wall_s")
        }
        result[f"median_{side}"] = seconds
    print(f"written to {save(f'side_by_side_{args.workload}', {**result, 'pairs': pairs}).name}")


def split(given: list[str]) -> tuple[list[str], list[str]]:
    """Our arguments, and those of the workload, which follow `--`."""
    place = given.index("--") if "--" in given else len(given)
    return given[:place], given[place + 1 :]


if __name__ == "__main__":
    main()
