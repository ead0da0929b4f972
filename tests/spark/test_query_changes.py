"""A restart with another query: its state follows, results are the oracle's, and a refusal touches nothing."""

import json
from collections import Counter

import pytest

from tests.changing import Oracle, contents
from tests.oracle import canonical
from tests.spark.helpers import READINGS, join_of, output, random_batches, read_stream, run, write_batches
from tests.spark.refusals import refusal
from watersmeet import StreamJoin
from watersmeet.errors import CheckpointError, WatersmeetError
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.requests import APPROVE, put_request

pytestmark = pytest.mark.spark

BATCHES = random_batches(seed=11, streams="abc", batches=12, rows=25, keys=6)
COLUMNS = ("a.k AS k", "a.ts", "a.v", "b.ts", "b.v", "c.ts", "c.v")


def query_of(join):
    return pieces_of(join).build()[0]


def base(spark, folder, *more: str, within="2 minutes", plan="((a b) c)", select=COLUMNS):
    join = join_of(spark, folder, within=within).select(*select).option("plan", plan).option("onChange", "migrate")
    for condition in more:
        join = join.where(condition)
    return join


@pytest.mark.long
def test_a_query_that_changes_at_every_start_is_exact(spark, tmp_path):
    queries = [
        base(spark, tmp_path),
        base(spark, tmp_path, "a.v > 20 AND c.v % 2 = 0"),
        base(spark, tmp_path, "a.v < b.v + 30", within="3 minutes"),
        base(spark, tmp_path, "b.v <> 70", within="40 seconds", plan="(a (b c))"),
        base(spark, tmp_path, "a.v = b.v", within="2 minutes"),
        base(spark, tmp_path, within="150 seconds", plan="(a b c)"),
    ]
    oracle, due = Oracle(query_of(queries[0])), Counter()
    for number, join in enumerate(queries):
        some = BATCHES[2 * number : 2 * number + 2]
        write_batches(tmp_path, some, start=2 * number)
        run(join, tmp_path / "out", tmp_path / "ck")
        if number:
            oracle.change(query_of(join))
        for batch in some:
            due += oracle.run(batch)
        found = output(spark, tmp_path / "out")
        assert found == due, f"query {number}: {found - due} too many, {due - found} missing"
    (log,) = (tmp_path / "ck").rglob("events.jsonl")
    told = [event for event in map(json.loads, log.read_text().splitlines()) if event["kind"] == "changeQuery"]
    assert len(told) == len(queries) - 1
    assert "window of a: '2 minutes' becomes '3 minutes'" in told[1]["reason"]


@pytest.mark.long
def test_results_may_get_other_columns_where_the_sink_has_no_schema(spark, tmp_path):
    found = Counter()

    def take(rows, epoch):
        found.update(canonical(rows.toArrow()))

    def started(join):
        writer = join.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "ck"))
        writer.trigger(availableNow=True).start().awaitTermination()

    narrow = base(spark, tmp_path, select=("a.v", "b.v", "c.v"))
    wide = base(spark, tmp_path, select=("a.v", "b.name", "c.ts")).option("onChange", "stuff")
    oracle, due = Oracle(query_of(narrow)), Counter()
    write_batches(tmp_path, BATCHES[:2])
    started(narrow)
    due += oracle.run(BATCHES[0]) + oracle.run(BATCHES[1])
    oracle.change(query_of(wide))
    write_batches(tmp_path, BATCHES[2:4], start=2)
    text = refusal(CheckpointError, lambda: started(wide.option("onChange", "migrate")))
    assert "column b.name was not kept" in text
    started(wide)
    due += oracle.run(BATCHES[2]) + oracle.run(BATCHES[3])
    assert found == due
    assert any(row[1] is None for row in found), "no stored row was stuffed"


def asking(spark, folder, *more: str):
    return base(spark, folder, *more).option("onChange", "ask")


def state_of(folder):
    return {name: digest for name, digest in contents(folder / "ck" / "watersmeet").items() if "lock" not in name}


@pytest.mark.parametrize("by", ["handle", pytest.param("request", marks=pytest.mark.long)])
def test_a_change_waits_for_approval(spark, tmp_path, by):
    write_batches(tmp_path, BATCHES[:2])
    run(base(spark, tmp_path), tmp_path / "out", tmp_path / "ck")
    changed = asking(spark, tmp_path, "a.v > 20")
    oracle = Oracle(query_of(base(spark, tmp_path)))
    due = oracle.run(BATCHES[0]) + oracle.run(BATCHES[1])
    put_request(tmp_path / "ck", APPROVE)  # of the past: it is not an answer
    write_batches(tmp_path, BATCHES[2:4], start=2)
    writer = changed.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "ck"))
    before = state_of(tmp_path)
    query = writer.start(str(tmp_path / "out"))
    assert query.pending["kind"] == "changeQuery"
    assert "a: `v` > 20" in query.pending["reason"]
    assert not query.awaitTermination(2), "it did not wait"
    text = refusal(WatersmeetError, lambda: query.migrate("(a b c)"))
    assert text.startswith("[CHANGE_NOT_APPROVED]")
    query.stop()
    assert query.exception() is None
    after = state_of(tmp_path)
    assert {name: after[name] for name in before if "requests" not in name and "marks" not in name} == {
        name: digest for name, digest in before.items() if "requests" not in name and "marks" not in name
    }
    assert output(spark, tmp_path / "out") == due
    query = writer.start()
    if by == "handle":
        query.approve()
    else:
        put_request(tmp_path / "ck", APPROVE)
    query.awaitTermination()
    assert query.pending is None
    oracle.change(query_of(changed))
    due += oracle.run(BATCHES[2]) + oracle.run(BATCHES[3])
    assert output(spark, tmp_path / "out") == due


