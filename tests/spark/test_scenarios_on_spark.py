"""All scenarios that run in-process, here through Spark; random data with restarts; a backlog as one huge batch."""

from collections import Counter

import pytest

from tests.acting import difference
from tests.groups import GroupsOracle, same_view, shown
from tests.oracle import canonical
from tests.scenarios import FOLDER, load_scenarios
from tests.spark.acting import act, results
from tests.spark.helpers import answer, join_of, output, random_batches, run, write_batches
from watersmeet.engine.inbox import CHUNK_ROWS

pytestmark = pytest.mark.scenario

NOT_ON_SPARK = {
    "a_driver_wakes_up_too_late": "rival: the lock of a checkpoint lets no second driver in",
    "composite_keys_that_collide": "hash: on Spark the hash is Spark's own",
    "hash_collision": "hash: on Spark the hash is Spark's own",
    "hops_along_orders": "orders: on Spark probe orders are the optimiser's",
    "hops_in_chunks": "chunk_rows: on Spark chunks have the engine's size",
    "merges_by_range": "merge_rows: on Spark merges wait for rows that are worth it",
}
"""Scenarios that say nothing without a setting that Spark does not have, and which it is."""
OFTEN = {
    "a_budget_of_nothing",
    "backfill_while_rows_arrive",
    "clean_up_interrupted",
    "combined_below_the_join",
    "empty_batches",
    "failed_attempts",
    "float_keys",
    "groups_are_handed_over",
    "groups_change_shape",
    "hop_by_hop",
    "just_in_time_above_other_stages",
    "late_rows",
    "migrate_through_mishaps",
    "migrate_with_complete_aggregates",
    "null_keys",
    "owed_through_stages",
    "parallel_track_until_old_rows_expire",
    "registered_predicates",
    "scattered_groups",
    "sent_once_from_files",
    "shapes_by_slot",
    "slots_change",
    "slots_of_several_shapes_change_in_number",
    "spoiled_copies",
    "the_fallback_is_left_early",
    "tree_of_two_keys",
    "windows_close_after_a_clean_up",
    "windows_per_stream",
}
"""Scenarios that `make test` runs on Spark: at least one of each kind. `make soak` runs all."""
JOINS = [scenario for scenario in load_scenarios() if scenario.name not in NOT_ON_SPARK]
AGGREGATES = [scenario for scenario in load_scenarios(aggregates=True) if scenario.name not in NOT_ON_SPARK]


def acted_out(scenarios):
    """Parameters of a test."""
    marks = {True: [], False: [pytest.mark.long]}
    return [pytest.param(case, id=case.name, marks=marks[case.name in OFTEN]) for case in scenarios]


def test_every_scenario_runs_on_spark_or_is_known_not_to():
    found = {path.stem for path in FOLDER.glob("*.json")}
    assert {scenario.name for scenario in (*JOINS, *AGGREGATES)} | NOT_ON_SPARK.keys() == found
    assert NOT_ON_SPARK.keys() <= found
    assert found - NOT_ON_SPARK.keys() >= OFTEN


@pytest.mark.parametrize("scenario", acted_out(JOINS))
def test_a_scenario_gives_the_same_results_on_spark(spark, tmp_path, monkeypatch, scenario):
    acted = act(spark, tmp_path, scenario, monkeypatch)
    found, expected = canonical(results(spark, acted)), scenario.answer.results
    assert found == expected, difference(found, expected, "Spark", "oracle")
    totals = acted.checkpoint.latest().totals.by_name()
    late = {name.removeprefix("late."): rows for name, rows in totals.items() if name.startswith("late.")}
    assert late == dict(scenario.answer.late)
    acted.check_files()


@pytest.mark.parametrize("scenario", acted_out(AGGREGATES))
def test_aggregates_come_to_the_same_on_spark(spark, tmp_path, monkeypatch, scenario):
    acted = act(spark, tmp_path, scenario, monkeypatch)
    view = {}
    for _, rows in sorted(acted.sink.received.items()):
        found = shown(scenario, rows)
        if scenario.mode == "complete":
            view = {}
        assert scenario.mode != "append" or not dict(found).keys() & view.keys(), "a group is appended again"
        view |= dict(found)
    final = GroupsOracle(scenario).final(acted.checkpoint.latest().watermark_us)
    assert same_view(view, final), f"shown {view}, owed {final}"
    acted.check_files()


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
