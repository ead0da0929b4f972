"""Makes tests/data/checkpoint-v1 and its kind: small checkpoints of today, which every later version must go on with.

    python -m tests.spark.make_old_checkpoint [<name> ...]      those that are missing, or the named ones

Run it only to add a checkpoint (of a new format: change VERSION first): the old ones must stay as they are. The paths
of input files are part of what Spark remembers, so all is made below the neutral BASE. Every query runs in a process
of its own, without an end, and is stopped or killed after its first micro-batches.

A `Case` says what a checkpoint is of. It is all that a test needs to go on with it, by whatever version:

    tests/data/checkpoint-v1-<name>/README      what it is
                                    ck/         the checkpoint
                                    sent/<n>    what the sink had got of epoch n when the query ended (JSON rows)
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.oracle import canonical
from tests.spark.helpers import READINGS, join_of, random_batches, read_stream, write_batches
from tests.spark.session import SESSION_SETTINGS
from watersmeet import StreamJoin
from watersmeet.failpoints import VARIABLE

VERSION = "v1"
BASE = Path(f"/tmp/watersmeet-{VERSION}")
DATA = Path(__file__).parents[1] / "data"
KEPT = DATA / f"checkpoint-{VERSION}"
BATCHES_BEFORE = 3
BATCHES_AFTER = 2

Batches = list[dict[str, pa.Table]]


@dataclass(frozen=True, slots=True)
class Case:
    """A query that was ended after the first of its batches; the others are there to go on with."""

    name: str
    what: str
    batches: Callable[[], Batches]
    join: Callable[[SparkSession, Path], StreamJoin]
    """Over the streams below a folder."""
    before: int = BATCHES_BEFORE
    """How many batches went into the checkpoint."""
    mode: str = "append"
    failpoint: str | None = None
    """Where the driver was killed."""

    @property
    def kept(self) -> Path:
        return DATA / f"checkpoint-{VERSION}-{self.name}"

    def sent(self) -> dict[int, Counter]:
        """The rows that the sink had got, by epoch."""
        files = {int(file.name): json.loads(file.read_text()) for file in (self.kept / "sent").iterdir()}
        return {epoch: Counter(map(tuple, files[epoch])) for epoch in sorted(files)}


# --- checkpoint-v1 itself, which a finite run has made ---------------------------------------------------------------


def old_batches() -> Batches:
    """The batches that went into the checkpoint, and two more to go on with."""
    return drawn(13, "ab", rows=12, keys=4)


def old_join(spark: SparkSession, base: Path) -> StreamJoin:
    return join_of(spark, base, "ab").options(slots=2, partitions=16)


def drawn(seed: int, streams: str, rows: int, keys: int) -> Batches:
    batches = BATCHES_BEFORE + BATCHES_AFTER
    return random_batches(seed=seed, streams=streams, batches=batches, rows=rows, keys=keys, batch_seconds=30)


# --- the others ------------------------------------------------------------------------------------------------------


def spilled_batches() -> Batches:
    return drawn(14, "abc", rows=10, keys=8)


def spilled_join(spark: SparkSession, base: Path) -> StreamJoin:
    """One node over a key and a window; its memory is too small for what it keeps."""
    return join_of(spark, base).options(slots=2, partitions=16, plan="(a b c)", memoryBudget="4k")


def spilled_tree_join(spark: SparkSession, base: Path) -> StreamJoin:
    """The same as a tree, which keeps intermediate results, and without a window, so that nothing expires."""
    join = join_of(spark, base, within=None)
    return join.options(slots=2, partitions=16, plan="((a b) c)", memoryBudget="4k")


def aggregates_batches() -> Batches:
    return drawn(15, "ab", rows=12, keys=4)


def aggregates_of(spark: SparkSession, base: Path, *by: str) -> StreamJoin:
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, base / name, READINGS), eventTime="ts", delay="30 seconds")
    join = join.where("a.k = b.k").within("2 minutes").options(slots=2, partitions=16)
    return join.groupBy(*by)


def append_join(spark: SparkSession, base: Path) -> StreamJoin:
    """Sliding windows of 40 seconds, one every 20; a window is shown when the watermark has passed it."""
    windows = aggregates_of(spark, base, "a.name", "window(result_time, '40 seconds', '20 seconds')")
    return windows.select("a.name AS name", "window.start AS start", "count(*) AS n", "sum(b.v) AS total")


def complete_join(spark: SparkSession, base: Path) -> StreamJoin:
    """One row for each name, of all that was joined."""
    asked = ["count(*) AS n", "sum(a.v + b.v) AS total", "min(a.v) AS low", "max(b.name) AS last"]
    return aggregates_of(spark, base, "a.name").agg(*asked, "avg(b.v) AS mean", "count(DISTINCT b.v) AS kinds")


def chain_batches() -> Batches:
    return drawn(16, "abc", rows=5, keys=3)


def chain_join(spark: SparkSession, base: Path) -> StreamJoin:
    """Three streams over two keys, by a plan that is still to be chosen."""
    join = StreamJoin(spark)
    for name in "abc":
        join = join.stream(name, read_stream(spark, base / name, READINGS), eventTime="ts", delay="30 seconds")
    join = join.where("a.k = b.k AND b.name = c.name").within("1 minute").options(slots=2, partitions=16)
    return join.select(*(f"{name}.{column}" for name in "abc" for column in ("ts", "v")))


def hops_join(spark: SparkSession, base: Path) -> StreamJoin:
    """The same as one node over both keys, so that the store of b has an index under each."""
    return chain_join(spark, base).option("plan", "(a b c)")


CASES = {
    case.name: case
    for case in (
        Case("spilled", "groups have closed generations, which owe results", spilled_batches, spilled_join),
        Case("spilled-tree", "the same in a binary tree without windows", spilled_batches, spilled_tree_join),
        Case(
            "aggregates-append",
            "a windowed aggregate; some windows have been shown, others are open",
            aggregates_batches,
            append_join,
        ),
        Case("aggregates-complete", "running aggregates", aggregates_batches, complete_join, mode="complete"),
        Case(
            "unacknowledged",
            "the driver was killed when the last manifest was written, and before the sink got its results",
            old_batches,
            old_join,
            failpoint=f"after-manifest@{BATCHES_BEFORE}",
        ),
        Case("learning", "the plan is not yet chosen for good", chain_batches, chain_join, before=2),
        Case("hops", "one node over several keys, probed hop by hop", chain_batches, hops_join),
    )
}


# --- making them -----------------------------------------------------------------------------------------------------


def make(case: Case) -> None:
    shutil.rmtree(BASE, ignore_errors=True)
    write_batches(BASE, case.batches()[: case.before])
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if case.failpoint is not None:
        environment[VARIABLE] = case.failpoint
    code = subprocess.call([sys.executable, "-m", __spec__.name, "--run", case.name], env=environment)
    assert code == (0 if case.failpoint is None else -signal.SIGKILL), f"{case.name} ended with {code}"
    shutil.rmtree(case.kept, ignore_errors=True)
    # Checksum files of Hadoop and the lock say nothing that the checkpoint needs.
    shutil.copytree(BASE / "ck", case.kept / "ck", ignore=shutil.ignore_patterns("*.crc", "lock"))
    shutil.copytree(BASE / "sent", case.kept / "sent")
    (case.kept / "README").write_text(
        f"A checkpoint of format {VERSION}: {case.what}.\n"
        f"{case.before} micro-batches went in. It was made by tests/spark/make_old_checkpoint.py below {BASE}\n"
        "(the paths in ck/spark/sources), and is never made again: test_old_checkpoint.py shows that a query goes on\n"
        f'with it. The rows and the query are those of CASES["{case.name}"] there; sent/<n> is what the sink\n'
        "had got of epoch n.\n"
    )
    shutil.rmtree(BASE)


def run(case: Case) -> None:
    """The query over BASE, which ends when all there is has been joined, or where it is killed."""
    builder = SparkSession.builder.master("local[2]")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    sent = BASE / "sent"
    sent.mkdir()

    def keep(results: DataFrame, epoch: int) -> None:
        rows = sorted(canonical(results.toArrow()).elements(), key=repr)
        (sent / str(epoch)).write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")

    writer = case.join(spark, BASE).writeStream.outputMode(case.mode).foreachBatch(keep)
    query = writer.option("checkpointLocation", str(BASE / "ck")).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    query.stop()
    spark.stop()


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run(CASES[sys.argv[2]])
        return
    for case in CASES.values():
        if case.name in sys.argv[1:] or (not sys.argv[1:] and not case.kept.exists()):
            make(case)


if __name__ == "__main__":
    main()
