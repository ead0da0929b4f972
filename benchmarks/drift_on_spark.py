"""The drift of `drift.py` on Spark: the run-time optimiser against all fixed plans and a clairvoyant, as wall time.

    python -m benchmarks.drift_on_spark [--seeds 2]

The same chain and the same swap of selectivities (dissertation 16.4), with larger micro-batches read from Parquet
files, `local[2]`. The clairvoyant is a rehearsal: `option("rehearse", ...)` with a migration by moving state where a
regime begins, to the plan that was the cheapest fixed one in the second half of that regime. All others run before it,
in turn, in a JVM that a shorter drift has warmed up; the wall time is that from the end of the first window to the end
of the last micro-batch. Equal results, that the clairvoyant migrated when it was told to, and that fixed plans stayed
as they were, are asserted before a figure is told.

| figure           | aim                                               |
|------------------|---------------------------------------------------|
| ours             | <= 0.8 x the best fixed plan, <= 1.25 clairvoyant |
| the clairvoyant  | <= 0.6 x the best fixed plan                      |
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

from benchmarks.drift import FIXED, NAMES, START_US, Setting, batches
from benchmarks.machine import save
from benchmarks.native_spark import session
from watersmeet import StreamJoin

WINDOW = 6
"""Seconds, and micro-batches."""
SETTING = Setting(rate=25_000, few=3_000, many=15_000_000, regimes=(20, 20, 20, 20))
WARM_UP = Setting(rate=2_500, few=300, many=1_500_000, regimes=(7, 7))
OURS, CLAIRVOYANT = "ours", "clairvoyant"


def generate(folder: Path, setting: Setting, seed: int) -> None:
    """One file per stream and micro-batch, in the order of their times."""
    for epoch, batch in enumerate(batches(setting, seed)):
        for name, table in batch.items():
            path = folder / name / f"{epoch:04d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path)
            os.utime(path, (START_US // 10**6 + epoch, START_US // 10**6 + epoch))


def run(spark: SparkSession, data: Path, folder: Path, options: Mapping[str, str]) -> dict[str, Any]:
    """One query over all micro-batches: seconds by micro-batch, wall time after the first window, plans, results."""
    join = StreamJoin(spark).options(slots=2, **options)
    for name in NAMES:
        reader = spark.readStream.schema("x BIGINT, y BIGINT, n BIGINT, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
        join = join.stream(name, reader.parquet(str(data / name)), eventTime="ts")
    join = join.where("a.x = b.x AND b.y = c.y").within(f"{WINDOW} seconds")
    join = join.select(*(f"{name}.n AS {name}n" for name in NAMES))
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-", dir=folder) as work:
        writer = join.writeStream.trigger(availableNow=True)
        query = writer.start(f"{work}/out", checkpointLocation=f"{work}/checkpoint")
        query.awaitTermination()
        told = [progress for progress in query.recentProgress if progress["numInputRows"]]
        columns = ", ".join(f"{name}n" for name in NAMES)
        judge = f"SELECT count(*), sum(hash({columns}) % 1000003) FROM read_parquet('{work}/out/*.parquet')"
        found = duckdb.connect().execute(judge).fetchone()
    assert found is not None
    seconds = [progress["durationMs"]["triggerExecution"] / 1000 for progress in told]
    migrations = [
        (number, event["plan"])
        for number, progress in enumerate(told)
        for event in progress["adaptations"]
        if event["kind"] == "migrate"
    ]
    return {
        "seconds": seconds,
        "wall_s": _at(told[-1]) + seconds[-1] - _at(told[WINDOW]),
        "migrations": migrations,
        "found": [int(found[0]), int(found[1] or 0)],
    }


def _at(progress: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def best_by_regime(setting: Setting, fixed: Mapping[str, dict[str, Any]]) -> list[str]:
    """By regime, the fixed plan that was the quickest in the second half of it."""
    edges = np.cumsum([0, *setting.regimes])
    halves = [((low + high) // 2, high) for low, high in pairwise(edges)]
    return [min(fixed, key=lambda plan: sum(fixed[plan]["seconds"][low:high])) for low, high in halves]


def rehearsal(setting: Setting, plans: list[str]) -> str:
    """A migration at the end of each regime but the last. One by moving state takes an epoch, which counts."""
    edges = np.cumsum(setting.regimes)[:-1]
    return "; ".join(
        f"{edge - 1 + number}: migrate {plan} moving-state"
        for number, (edge, plan) in enumerate(zip(edges, plans[1:], strict=True))
    )


def measure(spark: SparkSession, setting: Setting, folder: Path, seed: int) -> dict[str, Any]:
    data = folder / f"data-{setting.rate}-{seed}"
    generate(data, setting, seed)
    fixed = {plan: run(spark, data, folder, {"plan": plan, "reoptimize": "off"}) for plan in FIXED}
    assert not any(side["migrations"] for side in fixed.values())
    plans = best_by_regime(setting, fixed)
    ours = run(spark, data, folder, {})
    script = rehearsal(setting, plans)
    seer = run(spark, data, folder, {"plan": plans[0], "reoptimize": "off", "rehearse": script})
    assert [plan for _, plan in seer["migrations"]] == plans[1:], f"{script} became {seer['migrations']}"
    assert len({tuple(side["found"]) for side in (*fixed.values(), ours, seer)}) == 1, "results differ"
    best = min(side["wall_s"] for side in fixed.values())
    return {
        "seed": seed,
        "best_plans": plans,
        "wall_s": {
            name: round(side["wall_s"], 2) for name, side in (*fixed.items(), (OURS, ours), (CLAIRVOYANT, seer))
        },
        "migrations_of_ours": ours["migrations"],
        "results": ours["found"][0],
        "ours_to_best_fixed": round(ours["wall_s"] / best, 3),
        "ours_to_clairvoyant": round(ours["wall_s"] / seer["wall_s"], 3),
        "clairvoyant_to_best_fixed": round(seer["wall_s"] / best, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        spark = session("hdfs", 2)
        spark.sparkContext.setLogLevel("ERROR")
        measure(spark, WARM_UP, Path(name), seed=99)
        for seed in range(given.seeds):
            found.append(measure(spark, SETTING, Path(name), seed))
            print(found[-1], flush=True)
        spark.stop()
    print(save("drift_on_spark", {"setting": repr(SETTING), "seeds": found}))


if __name__ == "__main__":
    main()
