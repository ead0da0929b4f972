"""Scenarios that also run in-process, here through Spark; random data with restarts; a backlog as one huge batch."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.acting import check
from tests.scenarios import Scenario, load_scenarios
from tests.spark.helpers import answer, join_of, output, random_batches, read_stream, run, write_batches
from watersmeet import StreamJoin
from watersmeet.engine.inbox import CHUNK_ROWS
from watersmeet.units import format_duration

# Each of these says something that depends on what Spark does for us: casts, hashes, observation, shuffle, restarts.
CHOSEN = {
    "date_and_decimal_keys",
    "empty_batches",
    "float_keys",
    "integers_beyond_doubles",
    "late_rows",
    "null_keys",
    "one_stream_behind",
    "residuals",
    "slots_change",
    "window_edges",
}


@pytest.mark.parametrize("scenario", [s for s in load_scenarios() if s.name in CHOSEN], ids=lambda s: s.name)
def test_a_scenario_gives_the_same_results_on_spark(spark, tmp_path, scenario):
    check(scenario, lambda s: run_on_spark(spark, tmp_path, s))


def test_all_chosen_scenarios_exist():
    assert {scenario.name for scenario in load_scenarios()} >= CHOSEN


def run_on_spark(spark, folder: Path, scenario: Scenario) -> pa.Table:
    """Act the scenario out: one file per stream and batch, and a new run wherever slots or budget change."""
    slots, budget = scenario.setting.slots, scenario.setting.budget
    starts = [i for i, epoch in enumerate(scenario.epochs) if i == 0 or epoch.slots or epoch.budget]
    for first, end in zip(starts, [*starts[1:], len(scenario.batches)], strict=True):
        epoch = scenario.epochs[first]
        slots, budget = epoch.slots or slots, epoch.budget or budget
        for number in range(first, end):
            batch = scenario.batches[number]
            whole = {s.name: batch.get(s.name, s.schema.empty_table()) for s in scenario.streams}
            write_batches(folder, [whole], start=number)
        join = join_of_scenario(spark, folder, scenario).options(slots=slots, partitions=scenario.setting.partitions)
        if budget is not None:
            join.option("memoryBudget", budget)
        run(join, folder / "out", folder / "ck")
    return spark.read.parquet(str(folder / "out")).toArrow()


def join_of_scenario(spark, folder: Path, scenario: Scenario) -> StreamJoin:
    join = StreamJoin(spark)
    for stream in scenario.streams:
        join.stream(
            stream.name,
            read_stream(spark, folder / stream.name, stream.schema),
            eventTime=stream.event_time,
            delay=format_duration(stream.delay_us),
            window=scenario.windows.get(stream.name),
        )
    for condition in scenario.where:
        join.where(condition)
    if scenario.within is not None:
        join.within(scenario.within)
    return join.select(*scenario.select)


def test_restarts_between_batches_with_other_slots_and_budgets(spark, tmp_path):
    settings = [(2, "10m"), (5, "2k"), (1, "0"), (3, "20k")]
    batches = random_batches(seed=11, streams="abc", batches=len(settings), rows=30, keys=12, batch_seconds=30)
    right = answer(join_of(spark, tmp_path), batches)
    for number, (batch, (slots, budget)) in enumerate(zip(batches, settings, strict=True)):
        write_batches(tmp_path, [batch], start=number)
        join = join_of(spark, tmp_path).options(slots=slots, memoryBudget=budget)
        run(join, tmp_path / "out", tmp_path / "ck")
        assert output(spark, tmp_path / "out") == sum(right.batches[: number + 1], Counter()), f"after batch {number}"


def test_a_backlog_is_one_batch_folded_in_chunks(spark, tmp_path):
    """More rows in one batch than one chunk holds, all for one slot; then one more batch finds them in the state."""
    rows = 3 * CHUNK_ROWS // 4
    for name, salt in (("a", 7), ("b", 11)):
        made = spark.range(rows).selectExpr(
            f"cast(id * {salt} % 40009 AS int) k", "timestamp_micros(id * 10000) ts", "id v", "'x' name"
        )
        made.repartition(3).write.parquet(str(tmp_path / name))
    join = join_of(spark, tmp_path, "ab", within="5 minutes", delay="1 hour", maxFilesPerTrigger=None).option(
        "slots", 1
    )
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert [progress["numInputRows"] for progress in query.recentProgress] == [2 * rows]
    spark.range(rows).filter(f"id > {rows} - 100").selectExpr(
        "cast(id * 7 % 40009 AS int) k", "timestamp_micros(id * 10000) ts", "-id v", "'x' name"
    ).write.mode("append").parquet(str(tmp_path / "a"))
    run(join, tmp_path / "out", tmp_path / "ck")
    for name in "ab":
        spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(f"backlog_{name}")
    sums = ["count(*) n", "sum(a_v) a", "sum(b_v) b", "sum(xxhash64(a_v, b_v) % 1000003) h"]
    right = spark.sql(
        f"SELECT {', '.join(sums)} FROM (SELECT a.v a_v, b.v b_v FROM backlog_a a JOIN backlog_b b "
        "ON a.k = b.k AND a.v <> b.v + 3 WHERE abs(unix_micros(a.ts) - unix_micros(b.ts)) < 300000000)"
    ).collect()
    assert spark.read.parquet(str(tmp_path / "out")).selectExpr(*sums).collect() == right
    assert right[0].n > 100_000
