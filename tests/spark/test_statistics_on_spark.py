"""Statistics of a running query: in progress, per partition group, and over restarts."""

import platform

import pytest

from tests.spark.helpers import join_of, output, random_batches, run, write_batches
from tests.spark.test_trees_on_spark import chain


def test_progress_tells_rates_selectivities_stores_and_costs(spark, tmp_path):
    batches = random_batches(seed=3, streams="abc", batches=3, rows=60, keys=10, batch_seconds=60)
    write_batches(tmp_path, batches)
    query = run(join_of(spark, tmp_path), tmp_path / "out", tmp_path / "ck")
    told = query.lastProgress["statistics"]
    assert told["arrivals"]["a"]["rows"] == batches[-1]["a"].num_rows
    assert told["arrivals"]["a"]["rowsPerEventSecond"] > 0
    assert 0 < told["selectivities"]["a.k = b.k"] < 1
    assert set(told["stores"]) == {"a", "b", "c"}
    assert sum(s["rows"] for s in told["stores"].values()) == query.lastProgress["stateOperators"][0]["numRowsTotal"]
    assert told["costsNs"]["insert"] > 0
    assert told["costsNs"]["join"] > 0
    assert [slot["executors"] for slot in told["slots"]] == [["driver"]] * len(told["slots"])
    assert {host for slot in told["slots"] for host in slot["hosts"]} == {platform.node()}
    assert sum(slot["rows"] for slot in told["slots"]) == sum(table.num_rows for table in batches[-1].values())
    assert min(query.partitionGroups()["cpu_ns"].to_pylist()) > 0
    received = sum(table.num_rows for batch in batches for table in batch.values())
    assert sum(slot["rows"] for slot in told["totals"]["slots"]) == received
    assert sum(slot["results"] for slot in told["totals"]["slots"]) == output(spark, tmp_path / "out").total()
    recent = told["recent"]
    assert recent["arrivals"]["a"]["rowsPerSecond"] == pytest.approx(1, rel=0.2)  # 60 rows a minute
    assert recent["selectivities"]["a.k = b.k"] == pytest.approx(told["selectivities"]["a.k = b.k"], rel=0.5)
    assert 0 < recent["stores"]["a"]["rows"] <= 180
    assert len(recent["slots"]) == len(told["slots"])
    assert min(slot["cpuPerSecond"] for slot in recent["slots"]) > 0
    (stage,) = told["partitionGroups"]
    assert stage["output"] == output(spark, tmp_path / "out").total()


@pytest.mark.parametrize("plan", ["(((a b c) d) e)", pytest.param("mjoin", marks=pytest.mark.long)])
def test_results_are_traced_through_all_stages_and_over_a_restart(spark, tmp_path, plan):
    batches = random_batches(seed=5, streams="abcde", batches=2, rows=20, keys=5, batch_seconds=60)
    for number, batch in enumerate(batches):
        write_batches(tmp_path, [batch], start=number)
        join = chain(spark, tmp_path, plan=plan, slots=2, partitions=8)
        query = run(join, tmp_path / "out", tmp_path / "ck")
    results = spark.read.parquet(str(tmp_path / "out")).count()
    table = query.partitionGroups().to_pandas()
    assert results > 500
    for _, groups in table.groupby("stage"):
        assert groups.output.sum() == pytest.approx(results, rel=0.25)
    assert set(table.slot) == {0, 1}
