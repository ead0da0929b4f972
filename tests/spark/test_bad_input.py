"""What a user reads when something is wrong: said before the query starts, by name, with what to do about it."""

import re
import shutil

import pyarrow as pa
import pytest

from tests.spark.helpers import READINGS, join_of, output, random_batches, read_stream, run, start, write_batches
from watersmeet import StreamJoin
from watersmeet.errors import (
    CheckpointError,
    CorruptSegmentError,
    OptionError,
    QueryError,
    SinkError,
    WatersmeetError,
)
from watersmeet.state.checkpoint import Checkpoint

BATCHES = random_batches(seed=2, streams="ab", batches=2, rows=20)


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


@pytest.fixture
def two(spark, feed):
    """Streams a and b, and nothing else yet."""
    join = StreamJoin(spark)
    for name in "ab":
        join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts")
    return join


@pytest.fixture(scope="module")
def finished(spark, feed, tmp_path_factory):
    """A join that has run, for others to be compared with: its folders."""
    base = tmp_path_factory.mktemp("finished")
    run(join_of(spark, feed, "ab"), base / "out", base / "ck")
    return base


def refusal(kind, action) -> str:
    with pytest.raises(kind) as caught:
        action()
    assert isinstance(caught.value, WatersmeetError)
    assert not list(re.finditer(r"\bat org\.apache", str(caught.value)))
    return str(caught.value)


def start_refused(join, tmp_path, kind=QueryError) -> str:
    """The error of start(); nothing was left running or made."""
    text = refusal(kind, lambda: start(join, tmp_path / "out", tmp_path / "ck"))
    assert not (tmp_path / "out").exists()
    assert not join.spark.streams.active
    return text


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
    two.where("a.k = b.k")
    assert "unknown column 'pirce'" in start_refused(two.select("a.pirce AS p"), tmp_path)


def test_a_select_expression_that_spark_refuses(two, tmp_path):
    two.where("a.k = b.k").select("no_such_function(a.k) AS x")
    text = start_refused(two, tmp_path)
    assert text.startswith("[INVALID_EXPRESSION] Spark refuses 'no_such_function(`a_k`)'")
    assert "\n  no_such_function(a.k) AS x\n  ^" in text


def test_a_stream_left_unconnected(spark, two, feed, tmp_path):
    two.stream("c", read_stream(spark, feed / "a", READINGS), eventTime="ts").where("a.k = b.k")
    text = start_refused(two, tmp_path)
    assert text.startswith("[UNCONNECTED_STREAM] stream 'c' is not connected to the others: no predicate links them")


def test_missing_event_time(spark, feed, two, tmp_path):
    two.stream("c", read_stream(spark, feed / "a", READINGS)).where("a.k = b.k AND b.k = c.k").within("1 minute")
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
    two.stream("c", read_stream(spark, feed / "a", READINGS), eventTime=column)
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
    assert text.startswith("[INVALID_DURATION] cannot use 'soon' as a duration")


def test_two_streams_of_one_name(spark, feed, two, tmp_path):
    two.stream("A", read_stream(spark, feed / "a", READINGS), eventTime="ts").where("a.k = b.k")
    assert "[DUPLICATE_STREAM] two streams are named 'A'" in start_refused(two, tmp_path)


def test_one_stream_and_nine(spark, feed, tmp_path):
    df = read_stream(spark, feed / "a", READINGS)
    join = StreamJoin(spark).stream("a", df).where("a.k = a.k")
    assert "a join takes 2 to 8 streams, not 1" in start_refused(join, tmp_path)
    for name in "bcdefghi":
        join.stream(name, df)
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
        join.stream(name, read_stream(spark, tmp_path / name, schema))
    text = start_refused(join.where("a.k = b.k"), tmp_path)
    assert "[UNSUPPORTED_KEY_TYPE] column a.k is ARRAY, which cannot be a join key" in text


