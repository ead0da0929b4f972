"""Aggregates through Spark, in all output modes, across restarts and failures; DuckDB has the right answer."""

import os
from datetime import timedelta

import duckdb
import pyarrow as pa
import pytest

from tests.spark.helpers import READINGS, random_batches, read_stream, run, write_batches
from tests.spark.processes import children
from watersmeet import StreamJoin
from watersmeet.errors import OptionError, QueryError, SinkError, WatersmeetError
from watersmeet.runtime.spark.query import epochs_of
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.measures import OWED

BATCHES = random_batches(5, "ab", batches=4, rows=60, keys=8)
JOINED = """
    SELECT a.name AS g, a.v AS av, b.v AS bv, greatest(a.ts, b.ts) AS t, epoch_us(b.ts) - epoch_us(a.ts) AS lag
    FROM a, b WHERE a.k = b.k AND a.v <> b.v + 3 AND abs(epoch_us(a.ts) - epoch_us(b.ts)) < 120000000
"""
BY_ENGINE = ["count(*) AS n", "sum(a.v + b.v) AS total", "avg(b.v) AS mean", "min(a.v) AS low", "max(b.name) AS last"]
BY_SPARK = ["count(*) AS n", "sum(greatest(a.v, b.v)) AS total", "count(DISTINCT b.v % 7) AS kinds"]


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("feed")
    write_batches(folder, BATCHES)
    return folder


def query(spark, feed, *aggregates: str, by: tuple[str, ...] = ("a.name",), **options: object) -> StreamJoin:
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(
            name, read_stream(spark, feed / name, READINGS, **options), eventTime="ts", delay="30 seconds"
        )
    join = join.where("a.k = b.k AND a.v <> b.v + 3").within("2 minutes")
    return join.groupBy(*by).agg(*aggregates)


def duck(sql: str) -> list[tuple]:
    a, b = (pa.concat_tables(batch[name] for batch in BATCHES) for name in "ab")
    with duckdb.connect() as connection:
        connection.register("a", a)
        connection.register("b", b)
        return connection.sql(f"SET TimeZone = 'UTC'; WITH j AS ({JOINED}) {sql}").fetchall()


class Shown:
    """What a reader knows who keeps the last row of every group; told twice of an epoch, the second must be alike."""

    def __init__(self, keys: int = 1) -> None:
        self.keys, self.view, self.epochs = keys, {}, {}
        self.fail_at: int | None = None

    def __call__(self, df, epoch: int) -> None:
        rows = sorted(map(tuple, df.collect()), key=repr)
        if self.fail_at == epoch:
            self.fail_at = None
            raise RuntimeError("the sink is gone")
        assert self.epochs.setdefault(epoch, rows) == rows
        self.view |= {row[: self.keys]: row for row in rows}


def finish(join: StreamJoin, shown: Shown, checkpoint, mode: str):
    writer = join.writeStream.outputMode(mode).foreachBatch(shown).option("checkpointLocation", str(checkpoint))
    handle = writer.trigger(availableNow=True).start()
    handle.awaitTermination()
    return handle