def test_a_running_query_is_changed(spark, tmp_path):
    write_batches(tmp_path, BATCHES[:2])
    first = base(spark, tmp_path).option("onChange", "refuse")
    query = first.writeStream.start(str(tmp_path / "out"), checkpointLocation=str(tmp_path / "ck"))
    try:
        query.processAllAvailable()
        for wrong, words in (
            (first, "[NOTHING_TO_CHANGE]"),
            (first.where("a.name = 'n1'"), "[CANNOT_CHANGE_QUERY]"),
            ("a.v > 20", "[INVALID_ARGUMENT]"),
        ):
            text = refusal(WatersmeetError, lambda wrong=wrong: query.change(wrong))
            assert text.startswith(words)
            assert query.isActive
        changed = first.where("a.v > 20")
        again = query.change(changed)
        assert not query.isActive
        assert refusal(WatersmeetError, lambda: query.change(first)).endswith("cleans up before it ends")
        query = again
        write_batches(tmp_path, BATCHES[2:4], start=2)
        query.processAllAvailable()
    finally:
        query.stop()
    oracle = Oracle(query_of(first))
    due = oracle.run(BATCHES[0]) + oracle.run(BATCHES[1])
    oracle.change(query_of(changed))
    due += oracle.run(BATCHES[2]) + oracle.run(BATCHES[3])
    assert output(spark, tmp_path / "out") == due


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    write_batches(folder, BATCHES[:2])
    run(base(spark, folder), folder / "out", folder / "ck")
    return folder


def four_streams(spark, folder):
    more = read_stream(spark, folder / "c", READINGS)
    join = base(spark, folder).stream("d", more, eventTime="ts", delay="30 seconds")
    return join.where("c.k = d.k").option("plan", "(((a b) c) d)")


REFUSED = {
    "by default": (
        lambda spark, folder: base(spark, folder, "a.v > 20").option("onChange", "refuse"),
        "[DIFFERENT_JOIN]",
        "filters: checkpoint has '', query has 'a: `v` > 20'",
    ),
    "a column that was not kept": (
        lambda spark, folder: base(spark, folder, "a.name = 'n1'"),
        "[CANNOT_CHANGE_QUERY]",
        "column a.name was not kept, and `name` = 'n1' needs it",
    ),
    "a key that was not kept": (
        lambda spark, folder: base(spark, folder, "a.name = b.name"),
        "[CANNOT_CHANGE_QUERY]",
        "key column a.name was not kept",
    ),
    "a computed key": (
        lambda spark, folder: base(spark, folder, "a.v = c.v + 1"),
        "[CANNOT_CHANGE_QUERY]",
        "key column `v` + 1 of c was not kept",
    ),
    "a filter that only Spark evaluates": (
        lambda spark, folder: base(spark, folder, "sqrt(a.v) > 3"),
        "[CANNOT_CHANGE_QUERY]",
        "only Spark can evaluate sqrt(`v`) > 3",
    ),
    "a stream more": (four_streams, "[CANNOT_CHANGE_QUERY]", "streams may not be added or dropped"),
    "no window": (
        lambda spark, folder: base(spark, folder, within=None),
        "[CANNOT_CHANGE_QUERY]",
        "the query before has windows",
    ),
    "other columns in files": (
        lambda spark, folder: base(spark, folder, select=COLUMNS[:3]),
        "[DIFFERENT_OUTPUT]",
        "result columns: checkpoint has 'k int, ",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_change_leaves_the_checkpoint_as_it_was(spark, made, why):
    asked, error_class, words = REFUSED[why]
    before = {name: digest for name, digest in contents(made / "ck").items() if not name.endswith("lock")}
    writer = asked(spark, made).writeStream
    text = refusal(CheckpointError, lambda: writer.start(str(made / "out"), checkpointLocation=str(made / "ck")))
    assert text.startswith(error_class)
    assert words in text
    after = {name: digest for name, digest in contents(made / "ck").items() if not name.endswith("lock")}
    assert after == before


def test_a_query_text_can_be_changed(spark, tmp_path):
    def join(window):
        streams = {
            name: read_stream(spark, tmp_path / name, READINGS).withWatermark("ts", "30 seconds") for name in "ab"
        }
        text = f"SELECT a.v, b.v FROM a JOIN b ON a.k = b.k WITHIN {window} SECONDS"
        return StreamJoin(spark).sql(text, **streams).option("onChange", "migrate")

    oracle, due = Oracle(query_of(join(60))), Counter()
    for number, window in enumerate((60, 90)):
        write_batches(tmp_path, [{n: BATCHES[number][n] for n in "ab"}], start=number)
        run(join(window), tmp_path / "out", tmp_path / "ck")
        oracle.change(query_of(join(window)))
        due += oracle.run(BATCHES[number])
    assert output(spark, tmp_path / "out") == due
