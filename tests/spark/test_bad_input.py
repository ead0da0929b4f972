"""What a user reads when something is wrong: said before the query starts, by name, with what to do about it."""

import re

import pyarrow as pa
import pytest

from tests.spark.helpers import READINGS, join_of, read_stream
from tests.spark.refusals import refusal, start_refused
from watersmeet import StreamJoin
from watersmeet.errors import (
    CheckpointError,
    OptionError,
    QueryError,
    SinkError,
)


@pytest.fixture
def two(spark, feed):
    """Streams a and b, and nothing else yet."""
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts")
    return join


# --- the query -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("aa.k = b.k", "[UNKNOWN_STREAM] unknown stream 'aa' (line 1, column 1)\n  aa.k = b.k\n  ^\ndid you mean 'a'?"),
        ("a.k = b.kk", "[UNKNOWN_COLUMN] unknown column 'kk' in stream 'b' (line 1, column 9)"),
        (
            "a.k = b.k AND a.nmae <> b.name",
            "[UNKNOWN_COLUMN] unknown column 'nmae' in stream 'a' (line 1, column 17)",
        ),
        ("a.k = b.name", "cannot compare a.k (INT) with b.name (STRING): they have no common type"),
        ("a.k = b.ts", "cannot compare a.k (INT) with b.ts (TIMESTAMP): they have no common type"),
        ("a.k = 3", "[NO_EQUALITY] the join has no predicate between streams"),
        ("a.k = b.k AND", "[SYNTAX_ERROR]"),
    ],
)
def test_a_wrong_condition(two, tmp_path, where, message):
    text = start_refused(two.where(where), tmp_path)
    assert message in text


def test_a_wrong_select_list(two, tmp_path):
    two = two.where("a.k = b.k")
    assert "unknown column 'pirce'" in start_refused(two.select("a.pirce AS p"), tmp_path)


def test_a_select_expression_that_spark_refuses(two, tmp_path):
    two = two.where("a.k = b.k").select("no_such_function(a.k) AS x")
    text = start_refused(two, tmp_path)
    assert text.startswith("[INVALID_EXPRESSION] Spark has no function 'no_such_function'")
    assert "\n  no_such_function(a.k) AS x\n  ^" in text


def test_a_stream_left_unconnected(spark, two, feed, tmp_path):
    two = two.stream("c", read_stream(spark, feed / "a", READINGS), eventTime="ts").where("a.k = b.k")
    text = start_refused(two, tmp_path)
    assert text.startswith("[UNCONNECTED_STREAM] stream 'c' is not connected to the others: no predicate links them")


def test_missing_event_time(spark, feed, two, tmp_path):
    two = two.stream("c", read_stream(spark, feed / "a", READINGS)).where("a.k = b.k AND b.k = c.k").within("1 minute")
    text = start_refused(two, tmp_path)
    assert "[MISSING_EVENT_TIME] stream 'c' has no event time, which a window needs" in text
    assert "stream('c', df, eventTime='...')" in text


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("v", "[INVALID_EVENT_TIME] event time c.v is BIGINT, not a timestamp"),
        ("tss", "[UNKNOWN_COLUMN] unknown column 'tss' in stream 'c'. did you mean 'ts'?"),
    ],
)
def test_an_event_time_that_is_none(spark, feed, two, tmp_path, column, message):
    two = two.stream("c", read_stream(spark, feed / "a", READINGS), eventTime=column)
    assert message in start_refused(two.where("a.k = b.k AND b.k = c.k").within("1 minute"), tmp_path)


def test_a_batch_data_frame(spark, feed):
    df = spark.read.parquet(str(feed / "a"))
    text = refusal(QueryError, lambda: StreamJoin(spark).stream("a", df))
    assert text.startswith("[NOT_STREAMING] stream 'a' is a batch DataFrame. read it with spark.readStream")
    assert "must be a DataFrame, not str" in refusal(QueryError, lambda: StreamJoin(spark).stream("a", "b"))


@pytest.mark.parametrize("window", ["ten minutes", "10", "-5 seconds", "0 seconds", "1 month", ""])
def test_a_window_that_does_not_parse(two, tmp_path, window):
    text = start_refused(two.where("a.k = b.k").within(window), tmp_path, OptionError)
    assert text.startswith(f"[INVALID_DURATION] cannot use '{window}' as a duration: ")
    assert "write it like '10 minutes'" in text


def test_a_delay_that_does_not_parse(spark, feed):
    df = read_stream(spark, feed / "a", READINGS)
    text = refusal(OptionError, lambda: StreamJoin(spark).stream("a", df, delay="soon"))
    assert text.startswith("[INVALID_DURATION] delay: cannot use 'soon' as a duration")


def test_two_streams_of_one_name(spark, feed, two, tmp_path):
    two = two.stream("A", read_stream(spark, feed / "a", READINGS), eventTime="ts").where("a.k = b.k")
    assert "[DUPLICATE_STREAM] two streams are named 'A'" in start_refused(two, tmp_path)


def test_one_stream_and_nine(spark, feed, tmp_path):
    df = read_stream(spark, feed / "a", READINGS)
    join = StreamJoin(spark).stream("a", df).where("a.k = a.k")
    assert "a join takes 2 to 8 streams, not 1" in start_refused(join, tmp_path)
    for name in "bcdefghi":
        join = join.stream(name, df)
    assert "a join takes 2 to 8 streams, not 9" in start_refused(join, tmp_path)


def test_a_spark_connect_session():
    stand_in = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    text = refusal(QueryError, lambda: StreamJoin(stand_in))
    assert text.startswith("[SPARK_CONNECT] Spark Connect sessions are not supported")
    assert "SparkSession.builder.master('local[*]')" in text


