"""Mistakes in the builder, SQL, options and sinks: each is answered by a message that is meant for people, before
anything runs. The mistakes and their messages: tests/golden/mistakes."""

import re
import time
from contextlib import contextmanager

import pyspark
import pytest
from pyspark.sql import functions as F

from tests.mistakes import TRACES, expected_message, mistake, mistakes
from tests.spark.helpers import READINGS, read_stream
from watersmeet import StreamJoin
from watersmeet.errors import SinkError, WatersmeetError
from watersmeet.runtime.spark.sink_places import require_same_columns_in
from watersmeet.state.sink_folder import LOG_FOLDER
from watersmeet.state.sink_owner import MARK, Owner

SECONDS_MAX = 10
"""A check asks Spark for types or for the columns of a table. The bound leaves room for a busy machine, but not for a
micro-batch that runs into the mistake."""


@pytest.fixture(scope="module")
def two(spark, feed):
    """Streams a and b, and nothing else yet."""
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts")
    return join


@pytest.fixture(scope="module")
def names(spark, feed, two):
    """What the code of all mistakes may use."""
    join = two.where("a.k = b.k").within("1 minute").select("a.k AS k", "a.name", "b.v")
    a, b = (read_stream(spark, feed / name, READINGS) for name in "ab")
    return {"spark": spark, "F": F, "StreamJoin": StreamJoin, "two": two, "join": join, "a": a, "b": b}


@pytest.fixture
def tables(spark):
    """Makes tables and views, which are dropped again."""
    made = []

    def make(kind, name, text):
        made.append((kind, name))
        spark.sql(text)

    yield make
    for kind, name in made:
        spark.sql(f"DROP {kind} IF EXISTS {name}")


@pytest.fixture
def steps(spark, tmp_path, tables):
    """What the code of a mistake may do in its own folder."""

    def touch(name):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("not a folder")

    def taken(name):
        log = tmp_path / name / LOG_FOLDER
        log.mkdir(parents=True)
        (log / MARK).write_bytes(Owner("0" * 32, "/other/checkpoint", "paid").to_json())

    @contextmanager
    def setting(name, value):
        spark.conf.set(name, value)
        try:
            yield
        finally:
            spark.conf.unset(name)

    def start(join):
        return join.writeStream.start(str(tmp_path / "out"), checkpointLocation=str(tmp_path / "ck"))

    return {
        "out": str(tmp_path / "out"),
        "ck": str(tmp_path / "ck"),
        "touch": touch,
        "taken": taken,
        "setting": setting,
        "start": start,
        "files": lambda name, sql, format="parquet", **options: (
            spark.sql(sql).write.format(format).options(**options).save(str(tmp_path / name))
        ),
        "view": lambda name, sql: tables("VIEW", name, f"CREATE TEMPORARY VIEW {name} AS {sql}"),
        "table": lambda name, columns, how="": tables(
            "TABLE", name, f"CREATE TABLE {name} ({columns}) USING parquet {how}"
        ),
    }


@pytest.mark.parametrize(("area", "title"), mistakes("builder", "sql", "options", "sinks"))
def test_a_mistake_is_answered_before_anything_runs(spark, names, steps, tmp_path, capfd, area, title):
    code = mistake(area, title, "code")
    since = time.monotonic()
    with pytest.raises(WatersmeetError) as caught:
        exec(compile(code, title, "exec"), {**names, **steps})
    seconds = time.monotonic() - since
    text = str(caught.value).replace(str(tmp_path), "/data")
    text = re.sub(r"[\d.]+ .iB are free", "8.0 GiB are free", text)
    text = text.replace(pyspark.__version__, "4.x")
    assert text == expected_message(area, title, text)
    assert caught.value.hint or text.endswith("^"), "it does not say what to do, nor where"
    assert not TRACES.search(text)
    assert seconds < SECONDS_MAX
    assert capfd.readouterr() == ("", "")
    assert not spark.streams.active


def test_a_sink_that_cannot_be_written_does_not_bind_the_checkpoint(names, tmp_path):
    for place in ("/proc/results", "/proc/others"):
        with pytest.raises(SinkError, match=f"cannot write results to {place}: "):
            names["join"].writeStream.start(place, checkpointLocation=tmp_path / "ck")


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_files_with_the_columns_of_the_results_are_no_mistake(spark, tmp_path, format):
    rows = spark.sql("SELECT 1 AS k, 'x' AS name, '2024-05-01' AS day")
    rows.write.partitionBy("day").format(format).save(str(tmp_path / "out"))
    require_same_columns_in(spark, str(tmp_path / "out"), format, {}, rows.schema, ["day"])
    with pytest.raises(SinkError, match="other columns"):
        require_same_columns_in(spark, str(tmp_path / "out"), format, {}, rows.drop("name").schema, ["day"])
