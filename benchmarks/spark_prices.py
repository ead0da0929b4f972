"""What Spark itself costs: the price of a stage of a micro-batch, and that of a row sent from one stage to the next.

    python -m benchmarks.spark_prices

Four streams joined in one, two or three stages, with different numbers of rows in a micro-batch, through Spark on
`local[2]`, two slots:

| stages | keys                                  | tree            |
|--------|---------------------------------------|-----------------|
| 1      | x over all                            | (a b c d)       |
| 2      | x over a, b and c; y over c and d     | ((a b c) d)     |
| 3      | x over a, b; y over b, c; z over c, d | (((a b) c) d)   |

Measured are CPU seconds, not those of the clock: user and system time of the driver, the JVM and all Python workers
(from /proc), for each micro-batch but the first SKIPPED, from one call of the sink to the next, after a run to warm up.
What the engine takes for the same micro-batches in process is taken off: that has prices of its own. What is left is
fitted by least squares of the relative error over all micro-batches:

    CPU - in process = micro-batch + stages x slots x stage_s + rows read x read_s + rows sent on x exchange_s

The first and the third are the same for all plans of a query, so the cost model has no use for them. Other work on the
machine makes all of this dearer than it need be: take the figures for what they are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession

from benchmarks.machine import save
from benchmarks.native_spark import session
from benchmarks.state_growth import mixed
from watersmeet import StreamJoin
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.spark.query import epochs_of
from watersmeet.state.measures import INTERMEDIATE

STREAMS = "abcd"
SCHEMA = "x BIGINT, y BIGINT, z BIGINT, ts TIMESTAMP, n BIGINT"
START_US = 1_700_000_000_000_000
BATCH_S = 10
SKIPPED = 4
SLOTS = 2
TREES = {
    1: ("(a b c d)", "a.x = b.x AND b.x = c.x AND c.x = d.x"),
    2: ("((a b c) d)", "a.x = b.x AND b.x = c.x AND c.y = d.y"),
    3: ("(((a b) c) d)", "a.x = b.x AND b.y = c.y AND c.z = d.z"),
}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One of them, by what it did and what it took."""

    stages: int
    rows: int
    sent: int
    """Results of one stage that went to the next."""
    cpu_s: float
    wall_s: float
    in_process_s: float
    """CPU of the same micro-batch in process, where nothing is sent."""

    @property
    def spark_s(self) -> float:
        return self.cpu_s - self.in_process_s


def generate(folder: Path, rows: int, batches: int, seed: int) -> None:
    """A file per stream and micro-batch; a row of a stream finds about one of another within the window."""
    rng = np.random.default_rng(seed)
    for name in STREAMS:
        (folder / name).mkdir(parents=True)
        for i in range(batches):
            ts = np.sort(rng.integers(0, BATCH_S * 1_000_000, rows)) + START_US + i * BATCH_S * 1_000_000
            keys = {key: rng.integers(0, rows, rows) for key in "xyz"}
            table = pa.table({**keys, "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")), "n": np.arange(rows)})
            path = folder / name / f"{i:04d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (START_US // 10**6 + i, START_US // 10**6 + i))


