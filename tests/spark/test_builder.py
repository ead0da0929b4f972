"""The builder: every call gives another join, arguments are what a PySpark user would hand over, and a join can be
looked at before anything runs."""

from datetime import timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.spark.helpers import READINGS, read_stream
from tests.spark.refusals import refusal
from watersmeet import StreamJoin, WatersmeetError
from watersmeet.errors import OptionError, QueryError
from watersmeet.runtime.spark.stream_join import pieces_of

pytestmark = pytest.mark.spark


@pytest.fixture
def frames(spark, feed):
    return {name: read_stream(spark, feed / name, READINGS) for name in "ab"}


@pytest.fixture
def join(spark, frames):
    made = StreamJoin(spark)
    for name, df in frames.items():
        made = made.stream(name, df, eventTime="ts")
    return made.where("a.k = b.k").within("1 minute")


def streams_of(join):
    return {s.name: (s.event_time, s.delay_us) for s in pieces_of(join).build()[0].streams}


def test_two_joins_of_a_common_beginning_do_not_meet(join):
    first, second = join.where("a.v < b.v"), join.where("a.v > 3")
    assert pieces_of(join).where == ("a.k = b.k",)
    assert pieces_of(first).where == ("a.k = b.k", "a.v < b.v")
    assert pieces_of(second).where == ("a.k = b.k", "a.v > 3")


@pytest.mark.parametrize(
    "call",
    [
        lambda join, df: join.stream("c", df),
        lambda join, df: join.where("a.v > 1"),
        lambda join, df: join.within("2 minutes"),
        lambda join, df: join.select("a.v"),
        lambda join, df: join.groupBy("a.k"),
        lambda join, df: join.agg("count(*) AS n"),
        lambda join, df: join.having("count(*) > 1"),
        lambda join, df: join.hint("a", rowsPerSecond=3),
        lambda join, df: join.hint("a.k = b.k", selectivity=0.1),
        lambda join, df: join.option("slots", 1),
        lambda join, df: join.options(slots=1, partitions=8),
        lambda join, df: join.register("same", lambda x, y: x == y),
    ],
)
def test_no_call_changes_the_join_it_is_called_on(join, frames, call):
    before = pieces_of(join)
    other = call(join, frames["a"])
    assert pieces_of(join) is before
    assert pieces_of(other) != before


def test_select_again_replaces_the_columns(join):
    assert join.select("a.v").select("b.v AS w", "a.k").columns == ["w", "a_k"]


def test_columns_may_come_as_a_list(join):
    assert join.select(["a.v", "b.v AS w"]).columns == ["a_v", "w"]
    assert join.groupBy(["a.k"]).agg(["count(*) AS n"]).columns == ["a_k", "n"]


def test_a_join_tells_its_schema_before_it_runs(join):
    assert join.select("a.k", "a.v + b.v AS total").schema.simpleString() == "struct<a_k:int,total:bigint>"
    assert join.columns == [f"{stream}_{column}" for stream in "ab" for column in READINGS.names]


def test_a_join_shows_what_was_said_of_it(spark, frames, join):
    assert repr(StreamJoin(spark)) == "StreamJoin[no streams yet]"
    assert repr(join.select("a.v", "b.v")) == "StreamJoin[a, b; where a.k = b.k; within 1 minute; select a.v, b.v]"
    text = "SELECT a.v\nFROM a JOIN b ON a.k = b.k WITHIN 1 MINUTE"
    shown = "StreamJoin[a, b: SELECT a.v FROM a JOIN b ON a.k = b.k WITHIN 1 MINUTE]"
    assert repr(StreamJoin(spark).sql(text, **frames)) == shown


def test_durations_may_be_timedeltas(spark, frames):
    join = StreamJoin(spark).stream("a", frames["a"], eventTime="ts", delay=timedelta(seconds=5), window="1 hour")
    join = join.stream("b", frames["b"], eventTime="ts", window=timedelta(minutes=2)).where("a.k = b.k")
    query = pieces_of(join).build()[0]
    assert streams_of(join) == {"a": ("ts", 5_000_000), "b": ("ts", 0)}
    assert query.windows_us == (3_600_000_000, 120_000_000)
    assert pieces_of(join.within(timedelta(milliseconds=1500))).within == "1 second 500 milliseconds"
    assert repr(join.within(timedelta(minutes=2))).endswith("within 2 minutes; a 1 hour; b 2 minutes]")


