"""S5's first experiment (Fig. 16, ratios 3,1,1) through Spark on two slots: the product, not the simulation.

Streams are Parquet files, a file of every stream a micro-batch; results are written as Parquet, and their number and
checksum compared with the whole join's before a figure is told. Results over virtual time do not depend on the clock:
what a policy keeps in memory decides which results come early.

    python -m benchmarks.figures.on_spark [--policies a,b] [--minutes 50]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.figures.plotting import COLOURS, Line, draw, styled
from benchmarks.figures.s5_five_streams import BUDGET_BYTES, ROWS, TUPLE_RANGE
from benchmarks.figures.streams import PARTITIONS, Workload, five_streams
from benchmarks.machine import save
from watersmeet import StreamJoin
from watersmeet.runtime.spark.query import epochs_of
from watersmeet.state.measures import MEMORY_BYTES, RESULTS

POLICIES = ("global-output-penalty", "bottom-up")
BATCH_S = 60


def write_streams(workload: Workload, folder: Path) -> int:
    """A file of every stream for each micro-batch, in the order that Spark takes them; how many there are."""
    count = 0
    for count, batch in enumerate(workload.batches(BATCH_S), 1):
        for name, table in batch.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            path = folder / name / f"{count:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + count, 1_700_000_000 + count))
    return count


def run(spark: SparkSession, workload: Workload, folder: Path, policy: str | None, budget: int) -> dict[str, Any]:
    """One run to the end, clean-up included; what it had produced after every micro-batch."""
    join = StreamJoin(spark)
    for stream in workload.query.streams:
        schema = "x BIGINT, y BIGINT, n BIGINT"
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        join = join.stream(stream.name, reader.parquet(str(folder / "in" / stream.name)))
    join = join.where("a.x = b.x AND b.x = c.x").where("c.y = d.x").where("d.y = e.x")
    join = join.select(*(f"{s.name}.n AS {s.name}n" for s in workload.query.streams))
    join = join.options(slots=2, partitions=PARTITIONS, plan=workload.plan)
    if policy is not None:
        join = join.options(spill=policy, memoryBudget=budget)
    name = policy or "memory"
    out = folder / f"out-{name}"
    writer = join.writeStream.format("parquet").option("path", str(out))
    query = writer.option("checkpointLocation", str(folder / f"ck-{name}")).trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.read.parquet(str(out)).agg(F.count("*"), F.sum("cn")).first()
    assert found is not None
    assert (found[0], found[1]) == (workload.results, workload.checksum), f"{name}: {tuple(found)}"
    timely = [epoch for epoch in epochs_of(query) if not epoch.is_cleaning]
    results, total = [], 0
    for epoch in timely:
        total += epoch.count(RESULTS)
        results.append(total)
    return {
        "policy": name,
        "results": results,
        "memory_bytes": [epoch.count(MEMORY_BYTES) for epoch in timely],
        "run_results": total,
        "clean_up_results": workload.results - total,
        "spills": sum(event.kind == "spill" for epoch in epochs_of(query) for event in epoch.events),
        "clean_up_epochs": len(epochs_of(query)) - len(timely),
    }


def plot(workload: Workload, runs: list[dict[str, Any]], budget: int) -> None:
    minutes = [
        workload.minutes(min(n * BATCH_S * 1000 // workload.interarrival_ms, workload.rows)) for n in range(1, 999)
    ]
    for name, figure, unit, scale in (
        ("results", "fig16_on_spark", "results so far (million)", 1e6),
        ("memory_bytes", "fig17_on_spark_memory", "files in memory, both slots (MB)", 1e6),
    ):
        lines = [
            Line(r["policy"], minutes[: len(r[name])], [v / scale for v in r[name]], **styled(r["policy"]))
            for r in sorted(runs, key=lambda r: -r["run_results"])
            if r["policy"] in COLOURS
        ]
        limit = (2 * budget / scale, "budget of both slots") if name == "memory_bytes" else None
        title = f"{workload.plan} on Spark, join ratios {workload.name}, 2 slots"
        draw(figure, lines, title=title, x="virtual time (minutes)", y=unit, limit=limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=",".join(POLICIES))
    chosen = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    workload = five_streams((3, 1, 1), seed=1, rows=ROWS, tuple_range=TUPLE_RANGE)
    builder = SparkSession.builder.master("local[2]").appName("figures").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    with tempfile.TemporaryDirectory(prefix="watersmeet-figures-") as name:
        folder = Path(name)
        batches = write_streams(workload, folder / "in")
        print(f"{batches} micro-batches, {workload.results:,} results in all")
        runs = []
        for policy in chosen.policies.split(","):
            runs.append(run(spark, workload, folder, policy, BUDGET_BYTES))
            told = runs[-1]
            print(
                f"{policy:24} {told['run_results']:>10,} results at run time, {told['clean_up_results']:>10,} in "
                f"{told['clean_up_epochs']} epochs of clean-up, {told['spills']} spills; all equal to the whole join"
            )
    spark.stop()
    plot(workload, runs, BUDGET_BYTES)
    save("spill_on_spark", {"ratios": workload.name, "budget_bytes": BUDGET_BYTES, "runs": runs})


if __name__ == "__main__":
    main()
