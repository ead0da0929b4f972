"""Predicates beyond plain columns, through Spark: results are those of Spark's own batch join of the same rows."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.spark.helpers import read_stream, run, start, write_batches
from watersmeet import StreamJoin
from watersmeet.errors import QueryError

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("n", pa.int64()),
        ("name", pa.string()),
        ("info", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)
NAMES = ("Oslo", "oslo", "OSLO", "Bergen", "bergan", "Voss", None)


def rows(salt: int, count: int = 40) -> pa.Table:
    found = []
    for i in range(count):
        name = NAMES[(i * salt) % len(NAMES)]
        found.append({"k": i % 5, "n": (i * salt) % 11, "name": name, "info": {"city": name, "zip": i % 4}})
    return pa.Table.from_pylist(found, schema=SCHEMA)


@pytest.fixture(scope="module")
def feed(spark, tmp_path_factory):
    """Streams a, b and c in two files each, and views of the same rows."""
    base = tmp_path_factory.mktemp("predicates")
    write_batches(base, [{"a": rows(3), "b": rows(5), "c": rows(2, 10)}, {"a": rows(4), "b": rows(9), "c": rows(7, 5)}])
    for name in "abc":
        spark.read.parquet(str(base / name)).createOrReplaceTempView(f"pred_{name}")
    return base


def join_of(spark, feed, streams="ab", **options) -> StreamJoin:
    join = StreamJoin(spark).option("slots", 2)
    for name in streams:
        join = join.stream(name, read_stream(spark, feed / name, SCHEMA, **options))
    return join


def rows_of(df) -> Counter:
    return Counter(repr(tuple(row)) for row in df.collect())


def by_spark(spark, condition, streams="ab", select=("k", "n", "name")) -> Counter:
    columns = ", ".join(f"{s}.{c}" for s in streams for c in select)
    sources = " CROSS JOIN ".join(f"pred_{s} {s}" for s in streams)
    found = rows_of(spark.sql(f"SELECT {columns} FROM {sources} WHERE {condition}"))
    assert 0 < found.total() < 20_000
    return found


def selected(join: StreamJoin, streams="ab", select=("k", "n", "name")) -> StreamJoin:
    return join.select(*(f"{s}.{c}" for s in streams for c in select))


def test_derived_keys(spark, feed, tmp_path, capsys):
    """Functions, struct fields, casts and arithmetic as keys; the guard keeps `12 / a.n` from failing."""
    condition = (
        "lower(a.name) = lower(b.info.city) AND CAST(a.k AS STRING) = CAST(b.k AS STRING) AND a.n <> 0 "
        "AND 12 / a.n > b.n AND 12 div a.n = c.n + 1 AND c.name = upper(a.name)"
    )
    join = selected(join_of(spark, feed, "abc").where(condition), "abc")
    join.explain()
    assert "derived   a._d0: lower(`name`)  (by Spark, at the source)" in capsys.readouterr().out
    run(join, tmp_path / "out", tmp_path / "ck")
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == by_spark(spark, condition, "abc")


def test_a_restart_knows_derived_columns(spark, feed, tmp_path):
    """One file of each stream per run: what the second run joins was derived by the first."""
    condition = "upper(a.name) = upper(b.name) AND a.n < b.n"
    for number in range(2):
        for name in "ab":
            source = feed / name / f"{number:05d}.parquet"
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / source.name).write_bytes(source.read_bytes())
        join = selected(join_of(spark, tmp_path).where(condition))
        run(join, tmp_path / "out", tmp_path / "ck")
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == by_spark(spark, condition)
    other = selected(join_of(spark, tmp_path).where("lower(a.name) = lower(b.name) AND a.n < b.n"))
    with pytest.raises(Exception, match=r"derived columns: checkpoint has 'a._d0: upper\(`name`\)"):
        start(other, tmp_path / "out", tmp_path / "ck")


@pytest.mark.parametrize("sink", ["parquet", pytest.param("memory", marks=pytest.mark.long)])
def test_spark_evaluates_the_rest_on_the_results(spark, feed, tmp_path, sink):
    condition = (
        "a.k = b.k AND levenshtein(a.name, b.name) < 3 AND a.n < b.n AND concat(a.n, b.info.zip) LIKE '%1' "
        "AND array(a.n, 1) <> array(b.n, 2)"
    )
    join = join_of(spark, feed).where(condition).select("a.k", "b.n", "a.name AS name")
    if sink == "parquet":
        run(join, tmp_path / "out", tmp_path / "ck")
        ours = spark.read.parquet(str(tmp_path / "out"))
    else:
        writer = join.writeStream.format("memory").queryName("pred_memory").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "ck")).start().awaitTermination()
        ours = spark.table("pred_memory")
    theirs = spark.sql(f"SELECT a.k, b.n, a.name FROM pred_a a JOIN pred_b b ON {condition}")
    assert ours.columns == ["a_k", "b_n", "name"]
    assert rows_of(ours) == rows_of(theirs)
    assert theirs.count() > 20


def test_registered_predicates(spark, feed, tmp_path):
    """A closure over arrays, a lambda row by row, one of a single stream; with derived arguments, beside OR and NOT."""
    most = 2

    def near(x: pa.Array, y: pa.Array) -> pa.Array:
        return pc.less_equal(pc.abs(pc.subtract(x, y)), most)

    join = join_of(spark, feed).register("near", near)
    join = join.register("few", lambda x: pc.less(x, 9))
    with pytest.warns(UserWarning, match="predicate 'alike' is called once for every pair of rows"):
        join = join.register("alike", lambda x, y: None if x is None else x[:2] == (y or "")[:2], vectorized=False)
    join = join.where(
        "a.k = b.k AND (NEAR(a.n, b.n + 1) OR b.n = 3) AND NOT alike(lower(a.name), b.info.city) AND few(a.n)"
    )
    run(selected(join), tmp_path / "out", tmp_path / "ck")
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == by_spark(
        spark,
        "a.k = b.k AND (abs(a.n - (b.n + 1)) <= 2 OR b.n = 3) AND a.n < 9 AND "
        "NOT (left(lower(a.name), 2) = left(coalesce(b.info.city, ''), 2))",
    )


def test_a_registered_predicate_without_any_key(spark, feed, tmp_path):
    join = join_of(spark, feed).register("levenshtein", lambda x, y: pc.equal(pc.add(x, y), 13))
    run(selected(join.where("levenshtein(a.n, b.n)")), tmp_path / "out", tmp_path / "ck")
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == by_spark(spark, "a.n + b.n = 13")


def test_a_registered_predicate_that_answers_nonsense_is_named(spark, feed, tmp_path):
    join = join_of(spark, feed).register("near", lambda x, y: pc.subtract(x, y)).where("a.k = b.k AND near(a.n, b.n)")
    query = start(selected(join), tmp_path / "out", tmp_path / "ck")
    place = r"\(.*test_predicates\.py, line \d+\)"
    with pytest.raises(
        QueryError, match=rf"\[PREDICATE_FAILED\] predicate 'near' returned values of type int64 {place}"
    ):
        query.awaitTermination()


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("lowr(a.name) = b.name", r"\[INVALID_EXPRESSION\] Spark has no function 'lowr' [\s\S]*did you mean 'lower'"),
        ("a.info.town = b.name", r"\[INVALID_EXPRESSION\] Spark refuses '`info`.town': No such struct field `town`"),
        ("levenshtein(a.name, b.name)", r"\[TYPE_MISMATCH\] 'levenshtein\(a.name, b.name\)' is INT, not a condition"),
        ("near(a.n, b.n)", r"\[INVALID_EXPRESSION\] Spark has no function 'near' [\s\S]*register\('near', function\)"),
        ("rand() < a.n - b.n", r"\[UNSUPPORTED_FUNCTION\] non-deterministic function rand\(\)"),
    ],
)
def test_mistakes_are_found_before_the_query_starts(spark, feed, tmp_path, condition, message):
    with pytest.raises(QueryError, match=message):
        start(join_of(spark, feed).where("a.k = b.k").where(condition), tmp_path / "out", tmp_path / "ck")


def test_a_name_is_registered_once(spark):
    with pytest.raises(QueryError, match="two predicates are named 'NEAR'"):
        StreamJoin(spark).register("near", print).register("NEAR", print)
