"""Every atomic type of Spark as key and payload, nested ones as payload: results are those of Spark's own join."""

import math
from collections import Counter

import pyarrow as pa
import pytest

from tests.spark.helpers import expected, output, read_stream, run, write_batches
from watersmeet import StreamJoin

pytestmark = pytest.mark.slow

# Column: type, and five values; the second side spells some of them differently (0.0 for -0.0, ...).
ATOMIC = {
    "bo": ("boolean", "true, false, true, false, null"),
    "by": ("tinyint", "-128Y, 0Y, 1Y, 127Y, 5Y"),
    "sh": ("smallint", "-32768S, 0S, 1S, 32767S, 5S"),
    "it": ("int", "-2147483648, 0, 1, 2147483647, 5"),
    "lo": ("bigint", "-9223372036854775808L, 0L, 1L, 9223372036854775807L, 5L"),
    "fl": ("float", "float('NaN'), float('-0.0'), 1.5F, float('Infinity'), 2.5F"),
    "do": ("double", "double('NaN'), double('-0.0'), 1.5D, double('-Infinity'), 2.5D"),
    "de": ("decimal(10,2)", "-99999999.99BD, 0.00BD, 1.10BD, 99999999.99BD, 5.00BD"),
    "dl": ("decimal(38,6)", "-1.5BD, 0BD, 12345678901234567890123456789012.123456BD, 1.000001BD, 5BD"),
    "st": ("string", "'', 'a', 'ä€𝄞', 'a b', 'z'"),
    "ch": ("char(3)", "'a', 'ab', 'abc', '', 'z'"),
    "vc": ("varchar(5)", "'a', 'ab ', 'abcde', '', 'z'"),
    "bi": ("binary", "X'', X'00', X'00FF', X'C3', X'FF'"),
    "da": ("date", "date'1582-10-15', date'1970-01-01', date'2024-02-29', date'9999-12-31', date'1969-12-31'"),
    "ts": (
        "timestamp",
        "timestamp'1900-01-01 00:00:00', timestamp'1970-01-01 00:00:00.000001Z', timestamp'2024-03-10 02:30:00', "
        "timestamp'2024-11-03 01:30:00', timestamp'1969-12-31 23:59:59.999999'",
    ),
    "tn": (
        "timestamp_ntz",
        "timestamp_ntz'1900-01-01 00:00:00', timestamp_ntz'1970-01-01 00:00:00.000001', "
        "timestamp_ntz'2024-03-10 02:30:00', timestamp_ntz'2024-11-03 01:30:00', timestamp_ntz'1969-12-31 23:59:59.9'",
    ),
    "dt": (
        "interval day to second",
        "interval '-1' day, interval '0' day, interval '1 02:03:04.000005' day to second, interval '9' day, "
        "interval '1' second",
    ),
}
NESTED = {
    "ar": ("array<int>", "array(1, null), array(), null, array(3), array(4, 5)"),
    "mp": ("map<string, double>", "map('a', 1D), map(), null, map('b', null), map('c', 3D)"),
    "sr": (
        "struct<x: int, y: array<string>>",
        "struct(1 AS x, array('p') AS y), struct(null AS x, null AS y), null, struct(3 AS x, array() AS y), "
        "struct(4 AS x, array(null) AS y)",
    ),
}
EQUAL_IN_OTHER_BITS = {"float('-0.0')": "float('0.0')", "double('-0.0')": "double('0.0')"}


@pytest.fixture(scope="module")
def tables(spark):
    """Tables types_a and types_b. A row has the x-th value in all columns, save that one may have the next."""
    columns = ATOMIC | NESTED
    for side in "ab":
        names = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
        spark.sql(f"DROP TABLE IF EXISTS types_{side}")
        spark.sql(f"CREATE TABLE types_{side} ({names}, odd int, n int) USING parquet")
        odd = len(ATOMIC)
        values = []
        for j, (_, pool) in enumerate(columns.values()):
            for ours, theirs in EQUAL_IN_OTHER_BITS.items():
                pool = pool.replace(ours, theirs) if side == "b" else pool
            values.append(f"get(array({pool}), (x + if(odd = {j}, 1, 0)) % 5)")
        salt = 0 if side == "a" else 3
        rows = f"SELECT cast(id % 5 AS int) x, cast((id * 7 + {salt}) % {2 * odd} AS int) odd, id n FROM range(60)"
        spark.sql(f"INSERT INTO types_{side} SELECT {', '.join(values)}, odd, n FROM ({rows}) DISTRIBUTE BY 1")
    yield
    for side in "ab":
        spark.sql(f"DROP TABLE types_{side}")


