"""Results of every type come back from their files as they were, or are refused by name before the query starts."""

from collections import Counter

import pytest
from pyspark.sql import DataFrame

from tests.spark.helpers import READINGS, read_stream, readings, run, write_file
from watersmeet import StreamJoin
from watersmeet.errors import QueryError, SinkError

# By v in 1, 2, 3; every column is NULL where v is 4.
TYPES = {
    "truth": "v % 2 = 0",
    "tiny": "tinyint(element_at(array(-128, 0, 127), int(v)))",
    "small": "smallint(element_at(array(-32768, 0, 32767), int(v)))",
    "whole": "element_at(array(-2147483648, 0, 2147483647), int(v))",
    "big": "element_at(array(-9223372036854775808L, 0L, 9223372036854775807L), int(v))",
    "single": "element_at(array(float('NaN'), float('-0.0'), float('-Infinity')), int(v))",
    "double": "element_at(array(double('NaN'), double('-0.0'), 1.7976931348623157E308D), int(v))",
    "wide": "cast('-99999999999999999999.999999999999999999' AS decimal(38, 18))",
    "narrow": "cast(-999.99 AS decimal(5, 2))",
    "fraction": "cast('0.12345678901234567890123456789012345678' AS decimal(38, 38))",
    "text": "element_at(array('', 'ä€𝄞', 'a\\u0000b'), int(v))",
    "collated": "'aB' COLLATE UTF8_LCASE",
    "bytes": "element_at(array(X'', X'00', X'C3FF'), int(v))",
    "fixed": "cast('ab' AS char(3))",
    "bounded": "cast('ab' AS varchar(3))",
    "day": "element_at(array(date'0001-01-01', date'1582-10-04', date'9999-12-31'), int(v))",
    "moment": "element_at(array(timestamp'0001-01-01 00:00:00', timestamp'1582-10-04 12:00:00', "
    "timestamp'9999-12-31 23:59:59.999999'), int(v))",
    "autumn": "timestamp'2024-11-03 01:30:00'",
    "local": "element_at(array(timestamp_ntz'0001-01-01 00:00:00', timestamp_ntz'1582-10-04 12:00:00', "
    "timestamp_ntz'9999-12-31 23:59:59.999999'), int(v))",
    "span": "element_at(array(make_dt_interval(106751991, 4, 0, 54.775807), interval '0' day, "
    "interval '-1 02:03:04.000005' day to second), int(v))",
    "hours": "interval '5' hour",
    "list": "array(1, null, v)",
    "empty": "cast(array() AS array<string>)",
    "collated_list": "array('aB' COLLATE UTF8_LCASE)",
    "map": "map('a', v, 'b', null)",
    "struct": "named_struct('x', 1, 'y', array('p', null))",
    "hole": "named_struct('x', if(v = 2, null, 1), 'inner', if(v = 1, null, named_struct('z', 'z')))",
    "odd_names": "named_struct('a b,;{}()=', 1, 'ä.`', 2)",
    "deep": "map(1, map('x', array(named_struct('d', date'0001-01-01', 'i', interval '1 02' day to hour))))",
    "times": "array(named_struct('t', timestamp'0001-01-01 00:00:00', 'n', timestamp_ntz'1582-10-04 00:00:00'))",
}
ONLY_COMPUTED = {
    "nothing": "NULL",
    "variant": 'parse_json(\'{"a": [1, 2.5, null, "x"]}\')',
    "variants": "array(parse_json('1'))",
}
REFUSED = {
    "interval": "make_interval(1, 2, 3, 4, 5, 6, 7.5)",
    "array<interval>": "array(make_interval(1))",
    "interval year to month": "interval '-1-2' year to month",
    "map<int,interval month>": "map(1, interval '1' month)",
    "array<void>": "array()",
    "struct<>": "struct()",
    "struct<a:struct<>>": "named_struct('a', struct())",
    "struct<x:int,X:int>": "named_struct('x', 1, 'X', 2)",
}


@pytest.fixture
def feed(tmp_path):
    write_file(tmp_path / "a", 0, readings([(1, 1, v) for v in (1, 2, 3, 4)]))
    write_file(tmp_path / "b", 0, readings([(1, 1, 9)]))
    return tmp_path


