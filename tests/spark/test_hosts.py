"""On two hosts with memory of their own: slots stay at home; where they wander, each host keeps to its budget."""

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tests.observer import Observer
from tests.oracle import canonical, duckdb_join
from tests.spark.helpers import Batch, join_of, output, random_batches, until, write_batches
from tests.spark.hosts import TIER, Cluster, cluster_of, why_not
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.checkpoint import Checkpoint

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800), pytest.mark.skipif(bool(why_not()), reason=why_not())]

SLOTS, BUDGET, WITHIN = 4, 40_000, "8 minutes"
SETTINGS = {
    "spark.master": "spark://10.77.0.1:7077",
    "spark.driver.host": "10.77.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Both hosts are there from the first epoch on.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.task.maxFailures": "20",
    "spark.stage.maxConsecutiveAttempts": "20",
}
WANDERING = {
    "spark.sql.unionOutputPartitioning": "false",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "0s",
}
"""Slots have no homes, and any may run on either host."""


class Run:
    """A query on a cluster, and what it has come to."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = folder, cluster
        options = {"slots": SLOTS, "memoryBudget": BUDGET, "memoryLocation": f"{TIER}", "within": WITHIN}
        command = [sys.executable, "-m", "tests.spark.hosts_program", f"{folder}", json.dumps(options)]
        self.driver = cluster.driver.start(command, SPARK_CONF_DIR=f"{folder / 'conf'}")

    @property
    def epoch(self) -> int:
        manifests = list((Checkpoint(self.folder / "ck").folder / "manifests").glob("*.json"))
        return max((int(path.stem) for path in manifests), default=-1)

    def wait_for(self, epoch: int) -> None:
        until(lambda: self.epoch >= epoch or self.driver.poll() is not None, 600, f"epoch {epoch}")
        assert self.driver.poll() is None, f"it ended too soon: {self.log()}"

    def told(self) -> list[dict]:
        """The statistics of all micro-batches, at the end."""
        assert self.driver.wait(600) == 0, self.log()
        return [json.loads(line) for line in (self.folder / "progress.json").read_text().splitlines()]

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-4000:]


def where(told: Sequence[dict]) -> list[list[str]]:
    """The host of every slot, by micro-batch."""
    return [["".join(slot["hosts"]) for slot in found["slots"]] for found in told]


def right(spark: SparkSession, folder: Path, batches: Sequence[Batch]) -> Counter:
    """The results, by DuckDB; no row is late."""
    query = pieces_of(join_of(spark, folder, "ab", within=WITHIN)).build()[0]
    joined = duckdb_join(replace(query, residuals=()), {n: pa.concat_tables(b[n] for b in batches) for n in "ab"})
    return canonical(joined.filter(pc.not_equal(joined["a_v"], pc.add(joined["b_v"], 3))))


@pytest.mark.long
def test_slots_that_wander_and_a_worker_that_is_killed(spark, tmp_path):
    batches = random_batches(seed=19, streams="ab", batches=50, rows=300, keys=300)
    write_batches(tmp_path, batches)
    with cluster_of(2, tmp_path, SETTINGS | WANDERING) as cluster:
        first, second = cluster.workers
        with Observer(first.tier, steady=True) as in_first, Observer(second.tier, steady=True) as in_second:
            run = Run(tmp_path, cluster)
            run.wait_for(25)
            first.kill_processes()
            run.wait_for(38)
            cluster.start_worker(first, 2)
            told = run.told()
        processes = {pid for host in (cluster.driver, *cluster.workers) for pid in (host.pid, *host.processes())}
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), 30, "all processes to end")
    assert not os.path.ismount(TIER)

    budget = BUDGET * SLOTS // 2
    print(f"{len(told)} micro-batches, budget {budget} per host, most {in_first.most()} and {in_second.most()}")
    print(f"looks: {len(in_first.samples)} and {len(in_second.samples)}")
    assert 0.8 * budget < in_first.most() <= budget
    assert 0.8 * budget < in_second.most() <= budget
    assert output(spark, tmp_path / "out") == right(spark, tmp_path, batches)

    places = defaultdict(list)
    for slots in where(told):
        for slot, host in enumerate(slots):
            places[slot].append(host)
    moves = {slot: sum(a != b for a, b in pairwise(at)) for slot, at in places.items()}
    print(f"moves of slots: {moves}, hosts {[sorted(found['hosts']) for found in told]}")
    assert all(moved > 5 for moved in moves.values())
    assert sum(found["hosts"].get("worker1", {}).get("fetchedColdBytes", 0) for found in told) > 0


def test_slots_stay_at_home_and_return_to_it(spark, tmp_path):
    batches = random_batches(seed=20, streams="ab", batches=40, rows=100, keys=100)
    write_batches(tmp_path, batches)
    with cluster_of(2, tmp_path, SETTINGS) as cluster:
        first = cluster.workers[0]
        run = Run(tmp_path, cluster)
        run.wait_for(9)
        first.kill_processes()
        run.wait_for(15)
        cluster.start_worker(first, 2)
        told = run.told()
    assert output(spark, tmp_path / "out") == right(spark, tmp_path, batches)

    places = where(told)
    print(places)
    # A task goes elsewhere if its home has had no free core for three seconds, which a busy machine may bring about.
    for quiet in (places[1:9], places[-8:]):
        usual = Counter(map(tuple, quiet)).most_common(1)[0][0]
        assert Counter(usual) == {"worker1": SLOTS // 2, "worker2": SLOTS // 2}
        stayed = sum(host == home for slots in quiet for host, home in zip(slots, usual, strict=True))
        assert stayed >= 0.9 * SLOTS * len(quiet)
    assert ["worker2"] * SLOTS in places
    cold = [sum(slot["fetchedColdBytes"] for slot in found["slots"]) for found in told]
    assert sorted(cold[2:9])[3] == 0, cold