@pytest.mark.parametrize(("mode", "files"), [("update", 2), pytest.param("complete", 1, marks=pytest.mark.long)])
def test_running_aggregates_computed_by_the_engine(spark, feed, tmp_path, mode, files):
    shown = Shown()
    handle = finish(query(spark, feed, *BY_ENGINE, maxFilesPerTrigger=files), shown, tmp_path, mode)
    expected = duck("SELECT g, count(*), sum(av + bv), avg(bv), min(av), max('n' || (bv % 3)) FROM j GROUP BY g")
    assert sorted(shown.view.values()) == sorted(expected)
    assert sorted(shown.epochs) == list(range(len(BATCHES) // files))
    assert handle.lastProgress["sink"]["numOutputRows"] == 3
    assert handle.lastProgress["stateOperators"][0]["customMetrics"]["stateRows.groups"] >= 3  # in several layers


def test_what_only_spark_computes_survives_restarts_with_other_slots(spark, tmp_path):
    shown, checkpoint = Shown(), tmp_path / "ck"
    for number, slots in enumerate((2, 1, 3, 2)):
        write_batches(tmp_path, BATCHES[number : number + 1], start=number)
        finish(
            query(spark, tmp_path, *BY_SPARK, by=("upper(a.name) AS g",)).option("slots", slots),
            shown,
            checkpoint,
            "update",
        )
    expected = duck("SELECT upper(g), count(*), sum(greatest(av, bv)), count(DISTINCT bv % 7) FROM j GROUP BY 1")
    assert sorted(shown.view.values()) == sorted(expected)


WINDOWS = "window(result_time, '90 seconds', '40 seconds')"
EXPECTED_WINDOWS = """
    , e AS (SELECT *, epoch_us(t) AS us FROM j)
    , w AS (SELECT *, unnest(range(us - us % 40000000 - 120000000, us + 1, 40000000)) AS s FROM e)
    SELECT g, make_timestamp(s), count(*), sum(bv) FROM w WHERE s <= us AND us < s + 90000000
    GROUP BY g, s
"""


def windows(spark, feed, **options: object) -> StreamJoin:
    join = query(spark, feed, by=("a.name", WINDOWS), **options)
    return join.select("a.name", "window.start AS start", "count(*) AS n", "sum(b.v) AS total")


def closed(rows: list[tuple]) -> list[tuple]:
    """The rows of windows that the watermark has passed at the end: the least of the latest times, minus the delay."""
    latest = [max(max(batch[name]["ts"].to_pylist()) for batch in BATCHES) for name in "ab"]
    watermark = min(latest).replace(tzinfo=None).timestamp() - 30
    return sorted(row for row in rows if row[1].timestamp() + 90 <= watermark)


def utc(rows) -> list[tuple]:
    """Rows as they are shown, with times as DuckDB gives them."""
    import datetime

    found = []
    for name, start, *rest in rows:
        found.append((name, start.astimezone(datetime.UTC).replace(tzinfo=None), *rest))
    return sorted(found)


def test_windows_are_appended_when_the_watermark_passes_them(spark, feed, tmp_path):
    run(windows(spark, feed), tmp_path / "out", tmp_path / "ck")
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert utc(found) == closed(duck(EXPECTED_WINDOWS))
    assert len(found) > 10


SPILLING = {"slots": 2, "memoryBudget": "6k"}


@pytest.mark.parametrize("mode", ["update", pytest.param("complete", marks=pytest.mark.long)])
def test_running_aggregates_of_a_join_that_spills(spark, feed, tmp_path, mode):
    shown = Shown()
    handle = finish(query(spark, feed, *BY_ENGINE, maxFilesPerTrigger=2).options(**SPILLING), shown, tmp_path, mode)
    expected = duck("SELECT g, count(*), sum(av + bv), avg(bv), min(av), max('n' || (bv % 3)) FROM j GROUP BY g")
    assert sorted(shown.view.values()) == sorted(expected)
    assert sum(epoch.count(OWED) for epoch in epochs_of(handle) if epoch.is_cleaning) > 0


@pytest.mark.long
def test_windows_of_a_join_that_spills_wait_for_what_is_owed(spark, tmp_path):
    """The sink fails when it gets what a clean-up emits; the next run finds that unsent, and windows to be closed."""
    shown, failed = Shown(keys=2), []

    def fails_once(df, epoch):
        if any(event["kind"] == "cleanUp" for event in Checkpoint(tmp_path / "ck").latest().events) and not failed:
            failed.append(epoch)
            raise RuntimeError("the sink is gone")
        shown(df, epoch)

    write_batches(tmp_path, BATCHES[:3])
    join = windows(spark, tmp_path).options(**SPILLING)
    with pytest.raises(RuntimeError, match="the sink is gone"):
        finish(join, fails_once, tmp_path / "ck", "append")
    assert failed
    write_batches(tmp_path, BATCHES[3:], start=3)
    finish(join, fails_once, tmp_path / "ck", "append")
    assert utc(shown.view.values()) == closed(duck(EXPECTED_WINDOWS))
    takeover = failed[0] + 1  # which shows nothing
    assert sorted(shown.epochs) == [epoch for epoch in range(len(shown.epochs) + 1) if epoch != takeover]


def python_workers() -> set[int]:
    return {pid for pid, command in children(os.getpid()).items() if "pyspark.daemon" in command}


def test_closing_windows_that_fails_is_repeated(spark, feed, tmp_path):
    shown = Shown(keys=2)
    join = windows(spark, feed, maxFilesPerTrigger=2)
    for fail_at in (1, 3, 5):  # 0 and 3 take in rows, 1 and 5 close windows; those between take over, and show nothing
        shown.fail_at = fail_at
        with pytest.raises(Exception, match="the sink is gone"):
            finish(join, shown, tmp_path, "append")
    workers = python_workers()
    finish(join, shown, tmp_path, "append")
    assert workers <= python_workers(), "Spark had to start new ones"
    assert utc(shown.view.values()) == closed(duck(EXPECTED_WINDOWS))
    assert sorted(shown.epochs) == [0, 1, 3, 5]
    assert shown.epochs[1]
    assert shown.epochs[5]


def test_all_windows_in_complete_mode_as_sql(spark, feed, tmp_path):
    text = f"""
        SELECT a.name, window.start AS start, count(*) AS n, sum(b.v) AS total
        FROM a [RANGE 2 MINUTES], b [RANGE 2 MINUTES] WHERE a.k = b.k AND a.v <> b.v + 3
        GROUP BY a.name, {WINDOWS} HAVING count(*) > 20 AND sum(b.v) > 100
    """
    frames = {
        name: read_stream(spark, feed / name, READINGS, maxFilesPerTrigger=2).withWatermark("ts", "30 seconds")
        for name in "ab"
    }
    writer = StreamJoin(spark).sql(text, **frames).writeStream.format("memory").queryName("all_windows")
    writer.outputMode("complete").trigger(availableNow=True).start().awaitTermination()
    expected = [row for row in duck(EXPECTED_WINDOWS) if row[2] > 20 and row[3] > 100]
    assert utc(spark.table("all_windows").collect()) == sorted(expected)


def test_predicates_left_to_spark_come_before_the_aggregation(spark, feed, tmp_path):
    shown = Shown()
    join = query(spark, feed, "count(*) AS n", maxFilesPerTrigger=2).where("levenshtein(a.name, b.name) = 0")
    finish(join, shown, tmp_path, "update")
    expected = duck("SELECT g, count(*) FROM j WHERE g = 'n' || (bv % 3) GROUP BY g")
    assert sorted(shown.view.values()) == sorted(expected)


def test_what_spark_computes_is_computed_of_rows_only(spark, feed, tmp_path):
    """Reports travel with the rows, and all their columns are NULL."""
    shown = Shown()
    join = query(
        spark,
        feed,
        "sum(1000 DIV coalesce(a.v + 1, 0)) AS total",
        by=("CAST(substr(coalesce(a.name, 'none'), 2) AS INT) AS g",),
        maxFilesPerTrigger=2,
    )
    finish(join, shown, tmp_path, "update")
    assert sorted(shown.view.values()) == sorted(
        duck("SELECT substr(g, 2)::INT, sum(1000 // (av + 1))::BIGINT FROM j GROUP BY 1")
    )


def test_the_longest_interval_between_two_rows(spark, feed, tmp_path):
    shown = Shown()
    lags = ("max(b.ts - a.ts) AS lag", "count(DISTINCT b.ts - a.ts) AS lags")
    finish(query(spark, feed, *lags, maxFilesPerTrigger=2), shown, tmp_path, "update")
    found = [(g, lag // timedelta(microseconds=1), lags) for g, lag, lags in shown.view.values()]
    assert sorted(found) == sorted(duck("SELECT g, max(lag), count(DISTINCT lag) FROM j GROUP BY g"))


def test_intervals_while_rows_arrive(spark, feed, tmp_path):
    shown = Shown(keys=0)
    rows = {name: sum(batch[name].num_rows for batch in BATCHES) for name in "ab"}
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, feed / name, READINGS, maxFilesPerTrigger=2))
    join = join.where("a.k = b.k").select("sum(b.v) AS total", "count(*) AS n")
    join = join.options(confidence=0.9, expectedRows=", ".join(f"{name}={count}" for name, count in rows.items()))
    finish(join, shown, tmp_path, "update")
    (first,), (last,) = shown.epochs[0], shown.epochs[1]
    total, estimate, low, high, n, n_estimate, n_low, n_high = first
    assert n <= n_low < n_estimate < n_high
    assert total < low < estimate < high
    exact = duck("SELECT sum(b.v), count(*) FROM a, b WHERE a.k = b.k")[0]
    assert last == (exact[0], *[float(exact[0])] * 3, exact[1], *[float(exact[1])] * 3)


def test_modes_that_do_not_fit_are_refused(spark, feed, tmp_path):
    running = query(spark, feed, "count(*) AS n")
    with pytest.raises(QueryError, match="'append' does not fit a running aggregate"):
        run(running, tmp_path / "out", tmp_path / "ck1")
    with pytest.raises(SinkError, match="parquet files cannot be written in output mode 'update'"):
        running.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "ck2")).start(
            str(tmp_path)
        )
    plain = query(spark, feed, by=()).select("a.v")
    with pytest.raises(QueryError, match="'complete' does not fit a join without aggregates"):
        plain.writeStream.outputMode("complete").format("console").start()
    with pytest.raises(QueryError, match="unknown output mode 'upsert'"):
        plain.writeStream.outputMode("upsert")
    with pytest.raises(OptionError, match="the join has windows"):
        pieces_of(running.option("confidence", 0.95)).build()


