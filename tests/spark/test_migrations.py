"""Queries whose plan changes while they run, by script, by hand and by option: results are those of any plan."""

import json

import pyarrow as pa
import pytest

from tests.effort import mostly_long
from tests.oracle import canonical
from tests.spark.helpers import (
    READINGS,
    expected,
    join_of,
    output,
    random_batches,
    read_stream,
    run,
    write_batches,
)
from watersmeet import StreamJoin, WatersmeetError
from watersmeet.errors import OptionError

pytestmark = pytest.mark.slow

BATCHES = random_batches(seed=3, streams="abc", batches=5, rows=12, keys=4)
PAIRS = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
TREES = ["((a b) c)", "(a (b c))", "(a b c)"]


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


def migrations(checkpoint):
    """The events of migrations, oldest first."""
    (log,) = checkpoint.rglob("events.jsonl")
    return [event for event in map(json.loads, log.read_text().splitlines()) if event["kind"] == "migrate"]


def chain(spark, base):
    """Two keys: trees differ in their stages, and one node over all streams is probed hop by hop."""
    join = StreamJoin(spark)
    for name in "abc":
        join = join.stream(name, read_stream(spark, base / name, PAIRS), eventTime="ts", delay="30 seconds")
    return join.where("a.k = b.k AND b.j = c.j").within("2 minutes").select("a.v", "b.v", "c.v")


def with_second_key(batch):
    return {
        name: pa.table([t["k"].cast(pa.int64()), pa.array([v % 4 for v in t["v"].to_pylist()]), t["ts"], t["v"]], PAIRS)
        for name, t in batch.items()
    }


def test_a_rehearsal_changes_the_tree_and_no_result(spark, feed, tmp_path):
    script = "0: migrate ((a b) c); 2: migrate (a (b c)) moving-state; 4: migrate (a b c)"
    join = join_of(spark, feed).option("plan", "(a b c)").option("rehearse", script)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    told = migrations(tmp_path / "ck")
    assert [(event["epoch"], event["plan"]) for event in told] == list(zip([1, 3, 5], TREES, strict=True))
    assert {event["reason"] for event in told} == {"rehearsal"}
    assert told[0]["builtRows"] > 0 == told[2]["builtRows"], "one node over all streams needs no state of results"
    assert query.migration["phase"] == "done"
    assert query.migration["plan"] == "(a b c)"


@pytest.mark.long
def test_a_rehearsal_over_several_keys_exchanges_stored_rows(spark, tmp_path):
    batches = [with_second_key(batch) for batch in BATCHES]
    write_batches(tmp_path, batches)
    script = "0: migrate (a (b c)); 1: migrate (a b c); 4: migrate ((a b) c)"
    join = chain(spark, tmp_path).options(plan="((a b) c)", rehearse=script, slots=2)
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    assert len(migrations(tmp_path / "ck")) == 3


@pytest.mark.parametrize("mode", mostly_long(["complete", "update"]))
def test_a_rehearsal_with_aggregates_shows_what_any_plan_does(spark, feed, tmp_path, mode):
    shown = {}
    for name, script in (("plain", ""), ("rehearsed", "0: migrate ((a b) c); 2: migrate (a (b c))")):
        join = StreamJoin(spark).options(plan="(a b c)", rehearse=script)
        for stream in "abc":
            join = join.stream(stream, read_stream(spark, feed / stream, READINGS), eventTime="ts", delay="30 seconds")
        grouped = join.where("a.k = b.k AND b.k = c.k").within("2 minutes").groupBy("a.k").agg("count(*) AS n")
        rows = shown[name] = []
        writer = grouped.writeStream.outputMode(mode).option("checkpointLocation", str(tmp_path / name))
        writer = writer.foreachBatch(lambda frame, _, rows=rows: rows.append(canonical(frame.toArrow())))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert shown["plain"] == shown["rehearsed"]
    assert len(migrations(tmp_path / "rehearsed")) == 2


def test_a_running_query_is_migrated_by_hand(spark, tmp_path):
    write_batches(tmp_path, BATCHES[:2])
    join = join_of(spark, tmp_path).option("plan", "(a b c)")
    writer = join.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(processingTime="0 seconds")
    query = writer.start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        assert query.migration is None
        with pytest.raises(OptionError, match="there is no stream 'd'"):
            query.migrate("((a b) d)")
        with pytest.raises(OptionError, match="unknown migration strategy 'movingstate'"):
            query.migrate("((a b) c)", strategy="movingstate")
        assert query.migration is None, "what is refused is refused before anything is touched"
        query.migrate("((a b) c)")
        assert query.migration["plan"] == "((a b) c)"
        write_batches(tmp_path, BATCHES[2:], start=2)
        query.processAllAvailable()
        query.migrate("(a (b c))", strategy="moving-state")
    finally:
        query.stop()
    with pytest.raises(WatersmeetError, match="the query has ended"):
        query.migrate("(a b c)")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    assert [event["plan"] for event in migrations(tmp_path / "ck")] == TREES[:2]


def test_two_plans_run_side_by_side_until_old_rows_have_expired(spark, tmp_path):
    batches = random_batches(seed=8, streams="abc", batches=9, rows=10, keys=4)
    write_batches(tmp_path, batches)
    script = "1: migrate ((a b) c) parallel-track; 20: migrate (a (b c)) just-in-time"
    join = join_of(spark, tmp_path).options(plan="(a (b c))", rehearse=script, slots=2)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    (log,) = (tmp_path / "ck").rglob("events.jsonl")
    told = [json.loads(line) for line in log.read_text().splitlines()]
    found = [(e["kind"], e["strategy"]) for e in told if e["kind"].startswith("migrat")]
    assert found == [("migrationBegun", "parallel-track"), ("migrate", "parallel-track")]
    assert query.migration["plan"] == "((a b) c)"


