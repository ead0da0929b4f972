"""What a user reads when a checkpoint or an output folder is not that of the query, or is damaged."""

import shutil
from itertools import product

import pytest

from tests.effort import mostly_long
from tests.spark.conftest import BATCHES
from tests.spark.helpers import READINGS, join_of, output, read_stream, run, start, write_batches
from tests.spark.refusals import refusal, start_refused
from watersmeet import StreamJoin
from watersmeet.errors import (
    CheckpointError,
    CorruptSegmentError,
    SinkError,
)
from watersmeet.state.checkpoint import Checkpoint


@pytest.fixture
def two(spark, feed):
    """Streams a and b, and nothing else yet."""
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts")
    return join


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
        join = join.stream(name, read_stream(spark, feed / folder, READINGS), eventTime="ts", delay="30 seconds")
    return (
        join.where("a.k = z.k AND a.v <> z.v + 3").within("2 minutes").select("a.k AS k", "a.ts", "a.v", "z.ts", "z.v")
    )


def other_schema(spark, feed):
    join = StreamJoin(spark)
    for name, extra in (("a", ["*"]), ("b", ["*", "1 AS extra"])):
        df = read_stream(spark, feed / name, READINGS).selectExpr(*extra)
        join = join.stream(name, df, eventTime="ts", delay="30 seconds")
    return (
        join.where("a.k = b.k AND a.v <> b.v + 3").within("2 minutes").select("a.k AS k", "a.ts", "a.v", "b.ts", "b.v")
    )


def other_key(spark, feed):
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts", delay="30 seconds")
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
            "residual predicates: checkpoint has 'a.v <> (b.v + 3)', query has 'a.v < b.v; a.v <> (b.v + 3)'",
        ),
        (lambda spark, feed: join_of(spark, feed, "ab").where("a.v < 5"), "filters: checkpoint has '', query has 'a: "),
        (
            lambda spark, feed: join_of(spark, feed, "ab").select("a.ts", "a.v", "b.ts", "b.v", "b.name"),
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
    owner = f"('(unnamed)', checkpoint {finished / 'ck'})"
    assert text.startswith(
        f"[SINK_FAILED] {finished / 'out'} holds the output of another query {owner}. choose an empty "
    )


@pytest.fixture
def copied(spark, feed, tmp_path):
    """A join of its own that has run, whose output may be spoilt."""
    run(join_of(spark, feed, "ab"), tmp_path / "out", tmp_path / "ck")
    return tmp_path


def test_an_output_folder_that_lacks_earlier_epochs(spark, feed, copied):
    (copied / "out").rename(copied / "moved")
    text = refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), copied / "out", copied / "ck"))
    sent = Checkpoint(copied / "ck").latest().epoch
    assert f"{copied / 'out'} lacks the output of earlier epochs: the checkpoint has sent epoch {sent}" in text
    assert "continue with the path that the query has written to before" in text


def test_an_output_folder_that_is_ahead_of_the_checkpoint(spark, feed, tmp_path):
    """A checkpoint restored from before, say: its next epochs would be taken for known ones, and left out."""
    shutil.copytree(feed, tmp_path / "feed")
    run(join_of(spark, tmp_path / "feed", "ab"), tmp_path / "out", tmp_path / "ck")
    shutil.copytree(tmp_path / "ck", tmp_path / "backup")
    write_batches(tmp_path / "feed", BATCHES[:1], start=2)
    run(join_of(spark, tmp_path / "feed", "ab"), tmp_path / "out", tmp_path / "ck")
    shutil.rmtree(tmp_path / "ck")
    (tmp_path / "backup").rename(tmp_path / "ck")
    text = refusal(SinkError, lambda: start(join_of(spark, tmp_path / "feed", "ab"), tmp_path / "out", tmp_path / "ck"))
    assert "holds the output of another query" in text


@pytest.mark.parametrize(
    ("damage", "budget"),
    mostly_long(product(("corrupted", "missing"), ("16m", "0")), ("corrupted", "16m"), ("missing", "0")),
)
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