def test_another_aggregate_needs_another_checkpoint(spark, feed, tmp_path):
    finish(query(spark, feed, "count(*) AS n", maxFilesPerTrigger=None), Shown(), tmp_path, "update")
    with pytest.raises(WatersmeetError, match="aggregates: checkpoint has"):
        finish(query(spark, feed, "sum(a.v) AS n"), Shown(), tmp_path, "update")


def test_a_sum_that_overflows_ends_the_query_with_its_name(spark, tmp_path):
    huge = pa.table({"k": [1, 1], "v": [2**63 - 1, 1]})
    write_batches(tmp_path, [{"a": huge, "b": pa.table({"k": [1]})}])
    join = StreamJoin(spark)
    for name, schema in (("a", huge.schema), ("b", pa.schema([("k", pa.int64())]))):
        join = join.stream(name, read_stream(spark, tmp_path / name, schema))
    join = join.where("a.k = b.k").select("sum(a.v) AS total")
    with pytest.raises(WatersmeetError, match=r"ARITHMETIC_OVERFLOW.*sum\(`a_v`\)"):
        finish(join, Shown(keys=0), tmp_path / "ck", "update")


ASKED_TWICE = {
    "a running aggregate": (
        "SELECT a.name, count(*) AS n, avg(b.v - a.v) AS gap FROM a JOIN b ON a.k = b.k WITHIN 2 MINUTES "
        "GROUP BY a.name HAVING n > 3",
        {"groupBy": ["a.name"], "agg": ["count(*) AS n", "avg(b.v - a.v) AS gap"], "having": ["n > 3"]},
    ),
    "an expression as key": (
        "SELECT a.v % 3 AS third, max(b.ts) AS last FROM a JOIN b USING (k) WITHIN 2 MINUTES GROUP BY third",
        {"groupBy": ["a.v % 3 AS third"], "agg": ["max(b.ts) AS last"]},
    ),
    "no groups": (
        "SELECT count(DISTINCT a.name) AS names, min(b.v) AS least FROM a, b WHERE a.k = b.k WITHIN 2 MINUTES",
        {"agg": ["count(DISTINCT a.name) AS names", "min(b.v) AS least"]},
    ),
}


@pytest.mark.parametrize("case", ASKED_TWICE)
def test_text_and_builder_aggregate_alike(spark, feed, tmp_path, case):
    text, pieces = ASKED_TWICE[case]
    frames = {name: read_stream(spark, feed / name, READINGS, maxFilesPerTrigger=None) for name in "ab"}
    join = StreamJoin(spark)
    for name, df in frames.items():
        join = join.stream(name, df, eventTime="ts", delay="30 seconds")
    built, asked = join.where("a.k = b.k").within("2 minutes"), join.sql(text)
    for call, texts in pieces.items():
        built = getattr(built, call)(*texts)
    assert pieces_of(built).build()[:2] == pieces_of(asked).build()[:2]
    shown = Shown()
    finish(asked, shown, tmp_path, "complete")
    assert shown.view