def test_a_plan_runs_before_its_state_is_complete(spark, tmp_path):
    batches = random_batches(seed=9, streams="abc", batches=4, rows=12, keys=4)
    write_batches(tmp_path, batches[:2])
    join = join_of(spark, tmp_path, within=None).options(plan="(a (b c))", slots=2)
    writer = join.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(processingTime="0 seconds")
    query = writer.start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        with pytest.raises(OptionError, match="strategy parallel-track does not fit: a stream without a window"):
            query.migrate("((a b) c)", "parallel-track")
        query.migrate("((a b) c)", "just-in-time")
        write_batches(tmp_path, batches[2:], start=2)
        query.processAllAvailable()
        query.migrate("(a (b c))", "just-in-time")
        query.abortMigration()
    finally:
        query.stop()
    assert output(spark, tmp_path / "out") == expected(join, batches)


def test_a_strategy_that_does_not_fit_is_refused(spark, tmp_path):
    batches = [with_second_key(batch) for batch in BATCHES[:1]]
    write_batches(tmp_path, batches)
    join = chain(spark, tmp_path).option("plan", "((a b) c)")
    writer = join.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(processingTime="0 seconds")
    query = writer.start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        with pytest.raises(OptionError, match="strategy just-in-time does not fit: rows would have to be exchanged"):
            query.migrate("(a (b c))", "just-in-time")
        assert query.migration is None
    finally:
        query.stop()


def test_a_query_without_state_says_that_there_is_nothing_to_migrate(spark, tmp_path):
    join = join_of(spark, tmp_path)  # no file has come yet
    writer = join.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(processingTime="0 seconds")
    query = writer.start(str(tmp_path / "out"))
    try:
        with pytest.raises(WatersmeetError, match="no state before its first micro-batch and cannot be migrated"):
            query.migrate("((a b) c)")
        assert query.isActive
    finally:
        query.stop()


def test_another_plan_is_migrated_to_at_the_start_and_a_restart_keeps_what_it_has(spark, tmp_path):
    write_batches(tmp_path, BATCHES[:2])
    join = join_of(spark, tmp_path)
    rehearsed = join.options(plan="(a b c)", rehearse="0: migrate ((a b) c)")
    run(rehearsed, tmp_path / "out", tmp_path / "ck")
    write_batches(tmp_path, BATCHES[2:3], start=2)
    run(rehearsed, tmp_path / "out", tmp_path / "ck")  # what was carried out is not carried out again
    assert [event["plan"] for event in migrations(tmp_path / "ck")] == TREES[:1]
    write_batches(tmp_path, BATCHES[3:], start=3)
    run(join.option("plan", "(a (b c))"), tmp_path / "out", tmp_path / "ck")
    assert [event["plan"] for event in migrations(tmp_path / "ck")] == TREES[:2]
    assert migrations(tmp_path / "ck")[-1]["reason"] == "option plan has changed"
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("migrate (a b c)", "an entry begins with the number of an epoch and a colon"),
        ("2: migrat (a b c)", "there is no 'migrat', only migrate"),
        ("2: migrate", "a plan such as ((a b) c) is missing"),
        ("2: migrate ((a b)", "a ')' is missing"),
        ("2: migrate ((a b) c); 3: migrate (a b c) later", "unknown migration strategy 'later'"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_with_a_caret(spark, feed, tmp_path, script, message):
    join = join_of(spark, feed).option("rehearse", script)
    with pytest.raises(OptionError) as refused:
        run(join, tmp_path / "out", tmp_path / "ck")
    assert message in refused.value.message
    assert refused.value.error_class == "INVALID_REHEARSAL"
    line, caret = refused.value.message.splitlines()[-2:]
    assert line.strip() == script
    assert caret.strip() == "^"


def test_a_backfill_builds_the_new_state_beside_the_running_plan(spark, tmp_path):
    batches = [with_second_key(batch) for batch in BATCHES]
    write_batches(tmp_path, batches[:2])
    join = chain(spark, tmp_path).options(plan="((a b) c)", slots=2, relocation="off")
    writer = join.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(processingTime="0 seconds")
    query = writer.start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        with pytest.raises(WatersmeetError, match="no migration is under way"):
            query.abortMigration()
        query.migrate("(a (b c))", strategy="backfill")
        assert query.migration == {"phase": "feeding", "plan": "(a (b c))", "strategy": "backfill", "progress": 0.0}
        with pytest.raises(WatersmeetError, match=r"a migration to \(a \(b c\)\) is under way"):
            query.migrate("(a b c)")
        query.abortMigration()
        assert query.migration is None
        query.migrate("(a (b c))", strategy="backfill")
        write_batches(tmp_path, batches[2:3], start=2)
        query.processAllAvailable()
        assert query.migration["phase"] == "done"
        write_batches(tmp_path, batches[3:], start=3)
        query.processAllAvailable()
    finally:
        query.stop()
    assert output(spark, tmp_path / "out") == expected(join, batches)
    (log,) = (tmp_path / "ck").rglob("events.jsonl")
    kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
    assert kinds == ["migrationBegun", "migrationGivenUp", "migrationBegun", "migrate"]


@pytest.mark.long
def test_a_backfill_goes_on_with_the_next_run(spark, feed, tmp_path):
    join = join_of(spark, feed).options(plan="(a b c)", rehearse="4: migrate ((a b) c) backfill")
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    going = query.migration
    assert going["phase"] in ("feeding", "done")
    run(join, tmp_path / "out", tmp_path / "ck")
    assert [event["plan"] for event in migrations(tmp_path / "ck")] == ["((a b) c)"]
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
