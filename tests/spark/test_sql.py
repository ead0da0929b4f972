"""Queries as SQL text: the same results as with the builder, event times from the DataFrames, and Spark's own types."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

import watersmeet
from tests.effort import mostly_long
from tests.oracle import canonical
from tests.spark.helpers import READINGS, expected, output, random_batches, read_stream, run, write_batches
from watersmeet import StreamJoin
from watersmeet.errors import QueryError
from watersmeet.query.aggregate_types import aggregate_type
from watersmeet.query.aggregates import aggregate_column, key_column
from watersmeet.runtime.spark.stream_join import pieces_of

BATCHES = random_batches(seed=7, streams="abc", batches=1, rows=40)


@pytest.fixture(scope="module")
def feed(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


@pytest.fixture
def frames(spark, feed):
    """The streams as DataFrames that know their event time."""
    return {name: read_stream(spark, feed / name, READINGS).withWatermark("ts", "30 seconds") for name in "abc"}


def built(spark, frames, streams: str, *, where=(), within=None, windows=None, select=()) -> StreamJoin:
    """A join by the builder; `x=a` is the stream a under the name x."""
    join = StreamJoin(spark)
    for item in streams.split():
        name, _, source = item.partition("=")
        window = (windows or {}).get(name)
        join = join.stream(name, frames[source or name], eventTime="ts", delay="30 seconds", window=window)
    for condition in where:
        join = join.where(condition)
    return (join.within(within) if within else join).select(*select)


CASES = {
    "within": (
        "SELECT a.k, a.v, b.v FROM a JOIN b ON a.k = b.k WITHIN 1 MINUTE",
        {"streams": "a b", "where": ["a.k = b.k"], "within": "1 minute", "select": ["a.k", "a.v", "b.v"]},
    ),
    "a window per stream": (
        "SELECT a.v, b.v AS other, c.ts FROM a [RANGE 1 MINUTE], b [RANGE 90 SECONDS], c [UNBOUNDED] "
        "WHERE a.k = b.k AND b.k = c.k",
        {
            "streams": "a b c",
            "where": ["a.k = b.k AND b.k = c.k"],
            "windows": {"a": "1 minute", "b": "90 seconds"},
            "select": ["a.v", "b.v AS other", "c.ts"],
        },
    ),
    "a self-join": (
        "SELECT x.v, y.v FROM a [RANGE 1 MINUTE] AS x, a [RANGE 1 MINUTE] AS y WHERE x.k = y.k AND x.v < y.v",
        {"streams": "x=a y=a", "where": ["x.k = y.k AND x.v < y.v"], "within": "1 minute", "select": ["x.v", "y.v"]},
    ),
    "filters, residuals and expressions": (
        "SELECT upper(a.name) AS loud, a.v + b.v AS total\nFROM a, b -- both\n"
        "WHERE a.k = b.k AND a.name LIKE 'n%' AND a.v <> b.v + 3\nWITHIN 2 MINUTES",
        {
            "streams": "a b",
            "where": ["a.k = b.k AND a.name LIKE 'n%' AND a.v <> b.v + 3"],
            "within": "2 minutes",
            "select": ["upper(a.name) AS loud", "a.v + b.v AS total"],
        },
    ),
    "no window": (
        "select * from B join A using (k)",
        {"streams": "b a", "where": ["a.k = b.k"]},
    ),
    "three with on": (
        "SELECT a.v, c.* FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.k AND c.v > 3 WITHIN '90 seconds'",
        {
            "streams": "a b c",
            "where": ["a.k = b.k", "c.k = b.k AND c.v > 3"],
            "within": "90 seconds",
            "select": ["a.v", "c.*"],
        },
    ),
    "a theta join": (
        "SELECT a.v, b.v FROM a, b WHERE a.k < b.k AND a.v < 20 WITHIN 1 MINUTE",
        {"streams": "a b", "where": ["a.k < b.k AND a.v < 20"], "within": "1 minute", "select": ["a.v", "b.v"]},
    ),
    "two keys and an alias": (
        "SELECT `left`.ts AS `the time`, b.v FROM a AS `left` [RANGE 1 MINUTE] JOIN b [RANGE 1 MINUTE] USING (k, name)",
        {
            "streams": "left=a b",
            "where": ["left.k = b.k AND left.name = b.name"],
            "within": "1 minute",
            "select": ["left.ts AS `the time`", "b.v"],
        },
    ),
    "a comma after on": (
        "SELECT a.v, b.v, c.v FROM a JOIN b ON a.k = b.k AND a.name = 'n1', c\n"
        "WHERE c.k = a.k AND c.v % 2 = 0 WITHIN 45s;",
        {
            "streams": "a b c",
            "where": ["a.k = b.k AND a.name = 'n1'", "c.k = a.k AND c.v % 2 = 0"],
            "within": "45 seconds",
            "select": ["a.v", "b.v", "c.v"],
        },
    ),
    "null-safe, and a case": (
        "SELECT CASE WHEN a.v > b.v THEN 'a' ELSE 'b' END AS more FROM a JOIN b ON a.k = b.k AND a.name <=> b.name "
        "WITHIN 1 MINUTE",
        {
            "streams": "a b",
            "where": ["a.k = b.k AND a.name <=> b.name"],
            "within": "1 minute",
            "select": ["CASE WHEN a.v > b.v THEN 'a' ELSE 'b' END AS more"],
        },
    ),
}


@pytest.mark.parametrize(
    "case",
    mostly_long(CASES, "three with on", "a window per stream", "a theta join", "filters, residuals and expressions"),
)
def test_text_and_builder_give_the_same(spark, frames, tmp_path, case):
    text, pieces = CASES[case]
    builder = built(spark, frames, **pieces)
    used = {name: frames[name] for name in {item[-1] for item in pieces["streams"].split()}}
    join = StreamJoin(spark).sql(text, **used)
    assert pieces_of(join).build()[:2] == pieces_of(builder).build()[:2]
    run(join, tmp_path / "out", tmp_path / "ck")
    found = output(spark, tmp_path / "out")
    assert sum(found.values()) > 10
    query = pieces_of(join).build()[0]
    plain = all(item.column is not None and item.column.stream in "abc" for item in query.select)
    if plain and not query.filters:  # what the oracle can do
        assert found == expected(join, BATCHES)


def test_a_self_join_is_that_of_spark(spark, feed, frames, tmp_path):
    text = "SELECT x.v AS v, y.v AS w FROM a AS x JOIN a AS y ON x.k = y.k AND x.v < y.v"
    run(StreamJoin(spark).sql(text, a=frames["a"]), tmp_path / "out", tmp_path / "ck")
    spark.read.parquet(str(feed / "a")).createOrReplaceTempView("a")
    assert output(spark, tmp_path / "out") == canonical(spark.sql(text).toArrow())


def test_sql_of_the_package(spark, frames):
    text = "SELECT a.v, b.v FROM a JOIN b ON a.k = b.k WITHIN 1 MINUTE"
    join = watersmeet.sql(spark, text, streams={"a": frames["a"], "b": frames["b"]}).option("slots", 2)
    query = join.writeStream.format("memory").queryName("by_text").trigger(availableNow=True).start()
    query.awaitTermination()
    assert canonical(spark.table("by_text").toArrow()) == expected(join, BATCHES) != Counter()


# --- event times -----------------------------------------------------------------------------------------------------


def times(join):
    return {stream.name: (stream.event_time, stream.delay_us) for stream in pieces_of(join).build()[0].streams}


TEXT = "SELECT a.v FROM a JOIN b ON a.k = b.k WITHIN 1 MINUTE"


def test_event_time_is_that_of_the_watermark_or_the_only_timestamp(spark, feed, frames):
    plain = read_stream(spark, feed / "b", READINGS)
    assert times(StreamJoin(spark).sql(TEXT, a=frames["a"], b=plain)) == {"a": ("ts", 30_000_000), "b": ("ts", 0)}


def test_event_time_that_was_named_wins(spark, frames):
    two = frames["a"].withColumn("later", frames["a"].ts)
    join = StreamJoin(spark).stream("a", two, eventTime="later", delay="1 second").sql(TEXT, b=frames["b"])
    assert times(join) == {"a": ("later", 1_000_000), "b": ("ts", 30_000_000)}


def test_builder_takes_the_watermark_too(spark, frames):
    join = StreamJoin(spark).stream("a", frames["a"]).stream("b", frames["b"], delay="1 second")
    assert times(join.where("a.k = b.k").within("1 minute")) == {"a": ("ts", 30_000_000), "b": ("ts", 1_000_000)}


def test_event_time_is_not_guessed_among_two(spark, feed, frames):
    plain = read_stream(spark, feed / "b", READINGS)
    two = plain.withColumn("later", plain.ts)
    with pytest.raises(QueryError, match=r"stream 'b' has no event time, which a window needs \(line 1, column 24\)"):
        pieces_of(StreamJoin(spark).sql(TEXT, a=frames["a"], b=two)).build()


# --- refusals --------------------------------------------------------------------------------------------------------


def test_streams_that_are_not_used_or_not_there(spark, frames):
    with pytest.raises(QueryError, match="stream 'c' is given, but the query does not use it"):
        pieces_of(StreamJoin(spark).sql(TEXT, **frames)).build()
    with pytest.raises(QueryError, match=r"unknown stream 'b' \(line 1, column 24\)"):
        pieces_of(StreamJoin(spark).sql(TEXT, a=frames["a"])).build()


def test_text_and_pieces_exclude_each_other(spark, frames):
    join = StreamJoin(spark).sql(TEXT, a=frames["a"], b=frames["b"])
    with pytest.raises(QueryError, match="the query is given as text and also with where"):
        pieces_of(join.where("a.v > 1")).build()
    with pytest.raises(QueryError, match="the join already has a query text"):
        join = join.sql(TEXT)


def test_mistakes_are_found_when_the_text_is_given(spark):
    with pytest.raises(QueryError, match=r"DISTINCT is not supported \(line 1, column 8\)"):
        StreamJoin(spark).sql("SELECT DISTINCT a.v FROM a, b")


# --- types -----------------------------------------------------------------------------------------------------------

TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2)]
TYPES += [pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(36, 20), pa.decimal128(30, 4), pa.decimal128(3, 3)]


@pytest.mark.parametrize("function", ["count", "sum", "avg", "min", "max", "count_distinct"])
def test_aggregates_have_the_types_of_spark(spark, function):
    call = "count(DISTINCT {})" if function == "count_distinct" else f"{function}({{}})"
    calls = ", ".join(call.format(f"CAST(0 AS {from_arrow_type(t).simpleString()})") for t in TYPES)
    row = spark.sql(f"SELECT {calls}")
    assert [to_arrow_type(field.dataType) for field in row.schema] == [aggregate_type(function, t) for t in TYPES]


def test_values_are_typed_by_spark(spark, frames):
    text = """
        SELECT upper(a.name) AS who, a.k % 3 AS bin, sum(a.v * 2) AS total, avg(CAST(b.v AS DECIMAL(10, 2))) AS mean
        FROM a JOIN b ON a.k = b.k WITHIN 1 MINUTE
        GROUP BY 1, bin, window(result_time, '1 minute') HAVING total > 3 AND window.start IS NOT NULL
    """
    query = pieces_of(StreamJoin(spark).sql(text, a=frames["a"], b=frames["b"])).build()[0]
    found = query.aggregation
    assert [(value.type, value.expression is None) for value in found.keys] == [
        (pa.string(), True),
        (pa.int32(), False),
    ]
    total, mean = found.aggregates
    assert (total.type, total.argument.type, total.argument.expression is None) == (pa.int64(), pa.int64(), False)
    assert (mean.type, mean.argument.type) == (pa.decimal128(14, 6), pa.decimal128(10, 2))
    assert found.having == "(`_a0`) > 3 AND `window`.start IS NOT NULL"
    assert [item.name for item in query.select] == ["who", "bin", "total", "mean"]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("sum(no_such(a.v)) AS x", "(line 1, column 12)"),
        ("count(*) + array(1) AS x", "(line 1, column 8)"),
        ("a.k, no_such(a.v) AS x", "(line 1, column 13)"),
        ("a.k + array(1) AS x", "(line 1, column 8)"),
    ],
)
def test_what_spark_refuses_is_refused_at_its_place(spark, frames, select, message):
    text = f"SELECT {select} FROM a JOIN b ON a.k = b.k"
    with pytest.raises(QueryError, match=r"\[INVALID_EXPRESSION\] Spark (refuses|has no function)") as caught:
        pieces_of(StreamJoin(spark).sql(text, a=frames["a"], b=frames["b"])).build()[0]
    assert message in str(caught.value)


def test_filters_are_checked_by_spark_before_anything_runs(spark, frames):
    text = "SELECT a.k FROM a JOIN b ON a.k = b.k\nWHERE a.v > 3 AND "
    for condition, message in {
        "no_such(a.v) = 1": "[INVALID_EXPRESSION] Spark has no function 'no_such'",
        "a.v": "[TYPE_MISMATCH] 'a.v' is BIGINT, not a condition",
    }.items():
        with pytest.raises(QueryError) as caught:
            pieces_of(StreamJoin(spark).sql(text + condition, a=frames["a"], b=frames["b"])).build()
        assert str(caught.value).startswith(message)
        assert "(line 2, column 19)" in str(caught.value)


# --- aggregates ------------------------------------------------------------------------------------------------------

GROUPED = {
    "every aggregate": """
        SELECT a.k, count(*) AS n, count(b.name) AS m, sum(b.v) AS s, avg(a.v) AS mean, min(a.name) AS lo,
               max(b.ts) AS hi, count(DISTINCT b.name) AS d
        FROM a JOIN b ON a.k = b.k GROUP BY a.k""",
    "expressions of keys": """
        SELECT concat(upper(a.name), '!') AS loud, (a.v % 3 + 1) * 2 AS x, a.v % 3 + 1 + count(*) AS y
        FROM a JOIN b ON a.k = b.k GROUP BY upper(a.name), (a.v % 3 + 1)""",
    "expressions of aggregates": """
        SELECT round(sum(CASE WHEN a.v > b.v THEN 1 ELSE 0 END) / count(*), 3) AS share, -max(a.v)+min(b.v) AS spread
        FROM a JOIN b ON a.k = b.k""",
    "by number and alias": """
        SELECT CASE WHEN a.k > 3 THEN 'x' ELSE b.name END AS side, a.k BETWEEN 2 AND 5 AS mid, count(1) AS n
        FROM a JOIN b ON a.k = b.k GROUP BY 1, MID""",
    "having": """
        SELECT a.name, sum(a.v) + 1 AS s
        FROM a JOIN b ON a.k = b.k GROUP BY a.name, b.k HAVING s * 2 > 100 AND b.k <> 3 AND max(b.v) > 3""",
    "having without groups": "SELECT count(*) AS n FROM a JOIN b ON a.k = b.k HAVING n < 0 OR sum(a.v) IS NULL",
    "groups without aggregates": "SELECT b.name, a.k + 1 AS next FROM a JOIN b ON a.k = b.k GROUP BY b.name, a.k",
}


@pytest.mark.parametrize("case", mostly_long(GROUPED, "having", "every aggregate", "expressions of keys"))
def test_groups_compute_what_spark_computes(spark, feed, frames, case):
    """The query as taken apart, put together again by Spark."""
    text = GROUPED[case]
    for name in "ab":
        spark.read.parquet(str(feed / name)).createOrReplaceTempView(name)
    query = pieces_of(StreamJoin(spark).sql(text, a=frames["a"], b=frames["b"])).build()[0]
    columns = ", ".join(f"{s}.{c} AS {s}_{c}" for s in "ab" for c in READINGS.names)
    spark.sql(f"SELECT {columns} FROM a JOIN b ON a.k = b.k").createOrReplaceTempView("joined")
    keys = {key_column(i): key.sql for i, key in enumerate(query.aggregation.keys)}
    calls = {aggregate_column(i): _call(a) for i, a in enumerate(query.aggregation.aggregates)}
    computed = ", ".join(f"{sql} AS {name}" for name, sql in {**keys, **calls}.items())
    by = f"GROUP BY {', '.join(keys.values())}" if keys else ""
    select = ", ".join(f"{item.sql} AS `{item.name}`" for item in query.select)
    having = query.aggregation.having or "true"
    found = spark.sql(f"SELECT {select} FROM (SELECT {computed} FROM joined {by}) WHERE {having}")
    right = spark.sql(text)
    assert [field.dataType for field in found.schema] == [field.dataType for field in right.schema]
    assert canonical(found.toArrow()) == canonical(right.toArrow())


def _call(aggregate) -> str:
    argument = "*" if aggregate.argument is None else aggregate.argument.sql
    distinct = aggregate.function == "count_distinct"
    return f"count(DISTINCT {argument})" if distinct else f"{aggregate.function}({argument})"