def values(rows: DataFrame, names) -> Counter:
    """All values as text, with their types; every bit of them counts."""
    texts = [
        f"hex({n})" if n == "bytes" else f"to_json({n})" if n.startswith("variant") else f"string({n})" for n in names
    ]
    return Counter(map(tuple, rows.selectExpr("v", *texts, *(f"typeof({name})" for name in names)).collect()))


def nulled(text: str) -> str:
    return f"if(v = 4, NULL, {text})"


def theirs(spark, types: dict[str, str]) -> Counter:
    rows = spark.range(1, 5).selectExpr("id AS v").selectExpr("v", *(f"{nulled(t)} AS {n}" for n, t in types.items()))
    return values(rows, types)


def join(spark, feed, types: dict[str, str], *, computed: bool) -> StreamJoin:
    """The columns are expressions of the select list, or columns of a stream."""
    columns = [] if computed else [f"{nulled(text)} AS {name}" for name, text in types.items()]
    a = read_stream(spark, feed / "a", READINGS).selectExpr("k", "v", *columns)
    made = StreamJoin(spark).stream("a", a).stream("b", read_stream(spark, feed / "b", READINGS)).options(slots=2)
    selected = [
        f"{_of_a(nulled(text))} AS {name}" if computed else f"a.{name} AS {name}" for name, text in types.items()
    ]
    return made.where("a.k = b.k").select("a.v AS v", *selected)


def _of_a(text: str) -> str:
    for before in ("(", " "):
        for after in (")", " ", ","):
            text = text.replace(f"{before}v{after}", f"{before}a.v{after}")
    return text


@pytest.mark.parametrize(
    ("computed", "zone"),
    [
        (True, "America/Los_Angeles"),
        pytest.param(False, "Asia/Kolkata", marks=pytest.mark.long),
        pytest.param(True, "Asia/Kolkata", marks=pytest.mark.long),
        pytest.param(False, "America/Los_Angeles", marks=pytest.mark.long),
    ],
)
def test_values_come_back_as_they_were(spark, feed, computed, zone, monkeypatch):
    types = TYPES | ONLY_COMPUTED if computed else TYPES
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        found = []
        writer = join(spark, feed, types, computed=computed).writeStream.option("checkpointLocation", feed / "ck")
        writer = writer.foreachBatch(lambda rows, _: found.append(values(rows, types)))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert found == [theirs(spark, types)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("computed", [pytest.param(True, marks=pytest.mark.long), False])
def test_parquet_files_have_the_same_types(spark, feed, computed):
    """Part files of ours, and files that Spark writes."""
    run(join(spark, feed, TYPES, computed=computed), feed / "out", feed / "ck")
    assert values(spark.read.parquet(str(feed / "out")), TYPES) == theirs(spark, TYPES)


@pytest.mark.parametrize("kind", REFUSED)
def test_other_types_are_refused_by_name(spark, feed, kind):
    with pytest.raises(SinkError, match="result column 'x' is") as refused:
        run(join(spark, feed, {"x": REFUSED[kind]}, computed=True), feed / "out", feed / "ck")
    assert refused.value.error_class == "UNSUPPORTED_RESULT_TYPE"
    assert f"is {kind}," in str(refused.value)
    assert not (feed / "out").exists()


def test_a_variant_of_a_stream_is_refused_by_name(spark, feed):
    with pytest.raises(QueryError, match="column 'x' of stream 'a' is variant"):
        join(spark, feed, {"x": "parse_json('1')"}, computed=False)


@pytest.mark.parametrize(("format", "text"), [("csv", "array(v)"), ("orc", "parse_json('1')")])
def test_what_a_format_cannot_hold_is_refused_before_the_start(spark, feed, format, text):
    writer = join(spark, feed, {"x": text}, computed=True).writeStream.format(format)
    writer = writer.options(path=feed / "out", checkpointLocation=feed / "ck").trigger(availableNow=True)
    with pytest.raises(SinkError, match=f"{format} files cannot hold that"):
        writer.start()
