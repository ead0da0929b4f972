"""Do the tasks of a slot stay on the host that has its state in memory? On a cluster of two hosts, in network and mount
namespaces of their own on one machine (Linux, as root).

    python -m benchmarks.staying_put [--batches 24] [--rows 2000] [--rounds 2]

One join of two streams, four slots on two workers of two cores each; every run is a new driver on the same cluster.

| mode        | settings of Spark                                                              |
|-------------|--------------------------------------------------------------------------------|
| as Spark is | `spark.sql.unionOutputPartitioning` false, so slots have no homes              |
| no locality | the same, `spark.shuffle.reduceLocality.enabled` false, `spark.locality.wait` 0 |
| homes       | none                                                                           |

Told are the share of slot tasks that ran on the host where their slot ran in the micro-batch before, the bytes fetched
cold per micro-batch, and the median time of a micro-batch, without the first five micro-batches. The number of results
must be the same in all runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from benchmarks.machine import save
from tests.spark.helpers import random_batches, write_batches
from tests.spark.hosts import TIER, Cluster, cluster_of, why_not

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
MODES = {"as Spark is": NO_HOMES, "no locality": {**NO_HOMES, **NO_LOCALITY}, "homes": {}}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--rows", type=int, default=2000, help="per stream and micro-batch")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
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