def test_a_collated_key(spark, feed, tmp_path):
    join = StreamJoin(spark)
    for name in "ab":
        df = read_stream(spark, feed / name, READINGS).selectExpr("name COLLATE UTF8_LCASE AS name", "v")
        join.stream(name, df)
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
        ("memoryBudget", "a lot", "[INVALID_SIZE] cannot use 'a lot' as a size in bytes"),
        ("slots", "two", "option slots must be a whole number from 1 to 256, not 'two'"),
        ("slots", 0, "option slots must be a whole number from 1 to 256, not '0'"),
        ("partitions", 100000, "option partitions must be a whole number from 1 to 65536, not '100000'"),
        ("idleTimeout", "later", "[INVALID_DURATION] cannot use 'later' as a duration"),
        ("memoryLocation", "/no/such/tmpfs", "memoryLocation /no/such/tmpfs is not a folder"),
    ],
)
def test_an_option_that_does_not_parse(two, tmp_path, option, value, message):
    assert message in start_refused(two.where("a.k = b.k").option(option, value), tmp_path, OptionError)


def test_an_option_of_the_join_is_refused_by_the_writer(two, tmp_path):
    writer = two.where("a.k = b.k").writeStream.option("Plan", "(a b)").option("checkpointLocation", tmp_path / "c")
    text = refusal(OptionError, lambda: writer.start(str(tmp_path / "out")))
    assert text == (
        "[MISPLACED_OPTION] plan is an option of the join, not of its output. "
        "StreamJoin(spark).option('plan', ...), before writeStream"
    )
    assert not (tmp_path / "c").exists()


def test_a_budget_that_does_not_fit(two, tmp_path):
    join = two.where("a.k = b.k").options(memoryBudget="100t", slots=2)
    text = start_refused(join, tmp_path, OptionError)
    assert re.search(
        r"memoryBudget 109951162777600 bytes x 2 slots do not fit into /dev/shm.*: \d+ bytes are free", text
    )


def test_a_missing_checkpoint_location(two, tmp_path):
    writer = two.where("a.k = b.k").writeStream.format("parquet").option("path", tmp_path / "out")
    text = refusal(OptionError, writer.start)
    assert text.startswith("[MISSING_CHECKPOINT_LOCATION] checkpointLocation is missing. .option('checkpointLocation'")
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
    two.where("a.k = b.k").select("a.v")
    ck = tmp_path / "ck"
    assert "trigger takes exactly one of" in refusal(OptionError, lambda: two.writeStream.trigger())
    both = {"once": True, "processingTime": "1 second"}
    assert "not ['once', 'processingTime']" in refusal(OptionError, lambda: two.writeStream.trigger(**both))
    assert "queryName must not be empty" in refusal(OptionError, lambda: two.writeStream.queryName(" "))
    assert "foreachBatch takes a function" in refusal(SinkError, lambda: two.writeStream.foreachBatch(3))
    assert "the memory sink needs a queryName" in refusal(SinkError, two.writeStream.format("memory").start)
    writer = two.writeStream.option("checkpointLocation", ck)
    assert "the parquet sink needs a path" in refusal(SinkError, writer.start)
    writer = two.writeStream.option("checkpointLocation", ck).partitionBy("nope")
    message = refusal(SinkError, lambda: writer.start(str(tmp_path / "out")))
    assert "partitionBy names ['nope'], the result has ['a_v']" in message


# --- the checkpoint and the output folder ----------------------------------------------------------------------------


def test_a_checkpoint_in_use(spark, feed, tmp_path):
    join = join_of(spark, feed, "ab")
    writer = join.writeStream.queryName("holder").option("path", tmp_path / "out")
    query = writer.option("checkpointLocation", tmp_path / "ck").start()
    try:
        text = refusal(CheckpointError, lambda: start(join_of(spark, feed, "ab"), tmp_path / "out", tmp_path / "ck"))
        assert text.startswith(
            f"[CHECKPOINT_IN_USE] checkpoint {tmp_path / 'ck'} is in use by query 'holder', process "
        )
        query.processAllAvailable()
    finally:
        query.stop()
    run(join, tmp_path / "out", tmp_path / "ck")