def rows_of(df) -> Counter:
    return Counter(repr(tuple(row)) for row in df.collect())


def test_all_types_together_as_one_key_and_as_payload(spark, tables, tmp_path):
    condition = " AND ".join(f"a.{name} = b.{name}" for name in ATOMIC)
    join = StreamJoin(spark)
    for side in "ab":
        join = join.stream(side, spark.readStream.table(f"types_{side}"))
    run(join.where(condition), tmp_path / "out", tmp_path / "ck")
    ours = spark.read.parquet(str(tmp_path / "out"))
    theirs = spark.sql(f"SELECT * FROM types_a a JOIN types_b b ON {condition}")
    assert rows_of(ours) == rows_of(theirs)
    assert ours.count() > 50


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("ch", "ch"),
        *(pytest.param(name, name, marks=pytest.mark.long) for name in ("fl", "dt", "de", "bi", "tn")),
        ("it", "do"),
        *(
            pytest.param(*pair, marks=pytest.mark.long)
            for pair in (("sh", "de"), ("lo", "dl"), ("by", "lo"), ("fl", "do"), ("de", "dl"))
        ),
    ],
)
def test_one_key_of_one_type_or_of_two_that_meet_in_their_common_type(spark, tables, tmp_path, left, right):
    condition = f"a.{left} = b.{right} AND a.n < b.n"
    join = StreamJoin(spark)
    for side in "ab":
        join = join.stream(side, spark.readStream.table(f"types_{side}"))
    join = join.where(condition).select(f"a.{left} AS left", f"b.{right} AS right", "a.n", "b.n")
    run(join, tmp_path / "out", tmp_path / "ck")
    theirs = rows_of(spark.sql(f"SELECT a.{left}, b.{right}, a.n, b.n FROM types_a a JOIN types_b b ON {condition}"))
    assert theirs, "no rows meet"
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == theirs


def test_nested_columns_are_carried_and_reached_into(spark, tables, tmp_path):
    select = ["a.ar", "b.mp", "a.sr", "b.sr.x AS x", "element_at(a.mp, 'a') AS one", "get(a.ar, 0) AS first"]
    join = StreamJoin(spark)
    for side in "ab":
        join = join.stream(side, spark.readStream.table(f"types_{side}"))
    join = join.where("a.it = b.it AND a.n < b.n").select(*select)
    run(join, tmp_path / "out", tmp_path / "ck")
    sql = f"SELECT {', '.join(select)} FROM types_a a JOIN types_b b ON a.it = b.it AND a.n < b.n"
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == rows_of(spark.sql(sql))


def test_nan_and_zero_are_written_as_they_came(spark, tmp_path):
    schema = pa.schema([("x", pa.float64()), ("n", pa.int32())])
    left = pa.table({"x": [math.nan, -0.0, 0.0, None, 1.5], "n": [1, 2, 3, 4, 5]}, schema=schema)
    right = pa.table({"x": [0.0, math.nan, None, -0.0], "n": [1, 2, 3, 4]}, schema=schema)
    batches = [{"a": left, "b": right}]
    write_batches(tmp_path, batches)
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, tmp_path / name, schema))
    join = join.where("a.x = b.x")
    run(join, tmp_path / "out", tmp_path / "ck")
    found = output(spark, tmp_path / "out")
    assert found == expected(join, batches)
    assert found == Counter(
        {
            ("nan", 1, "nan", 2): 1,
            **{(x, n, y, m): 1 for x, n in (("-0.0", 2), ("0.0", 3)) for y, m in (("0.0", 1), ("-0.0", 4))},
        }
    )