WRONG_ARGUMENTS = {
    "a Column as a condition": (
        lambda join: join.where(F.col("k") == 1),
        "where takes SQL text, not the Column '=(k, 1)'. "
        "write it as SQL text, such as where('a.k = b.k AND a.price < b.price')",
    ),
    "a list of conditions": (
        lambda join: join.where(["a.k = b.k"]),
        "where takes SQL text, not ['a.k = b.k'] (list). "
        "write it as SQL text, such as where('a.k = b.k AND a.price < b.price'); call it again for another one",
    ),
    "a Column to select": (
        lambda join: join.select("a.v", F.col("k")),
        "select takes SQL text, not the Column 'k'. "
        "write SQL text with the names of the streams, such as 'a.k' or 'a.price * 2 AS double_price'",
    ),
    "a number to group by": (
        lambda join: join.groupBy(1),
        "groupBy takes SQL text, not 1 (int). "
        "write SQL text with the names of the streams, such as 'a.k' or 'a.price * 2 AS double_price'",
    ),
    "a number of seconds": (
        lambda join: join.within(60),
        "within must be a duration, not 60 (int). write it like '10 minutes', or give a timedelta",
    ),
}


@pytest.mark.parametrize("case", WRONG_ARGUMENTS)
def test_an_argument_of_another_kind_is_refused_with_what_to_write(join, case):
    call, text = WRONG_ARGUMENTS[case]
    assert refusal((QueryError, OptionError), lambda: call(join)) == f"[INVALID_ARGUMENT] {text}"


def test_a_named_event_time_inherits_the_delay_of_the_watermark(spark, frames):
    marked = {name: df.withWatermark("ts", "7 seconds") for name, df in frames.items()}
    join = StreamJoin(spark).stream("a", marked["a"], eventTime="ts").stream("b", marked["b"], delay="1 second")
    assert streams_of(join.where("a.k = b.k")) == {"a": ("ts", 7_000_000), "b": ("ts", 1_000_000)}


def test_another_event_time_than_the_watermark_s_needs_a_delay_of_its_own(spark, frames):
    marked = frames["a"].withColumn("seen", F.col("ts")).withWatermark("ts", "7 seconds")
    message = (
        "[ANOTHER_EVENT_TIME] stream 'a' has its watermark on 'ts', and 'seen' was given as its event time. "
        "leave eventTime out, call withWatermark('seen', ...) instead, or say the delay as well: "
        "stream('a', df, eventTime='seen', delay='5 seconds')"
    )
    assert refusal(QueryError, lambda: StreamJoin(spark).stream("a", marked, eventTime="seen")) == message
    join = StreamJoin(spark).stream("a", marked, eventTime="seen", delay="2 seconds").stream("b", frames["b"])
    assert streams_of(join.where("a.k = b.k"))["a"] == ("seen", 2_000_000)


def test_errors_are_those_of_pyspark_too(join):
    with pytest.raises(PySparkException) as caught:
        join.select("a.nothing").schema  # noqa: B018
    assert isinstance(caught.value, WatersmeetError)
    assert caught.value.getCondition() == "UNKNOWN_COLUMN"
    assert caught.value.getSqlState() is None


def test_endless_state_is_warned_of(spark, frames, tmp_path):
    join = StreamJoin(spark).stream("a", frames["a"], eventTime="ts").stream("b", frames["b"], eventTime="ts")
    writer = join.where("a.k = b.k").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck"))
    with pytest.warns(UserWarning, match=r"^rows of a, b are kept for ever: no window bounds .* Add within\('10 min"):
        writer.start().stop()


def test_a_window_that_the_condition_implies_is_shown_and_bounds_state(spark, frames, tmp_path, capsys, recwarn):
    join = StreamJoin(spark)
    for name, df in frames.items():
        join = join.stream(name, df, eventTime="ts", delay="30 seconds")
    join = join.where("a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL 5 MINUTES AND b.ts + INTERVAL 1 MINUTE")
    join.explain()
    shown = capsys.readouterr().out
    assert "stream    a: within 5 minutes 1 microsecond (by the condition), delay 30 seconds" in shown
    assert "stream    b: within 1 minute 1 microsecond (by the condition), delay 30 seconds" in shown
    join.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck")).start().stop()
    assert not [w for w in recwarn if "kept for ever" in str(w.message)]