def test_a_column_that_cannot_be_a_key(spark, tmp_path):
    schema = pa.schema([("k", pa.list_(pa.int32())), ("v", pa.int64())])
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, tmp_path / name, schema))
    text = start_refused(join.where("a.k = b.k"), tmp_path)
    assert "[UNSUPPORTED_KEY_TYPE] column a.k is ARRAY, which cannot be a join key" in text


def test_a_collated_key(spark, feed, tmp_path):
    join = StreamJoin(spark)
    for name in "ab":
        df = read_stream(spark, feed / name, READINGS).selectExpr("name COLLATE UTF8_LCASE AS name", "v")
        join = join.stream(name, df)
    assert "has collation UTF8_LCASE, which cannot be a join key" in start_refused(
        join.where("a.name = b.name"), tmp_path
    )


# --- options and the writer ------------------------------------------------------------------------------------------


def test_an_unknown_option(two):
    text = refusal(OptionError, lambda: two.option("memoryBugdet", "1g"))
    assert text == "[UNKNOWN_OPTION] unknown option 'memoryBugdet'. did you mean 'memoryBudget'?"
    assert "known options: slots" in refusal(OptionError, lambda: two.options(xyzzy=1))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("memoryBudget", "a lot", "[INVALID_SIZE] option memoryBudget: cannot use 'a lot' as a size in bytes"),
        ("slots", "two", "option slots must be a whole number from 1 to 256, not 'two'"),
        ("slots", 0, "option slots must be a whole number from 1 to 256, not '0'"),
        ("partitions", 100000, "option partitions must be a whole number from 1 to 65536, not '100000'"),
        ("idleTimeout", "later", "[INVALID_DURATION] option idleTimeout: cannot use 'later' as a duration"),
        ("memoryLocation", "/no/such/tmpfs", "memoryLocation /no/such/tmpfs is not a folder"),
    ],
)
def test_an_option_that_does_not_parse(two, tmp_path, option, value, message):
    assert message in start_refused(two.where("a.k = b.k").option(option, value), tmp_path, OptionError)


def test_an_option_of_the_join_is_refused_by_the_writer(two, tmp_path):
    writer = two.where("a.k = b.k").writeStream.option("Plan", "(a b)").option("checkpointLocation", tmp_path / "c")
    text = refusal(OptionError, lambda: writer.start(str(tmp_path / "out")))
    assert text == (
        "[MISPLACED_OPTION] plan is an option of the join. write join.option('plan', ...), before writeStream"
    )
    assert not (tmp_path / "c").exists()


def test_a_budget_that_does_not_fit(two, tmp_path):
    join = two.where("a.k = b.k").options(memoryBudget="100t", slots=2)
    text = start_refused(join, tmp_path, OptionError)
    assert re.search(r"memoryBudget 100.0 TiB x 2 slots do not fit into /dev/shm.*: [\d.]+ .iB are free", text)


def test_a_missing_checkpoint_location(two, tmp_path):
    writer = two.where("a.k = b.k").writeStream.format("parquet").option("path", tmp_path / "out")
    text = refusal(OptionError, writer.start)
    assert text.startswith("[MISSING_CHECKPOINT_LOCATION] checkpointLocation is missing. write .option('checkp")
    assert "checkpointLocation is missing" in refusal(OptionError, lambda: writer.toTable("nowhere"))


def test_the_session_may_give_the_checkpoint_location(spark, feed, tmp_path):
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        writer = join_of(spark, feed, "ab").writeStream.queryName("by_name").trigger(availableNow=True)
        writer.start(str(tmp_path / "out")).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert (tmp_path / "all" / "by_name" / "watersmeet").is_dir()


@pytest.mark.parametrize("location", ["s3a://bucket/ck", "hdfs://host/ck", "dbfs:/ck"])
def test_a_checkpoint_on_storage_that_is_no_folder(two, tmp_path, location):
    writer = two.where("a.k = b.k").writeStream.option("path", tmp_path / "out").option("checkpointLocation", location)
    text = refusal(CheckpointError, writer.start)
    assert f"cannot keep state on '{location.split(':')[0]}:' ({location})" in text


def test_rows_to_show_that_are_no_number(two):
    writer = two.where("a.k = b.k").within("1 minute").writeStream.format("console").option("numRows", "many")
    with pytest.raises(OptionError, match="numRows must be a whole number, not 'many'"):
        writer.start()


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_an_unsupported_output_mode(two, mode):
    writer = two.where("a.k = b.k").writeStream.format("console").outputMode(mode)
    text = refusal(QueryError, writer.start)
    assert text.startswith(f"[UNSUPPORTED_OUTPUT_MODE] output mode '{mode}' does not fit a join without aggregates")


def test_wrong_uses_of_the_writer(two, tmp_path):
    two = two.where("a.k = b.k").select("a.v")
    ck = tmp_path / "ck"
    assert "trigger takes exactly one of" in refusal(OptionError, lambda: two.writeStream.trigger())
    both = {"once": True, "processingTime": "1 second"}
    assert "not once and processingTime" in refusal(OptionError, lambda: two.writeStream.trigger(**both))
    assert "queryName must be text, not ' '" in refusal(OptionError, lambda: two.writeStream.queryName(" "))
    assert "foreachBatch takes a function" in refusal(SinkError, lambda: two.writeStream.foreachBatch(3))
    assert "the memory sink needs a queryName" in refusal(SinkError, two.writeStream.format("memory").start)
    writer = two.writeStream.option("checkpointLocation", ck)
    assert "the parquet sink needs a path" in refusal(SinkError, writer.start)
    writer = two.writeStream.option("checkpointLocation", ck).partitionBy("nope")
    message = refusal(OptionError, lambda: writer.start(str(tmp_path / "out")))
    assert "partitionBy: the results have no column 'nope'. they have a_v" in message
