"""What it costs a young query that its plan is not given: `auto` against given plans, every run in a JVM of its own.

    python -m benchmarks.start_up [--rounds 5]

A chain of three streams over two keys, a.x = b.x AND b.y = c.y; a and b match often, b and c seldom. Rows are read from
Parquet files, one per stream and micro-batch.

| figure  | is                                                                                        | aim    |
|---------|-------------------------------------------------------------------------------------------|--------|
| tiny    | the first two micro-batches of `auto`, 50 rows of each stream, against those of the tree  | <= 1.1 |
|         | that is its fallback, given as option `plan`                                              |        |
| backlog | the one micro-batch of `auto` over a backlog, against that of the given tree that is the  | <= 1.5 |
|         | best for it                                                                               |        |

The time of a micro-batch is Spark's `triggerExecution`. A round runs all plans once, in turn, so that a busy machine
slows all of them; a figure is the median, over the rounds, of the ratio within a round. The plan that `auto` starts
with, the plan that it ends with, and equal results are asserted before a figure is told.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import save

NAMES = ("a", "b", "c")
FALLBACK, BEST, WORST = "(a b c)", "(a (b c))", "((a b) c)"
TINY_ROWS, BATCHES = 50, 2
SECONDS, WINDOW = 60, "10 seconds"
MATCHES = 60
"""Rows of b that a row of a matches within the window."""
START_US = 1_700_000_000_000_000
SCHEMA = "x BIGINT, y BIGINT, n BIGINT, ts TIMESTAMP"


def generate(folder: Path, rows: int, batches: int, seed: int) -> None:
    """Files of so many rows. Values of x are few, those of y are as many as there are rows."""
    rng = np.random.default_rng(seed)
    few = max(1, rows * batches * 10 // SECONDS // MATCHES)
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        for number in range(batches):
            times = np.sort(rng.integers(number * SECONDS * 10**6, (number + 1) * SECONDS * 10**6, rows)) + START_US
            x, y, n = rng.integers(0, few, rows), rng.integers(0, rows * 10, rows), rng.integers(0, 1 << 40, rows)
            table = pa.table({"x": x, "y": y, "n": n, "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC"))})
            pq.write_table(table, folder / name / f"{number:04d}.parquet")


def run(data: Path, plan: str) -> dict[str, Any]:
    """One run, in this process: the time of its first micro-batches, its plans and its results."""
    from benchmarks.native_spark import session
    from watersmeet import StreamJoin

    spark = session("hdfs", 2)
    spark.sparkContext.setLogLevel("ERROR")
    join = StreamJoin(spark).options(plan=plan, slots=2)
    for name in NAMES:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(data / name))
        join = join.stream(name, rows, eventTime="ts")
    join = join.where("a.x = b.x AND b.y = c.y").within(WINDOW).select("a.n AS an", "b.n AS bn", "c.n AS cn")
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        writer = join.writeStream.trigger(availableNow=True)
        query = writer.start(f"{folder}/out", checkpointLocation=f"{folder}/checkpoint")
        query.awaitTermination()
        told = [progress for progress in query.recentProgress if progress["numInputRows"]]
        results = spark.read.parquet(f"{folder}/out")
        found = results.selectExpr("count(*)", "coalesce(sum(pmod(an + 3 * bn + 7 * cn, 1000003)), 0)").first()
        events = [event for progress in told for event in progress["adaptations"]]
    spark.stop()
    return {
        "ms": [progress["durationMs"]["triggerExecution"] for progress in told],
        "plans": [event["plan"] for event in events if event["kind"] in ("plan", "migrate")],
        "fallback": [event["plan"] for event in events if event["kind"] == "plan" and "fallback" in event],
        "results": list(found),
    }


def in_new_jvm(data: Path, plan: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.start_up", "--child", str(data), plan]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{plan}: {done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(data: Path, plans: tuple[str, ...], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """All runs by plan, round by round."""
    found: dict[str, list[dict[str, Any]]] = {plan: [] for plan in plans}
    for number in range(rounds):
        for plan in plans if number % 2 == 0 else reversed(plans):
            found[plan].append(in_new_jvm(data, plan))
            print(f"round {number}  {plan:10} {found[plan][-1]['ms']} {found[plan][-1]['plans']}", flush=True)
    results = {tuple(run["results"]) for runs in found.values() for run in runs}
    assert len(results) == 1, f"plans have different results: {results}"
    return found


def ratios(found: dict[str, list[dict[str, Any]]], against: str) -> list[float]:
    pairs = zip(found["auto"], found[against], strict=True)
    return [round(sum(auto["ms"]) / sum(given["ms"]), 3) for auto, given in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=150_000, help="rows of each stream in the backlog")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("tiny", "backlog"))
    parser.add_argument("--child", nargs=2, metavar=("DATA", "PLAN"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run(Path(args.child[0]), args.child[1])))
        return
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        if args.only != "backlog":
            generate(Path(folder) / "tiny", TINY_ROWS, BATCHES, args.seed)
            found = measured(Path(folder) / "tiny", ("auto", FALLBACK), args.rounds)
            assert all(len(run["ms"]) == BATCHES for runs in found.values() for run in runs)
            assert all(run["fallback"] == [FALLBACK] == run["plans"] for run in found["auto"]), "no fallback"
            told["tiny"] = _told("tiny", ratios(found, FALLBACK), FALLBACK, found)
        if args.only != "tiny":
            generate(Path(folder) / "backlog", args.rows, 1, args.seed)
            found = measured(Path(folder) / "backlog", ("auto", FALLBACK, BEST, WORST), args.rounds)
            best = min((FALLBACK, BEST, WORST), key=lambda plan: statistics.median(run["ms"][0] for run in found[plan]))
            assert all(run["fallback"] == [] and run["plans"] for run in found["auto"]), "the backlog was not sampled"
            told["backlog"] = _told("backlog", ratios(found, best), best, found)
    del args.child
    print(f"written to {save('start_up', {'workload': vars(args), **told}).name}")


def _told(name: str, found: list[float], against: str, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    median = round(statistics.median(found), 2)
    print(f"{name}: auto takes {median}x the time of {against}; rounds {found}")
    base = statistics.median(sum(run["ms"]) for run in runs[against])
    others = {plan: round(statistics.median(sum(run["ms"]) for run in each) / base, 2) for plan, each in runs.items()}
    return {"auto_over": median, "against": against, "rounds": found, "medians_over": others, "runs": runs}


if __name__ == "__main__":
    main()