def other_streams(spark, feed):
    join = StreamJoin(spark)
    for name, folder in (("a", "a"), ("z", "b")):
        join.stream(name, read_stream(spark, feed / folder, READINGS), eventTime="ts", delay="30 seconds")
    return (
        join.where("a.k = z.k AND a.v <> z.v + 3").within("2 minutes").select("a.k AS k", "a.ts", "a.v", "z.ts", "z.v")
    )


def other_schema(spark, feed):
    join = StreamJoin(spark)
    for name, extra in (("a", ["*"]), ("b", ["*", "1 AS extra"])):
        df = read_stream(spark, feed / name, READINGS).selectExpr(*extra)
        join.stream(name, df, eventTime="ts", delay="30 seconds")
    return (
        join.where("a.k = b.k AND a.v <> b.v + 3").within("2 minutes").select("a.k AS k", "a.ts", "a.v", "b.ts", "b.v")
    )


def other_key(spark, feed):
    join = StreamJoin(spark)
    for name in "ab":
        join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts", delay="30 seconds")
    return (
        join.where("a.v = b.v AND a.v <> b.v + 3").within("2 minutes").select("a.k AS k", "a.ts", "a.v", "b.ts", "b.v")
    )


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (other_streams, "streams: checkpoint has 'a, b', query has 'a, z'"),
        (other_schema, "schema of b: checkpoint has 'k INT, ts TIMESTAMP, v BIGINT, name STRING', query has 'k INT, "),
        (other_key, "join key: checkpoint has 'a.k = b.k', query has 'a.v = b.v'"),
        (
            lambda spark, feed: join_of(spark, feed, "ab").option("partitions", 64),
            "partitions: checkpoint has '256', query has '64'",
        ),
        (
            lambda spark, feed: join_of(spark, feed, "ab", within="3 minutes"),
            "window of a: checkpoint has '2 minutes', query has '3 minutes'; window of b:",
        ),
        (
            lambda spark, feed: join_of(spark, feed, "ab").where("a.v < b.v"),
            "residual predicates: checkpoint has ",
        ),
        (lambda spark, feed: join_of(spark, feed, "ab").where("a.v < 5"), "filters: checkpoint has '', query has 'a: "),
        (
            lambda spark, feed: join_of(spark, feed, "ab").select("b.name"),
            "columns read of b: checkpoint has 'ts, v', query has 'ts, v, name'",
        ),
    ],
    ids=["streams", "schema", "key", "partitions", "window", "residual", "filter", "columns-read"],
)
def test_a_checkpoint_of_a_different_join(spark, feed, finished, other, difference):
    before = output(spark, finished / "out")
    text = refusal(CheckpointError, lambda: start(other(spark, feed), finished / "out", finished / "ck"))
    assert text.startswith(f"[DIFFERENT_JOIN] checkpoint {finished / 'ck'} was made by a different join (")
    assert difference in text
    assert output(spark, finished / "out") == before


def test_what_may_change_between_runs(spark, feed, finished):
    before = output(spark, finished / "out")
    join = join_of(spark, feed, "ab", delay="50 seconds").options(slots=3, memoryBudget="1m", idleTimeout="1 hour")
    run(join, finished / "out", finished / "ck")
    assert output(spark, finished / "out") == before


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("make_ym_interval(a.k)", "is interval year to month, and interval year to month cannot be written"),
        ("parse_json(a.name)", "is variant, and variant cannot be written"),
        ("NULL", "is void, and void cannot be written"),
        ("array(make_interval(a.k))", "is array<interval>, and interval cannot be written"),
        ("map(a.k, named_struct('x', NULL))", "is map<int,struct<x:void>>, and void cannot be written"),
    ],
)
def test_a_result_that_no_file_can_hold(spark, feed, tmp_path, expression, message):
    text = start_refused(join_of(spark, feed, "ab").select(f"{expression} AS found"), tmp_path, SinkError)
    assert text.startswith(f"[UNSUPPORTED_RESULT_TYPE] result column 'found' {message}")
    assert "CAST(... AS STRING) AS found" in text


