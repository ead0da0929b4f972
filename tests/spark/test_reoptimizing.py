"""The optimiser of a running query on Spark: it changes a plan that costs too much, by itself or when it may."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.drifting import NAMES, SCHEMA
from tests.spark.helpers import read_stream, run, write_batches
from watersmeet import StreamJoin, WatersmeetError
from watersmeet.cli.commands import main
from watersmeet.plan.fingerprint import plan_text
from watersmeet.runtime.spark.learning import LARGE_BYTES, plan_for_batch, size_bytes
from watersmeet.runtime.spark.source import unite
from watersmeet.runtime.spark.stream_join import pieces_of

BATCHES, ROWS, SECONDS = 14, 600, 10
"""A window is six micro-batches, and a better plan must have been that for a window."""
FALLBACK = "(a b c)"
WRONG, RIGHT = "((a b) c)", "(a (b c))"


def batches(count: int = BATCHES, first: int = 0) -> list[dict[str, pa.Table]]:
    """Rows of a and b match often, those of b and c hardly ever."""
    rng = np.random.default_rng(first)
    found = []
    for number in range(first, first + count):
        batch = {}
        for name in NAMES:
            times = number * SECONDS * 1_000_000 + np.sort(rng.integers(0, SECONDS * 1_000_000, ROWS))
            columns = [rng.integers(0, 40, ROWS), rng.integers(0, 100_000, ROWS), rng.integers(0, 1 << 40, ROWS), times]
            batch[name] = pa.table([pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
        found.append(batch)
    return found


def at_once(spark, base) -> StreamJoin:
    """The same over all rows in one micro-batch."""
    return chain(spark, base, maxFilesPerTrigger=None)


def chain(spark, base, **options: object) -> StreamJoin:
    join = StreamJoin(spark).options(slots=2, partitions=16)
    for name in NAMES:
        join = join.stream(name, read_stream(spark, base / name, SCHEMA, **options), eventTime="ts")
    return join.where("a.x = b.x AND b.y = c.y").within("60 seconds").select("a.n AS an", "b.n AS bn", "c.n AS cn")


def events(checkpoint, kind: str) -> list[dict]:
    lines = [line for log in checkpoint.rglob("events.jsonl") for line in log.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.fixture
def feed(tmp_path):
    write_batches(tmp_path / "feed", batches())
    return tmp_path / "feed"


def results(spark, folder) -> list:
    return sorted(map(tuple, spark.read.parquet(str(folder)).select("an", "bn", "cn").collect()))


def test_a_plan_that_costs_too_much_is_changed_and_no_result_is_lost(spark, feed, tmp_path):
    adapted = chain(spark, feed).options(plan=WRONG, reoptimize="10 seconds")
    run(adapted, tmp_path / "out", tmp_path / "ck")
    (migration,) = events(tmp_path / "ck", "migrate")
    assert (migration["previousPlan"], migration["plan"]) == (WRONG, RIGHT)
    assert migration["predictedGain"] > 0
    verdicts = [event["verdict"] for event in events(tmp_path / "ck", "reoptimize")]
    assert verdicts[:2] == ["wait", "migrate"]
    run(at_once(spark, feed).option("plan", WRONG), tmp_path / "fixed", tmp_path / "fixed.ck")
    assert events(tmp_path / "fixed.ck", "migrate") == [], "a plan that the user names is left alone"
    assert results(spark, tmp_path / "out") == results(spark, tmp_path / "fixed")


@pytest.mark.parametrize("reoptimize", ["auto", pytest.param("off", marks=pytest.mark.long)])
def test_a_young_query_starts_with_the_fallback_and_leaves_it_early(spark, feed, tmp_path, reoptimize, capsys):
    query = run(chain(spark, feed).option("reoptimize", reoptimize), tmp_path / "out", tmp_path / "ck")
    (start,) = events(tmp_path / "ck", "plan")
    assert start["plan"] == start["fallback"] == FALLBACK
    assert "the first micro-batch is small" in start["reason"]
    first = events(tmp_path / "ck", "reoptimize")[0]
    assert (first["verdict"], first["fallback"]) == ("migrate", FALLBACK)
    migration = events(tmp_path / "ck", "migrate")[0]
    assert (migration["previousPlan"], migration["plan"]) == (FALLBACK, RIGHT)
    assert "the query runs by the fallback plan; " in migration["reason"]
    assert migration["epoch"] == 2, "right after the second micro-batch"
    assert query.recentProgress[0]["statistics"]["optimizer"]["fallback"]
    assert query.lastProgress["statistics"]["optimizer"]["fallback"] is False
    query.explain()
    assert f"== Plan {RIGHT} ==" in capsys.readouterr().out
    run(at_once(spark, feed).option("plan", FALLBACK), tmp_path / "fixed", tmp_path / "fixed.ck")
    assert events(tmp_path / "fixed.ck", "plan") == []
    assert results(spark, tmp_path / "out") == results(spark, tmp_path / "fixed")


def test_a_large_first_micro_batch_is_sampled(spark, tmp_path):
    planner = pieces_of(chain(spark, tmp_path / "feed")).planner()[0]
    query = planner.query

    def united(rows: int):
        numbers = spark.range(rows, numPartitions=2)
        columns = "id % 40 AS x", "id AS y", "id AS n", "timestamp_seconds(id div 100) AS ts"
        return unite(query, dict.fromkeys(NAMES, numbers.selectExpr(*columns)))

    assert size_bytes(united(10)) < LARGE_BYTES < size_bytes(united(60_000))
    assert plan_for_batch(planner, united(10))[1].details["fallback"] == FALLBACK
    plan, event = plan_for_batch(planner, united(60_000))
    assert (plan_text(plan), "fallback" in event.details) == (RIGHT, False)
    assert event.details["stateBytes"] > 0


@pytest.mark.parametrize("by", [pytest.param("handle", marks=pytest.mark.long), "command line"])
def test_a_migration_waits_until_it_is_approved(spark, feed, tmp_path, capsys, by):
    join = chain(spark, feed).options(plan=WRONG, reoptimize="10 seconds", approval="ask")
    query = join.writeStream.start(str(tmp_path / "out"), checkpointLocation=str(tmp_path / "ck"))
    try:
        with pytest.raises(WatersmeetError, match="nothing waits for approval"):
            query.approve()
        query.processAllAvailable()
        assert query.pending["bestPlan"] == RIGHT
        assert query.lastProgress["statistics"]["optimizer"]["pending"]
        assert events(tmp_path / "ck", "migrate") == []
        query.explain("diff")
        told = capsys.readouterr().out
        assert f"== Difference: {WRONG} to {RIGHT} ==" in told
        assert {"shared", "built", "dropped"} <= set(told.split())
        if by == "handle":
            query.approve()
        else:
            assert main(["approve", str(tmp_path / "ck")]) == 0
            for number in range(2):
                write_batches(feed, batches(1, BATCHES + number), BATCHES + number)
                query.processAllAvailable()
        assert query.pending is None
        assert query.migration["phase"] == "done"
        assert query.migration["plan"] == RIGHT
        assert not list((tmp_path / "ck" / "watersmeet").glob("requests/*"))
    finally:
        query.stop()
