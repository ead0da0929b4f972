"""Do the tasks of a slot stay on the host that has its state in memory? On a cluster of two hosts, in network and mount
namespaces of their own on one machine (Linux, as root).

    python -m benchmarks.staying_put [--batches 24] [--rows 2000] [--rounds 2]
    python -m benchmarks.staying_put --planning

One join of two streams, four slots on two workers of two cores each; every run is a new driver on the same cluster.

| mode        | settings of Spark                                                              |
|-------------|--------------------------------------------------------------------------------|
| as Spark is | `spark.sql.unionOutputPartitioning` false, so slots have no homes              |
| no locality | the same, `spark.shuffle.reduceLocality.enabled` false, `spark.locality.wait` 0 |
| homes       | none                                                                           |
| no waiting  | `spark.locality.wait` 0: slots have homes, and Spark does not wait for them    |

Told are the share of slot tasks that ran on the host where their slot ran in the micro-batch before, the bytes fetched
cold per micro-batch, and the median time of a micro-batch, without the first five micro-batches. The number of results
must be the same in all runs.

With `--planning` it tells instead what homes cost the driver: the time to build and plan a shuffle of ten columns to 4
or 64 slots, with and without an anchor, in turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.machine import save
from tests.spark.helpers import random_batches, write_batches
from tests.spark.hosts import TIER, Cluster, cluster_of, why_not
from watersmeet.plan.frame import HASH
from watersmeet.runtime.spark.homes import anchor_at

SLOTS, BUDGET, LEFT_OUT = 4, 4 << 20, 5
SETTINGS = {
    "spark.master": "spark://10.77.0.1:7077",
    "spark.driver.host": "10.77.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
NO_HOMES = {"spark.sql.unionOutputPartitioning": "false"}
NO_LOCALITY = {"spark.shuffle.reduceLocality.enabled": "false", "spark.locality.wait": "0s"}
MODES = {
    "as Spark is": NO_HOMES,
    "no locality": {**NO_HOMES, **NO_LOCALITY},
    "homes": {},
    "no waiting": {"spark.locality.wait": "0s"},
}


def run(cluster: Cluster, folder: Path, settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """The statistics of all micro-batches of one run over the streams in the folder."""
    conf = folder / "conf"
    conf.mkdir()
    lines = [f"{name} {value}\n" for name, value in {**SETTINGS, **settings}.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    options = {"slots": SLOTS, "memoryBudget": BUDGET, "memoryLocation": f"{TIER}", "within": "8 minutes"}
    command = [sys.executable, "-m", "tests.spark.hosts_program", f"{folder}", json.dumps(options)]
    if cluster.driver.start(command, SPARK_CONF_DIR=f"{conf}").wait(900):
        sys.exit((folder.parent / "driver.log").read_text(errors="replace")[-4000:])
    return [json.loads(line) for line in (folder / "progress.json").read_text().splitlines()]


def figures(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    places = [{slot["slot"]: tuple(slot["hosts"]) for slot in one["slots"]} for one in told]
    stayed = [last[slot] == host for last, now in list(pairwise(places))[LEFT_OUT - 1 :] for slot, host in now.items()]
    cold = [sum(slot["fetchedColdBytes"] for slot in one["slots"]) for one in told[LEFT_OUT:]]
    times = [one["durationMs"]["triggerExecution"] for one in told[LEFT_OUT:]]
    return {
        "micro_batches": len(times),
        "stayed": round(sum(stayed) / len(stayed), 3),
        "cold_bytes_per_batch": round(sum(cold) / len(cold)),
        "median_ms": round(median(times)),
        "least_ms": min(times),
        "median_join_ms": round(median(one["durationMs"]["join"] for one in told[LEFT_OUT:])),
    }


def planning(repeats: int = 60) -> dict[str, Any]:
    """Milliseconds to plan a shuffle, median and least."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.adaptive.enabled", "false").getOrCreate()
    columns = [f"id + {number} AS c{number}" for number in range(8)]
    rows = spark.range(1000).selectExpr("id", f"hash(id) AS {HASH}", *columns)
    host = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keys().mkString(",").rpartition(":")[0]
    slot = "CASE WHEN _hash < 0 THEN 0 WHEN _hash < 9 THEN 2 ELSE 1 END"
    found: dict[str, Any] = {}
    for slots in (4, 64):
        anchor = anchor_at(spark, [host] * slots)
        assert anchor is not None
        times: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(repeats):
            for mode, took in times.items():
                started = time.perf_counter()
                sent = anchor.split(rows, slot) if mode == "with" else rows.repartitionById(slots, F.expr(slot))
                planned: Any = sent.select(HASH)._jdf.queryExecution()
                planned.toRdd()
                took.append(1000 * (time.perf_counter() - started))
        for mode, took in times.items():
            late = took[repeats // 3 :]
            found[f"{slots} slots, {mode}"] = {"median": round(median(late), 1), "least": round(min(late), 1)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--rows", type=int, default=2000, help="per stream and micro-batch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--planning", action="store_true", help="measure what homes cost the driver")
    given = parser.parse_args()
    if given.planning:
        print(save("staying_put_planning", {"planning_ms": planning()}).read_text())
        return
    if reason := why_not():
        sys.exit(reason)
    batches = random_batches(seed=19, streams="ab", batches=given.batches, rows=given.rows, keys=given.rows)
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as made:
        shared = Path(made)
        results = set()
        with cluster_of(2, shared, SETTINGS) as cluster:
            for number in range(given.rounds):
                for mode, settings in MODES.items():
                    folder = shared / f"{mode.replace(' ', '_')}{number}"
                    folder.mkdir()
                    write_batches(folder, batches)
                    found[mode].append(figures(run(cluster, folder, settings)))
                    results.add(sum(pq.read_metadata(path).num_rows for path in (folder / "out").glob("*.parquet")))
                    print(f"{mode}: {found[mode][-1]}", flush=True)
    assert len(results) == 1, results
    save("staying_put", {"arguments": vars(given), "results": results.pop(), "runs": found})


if __name__ == "__main__":
    main()