def test_the_checkpoint_of_a_plain_spark_query(spark, feed, tmp_path):
    plain = read_stream(spark, feed / "a", READINGS).writeStream.format("noop").trigger(availableNow=True)
    plain.option("checkpointLocation", str(tmp_path / "ck")).start().awaitTermination()
    text = start_refused(join_of(spark, feed, "ab"), tmp_path, CheckpointError)
    assert f"{tmp_path / 'ck'} is the checkpoint of a plain Spark query" in text
    assert "give the join a checkpointLocation of its own" in text


def test_a_checkpoint_of_the_future(spark, feed, tmp_path):
    (tmp_path / "ck" / "watersmeet").mkdir(parents=True)
    (tmp_path / "ck" / "watersmeet" / "query.json").write_text('{"format": 99, "fingerprint": {}}')
    text = start_refused(join_of(spark, feed, "ab"), tmp_path, CheckpointError)
    assert "the checkpoint has format 99, this watersmeet reads format 2" in text


def test_the_output_folder_of_another_query(spark, feed, finished, tmp_path):
    text = refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), finished / "out", tmp_path / "ck"))
    assert f"{finished / 'out'} holds the output of another query (_spark_metadata exists)" in text


def test_an_output_folder_that_lacks_earlier_epochs(spark, feed, finished, tmp_path):
    text = refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), tmp_path / "elsewhere", finished / "ck"))
    sent = Checkpoint(finished / "ck").latest().epoch
    assert f"{tmp_path / 'elsewhere'} lacks the output of earlier epochs: the checkpoint has sent epoch {sent}" in text
    assert "continue with the path that the query has written to before" in text


def test_an_output_folder_that_is_ahead_of_the_checkpoint(spark, feed, finished, tmp_path):
    """A checkpoint restored from before, say: its next epochs would be taken for known ones, and left out."""
    shutil.copytree(feed, tmp_path / "feed")
    run(join_of(spark, tmp_path / "feed", "ab"), tmp_path / "out", tmp_path / "ck")
    write_batches(tmp_path / "feed", BATCHES[:1], start=2)
    run(join_of(spark, tmp_path / "feed", "ab"), tmp_path / "out", tmp_path / "ck")
    text = refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), tmp_path / "out", finished / "ck"))
    assert "holds the output of another query" in text


@pytest.mark.parametrize("damage", ["corrupted", "missing"])
@pytest.mark.parametrize("budget", ["16m", "0"])
def test_a_damaged_segment_is_named_and_nothing_is_joined(spark, tmp_path, damage, budget):
    """Both ways to read a segment: fetched into memory (16m), and mapped where it lies (0)."""
    write_batches(tmp_path, BATCHES[:1])
    join = join_of(spark, tmp_path, "ab").options(slots=1, memoryBudget=budget)
    run(join, tmp_path / "out", tmp_path / "ck")
    before = output(spark, tmp_path / "out")
    segment = max((tmp_path / "ck" / "watersmeet" / "segments").iterdir(), key=lambda file: file.stat().st_size)
    whole = segment.read_bytes()
    if damage == "corrupted":
        middle = len(whole) // 2
        segment.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    else:
        segment.unlink()
    write_batches(tmp_path, BATCHES[1:], start=1)
    query = start(join, tmp_path / "out", tmp_path / "ck")
    with pytest.raises(CorruptSegmentError, match=f"segment {segment.name} of the checkpoint is {damage}") as caught:
        query.awaitTermination()
    assert f"restore {segment} from a backup" in str(caught.value)
    assert isinstance(query.exception(), CorruptSegmentError)
    assert not query.isActive
    assert output(spark, tmp_path / "out") == before
    segment.write_bytes(whole)
    run(join, tmp_path / "out", tmp_path / "ck")
    assert sum(output(spark, tmp_path / "out").values()) > sum(before.values())


def test_a_removed_spark_folder_is_noticed(spark, feed, finished, tmp_path):
    shutil.copytree(finished / "ck", tmp_path / "ck")
    shutil.copytree(finished / "out", tmp_path / "out")
    shutil.rmtree(tmp_path / "ck" / "spark")
    query = start(join_of(spark, feed, "ab"), tmp_path / "out", tmp_path / "ck")
    with pytest.raises(CheckpointError, match="Spark starts at batch 0, but the state has seen batch 1"):
        query.awaitTermination()