def cpu_seconds(pid: int) -> float:
    """Of a process and all its descendants, with those of them that have ended."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            parents.setdefault(int(after_name[1]), []).append(int(folder.name))
            ticks[int(folder.name)] = sum(map(int, after_name[11:15]))
    family = list(_descendants(pid, parents))
    return sum(ticks[each] for each in family if each in ticks) / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int, parents: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in parents.get(pid, ()):
        yield from _descendants(child, parents)


def run(spark: SparkSession, data: Path, out: Path, stages: int, rows: int) -> list[MicroBatch]:
    tree, where = TREES[stages]
    seen: list[tuple[float, float]] = []

    def sink(frame: DataFrame, epoch: int) -> None:
        seen.append((cpu_seconds(os.getpid()), time.perf_counter()))

    join = StreamJoin(spark)
    for name in STREAMS:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
        join = join.stream(name, reader.parquet(str(data / name)), eventTime="ts")
    join = join.where(where).within(f"{BATCH_S} seconds").options(plan=tree, slots=SLOTS)
    writer = join.select(*(f"{name}.n AS {name}n" for name in STREAMS)).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(out)).trigger(availableNow=True).start()
    query.awaitTermination()
    epochs, in_process = epochs_of(query), in_process_cpu_s(data, stages, len(seen))
    assert len(epochs) == len(seen), "one call of the sink for every epoch"
    found = []
    for i in range(SKIPPED, len(seen)):
        intermediate = epochs[i].totals.of(INTERMEDIATE) - epochs[i - 1].totals.of(INTERMEDIATE)
        cpu_s, wall_s = (now - then for now, then in zip(seen[i], seen[i - 1], strict=True))
        sent = intermediate if stages > 1 else 0
        found.append(MicroBatch(stages, rows * len(STREAMS), sent, cpu_s, wall_s, in_process[i]))
    return found


def in_process_cpu_s(data: Path, stages: int, batches: int) -> list[float]:
    """By micro-batch."""
    tree, where = TREES[stages]
    first = {name: pq.read_schema(data / name / "0000.parquet") for name in STREAMS}
    query = build_query(
        [Stream(name, schema, event_time="ts") for name, schema in first.items()],
        where=[where],
        within=f"{BATCH_S} seconds",
        windows={},
        select=[f"{name}.n AS {name}n" for name in STREAMS],
    )
    taken = []
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        engine = InProcessQuery(
            query, Path(folder), slots=SLOTS, hash_keys=mixed, trees=[parse_tree(tree, list(STREAMS))]
        )
        for i in range(batches):
            batch = {name: pq.read_table(data / name / f"{i:04d}.parquet") for name in STREAMS}
            began = time.process_time()
            engine.run(batch)
            taken.append(time.process_time() - began)
    return taken


def fitted(batches: list[MicroBatch]) -> dict[str, float]:
    """The prices with the least squares of relative errors; one that would be negative is 0."""
    names = ["micro_batch_s", "stage_s", "read_s", "exchange_s"]
    counts = np.array([[1, b.stages * SLOTS, b.rows, b.sent] for b in batches], dtype=np.float64)
    spent = np.array([b.spark_s for b in batches])
    used = list(range(len(names)))
    while True:
        prices = np.linalg.lstsq(counts[:, used] / spent[:, None], np.ones(len(spent)), rcond=None)[0]
        if (prices >= 0).all():
            break
        used.pop(int(np.argmin(prices / np.abs(prices).max())))
    found = dict.fromkeys(names, 0.0) | {names[i]: float(price) for i, price in zip(used, prices, strict=True)}
    error = np.abs(counts @ np.array([found[name] for name in names]) / spent - 1)
    return {name: float(f"{price:.3g}") for name, price in found.items()} | {
        "error_median": round(float(np.median(error)), 3),
        "error_p90": round(float(np.quantile(error, 0.9)), 3),
    }


def medians(batches: list[MicroBatch]) -> dict[str, Any]:
    columns = [asdict(batch) | {"spark_s": batch.spark_s} for batch in batches]
    return {name: round(statistics.median(each[name] for each in columns), 3) for name in columns[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 20_000, 60_000], help="per stream and batch")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    settings, everything = [], []
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        for rows in args.rows:
            generate(folder / f"{rows}", rows, args.batches, args.seed)
        spark = session("hdfs", SLOTS)
        spark.sparkContext.setLogLevel("ERROR")
        run(spark, folder / f"{args.rows[0]}", folder / "warm-up", max(TREES), args.rows[0])
        for rows in args.rows:
            for stages in TREES:
                out = folder / f"checkpoint-{rows}-{stages}"
                batches = run(spark, folder / f"{rows}", out, stages, rows)
                everything += batches
                settings.append(medians(batches))
                print({name: settings[-1][name] for name in settings[-1]}, flush=True)
        spark.stop()
    prices = fitted(everything)
    print(prices)
    result = {"workload": vars(args), "slots": SLOTS, "prices": prices, "medians": settings}
    print(f"written to {save('spark_prices', result).name}")


if __name__ == "__main__":
    main()
