"""What a checkpoint writes stays as it was: a restart that would spoil the output is refused, with the difference."""

import pyarrow.compute as pc
import pytest

from tests.spark.helpers import join_of, output, random_batches, run, write_batches
from tests.spark.refusals import refusal
from watersmeet.errors import CheckpointError

pytestmark = pytest.mark.spark

BATCHES = random_batches(seed=9, streams="ab", batches=2, rows=20)


def less(x, y):
    return pc.less(x, y)


def more(x, y):
    return pc.greater(x, y)


def join(spark, base, *columns: str, predicate=less):
    made = join_of(spark, base, "ab").register("ordered", predicate).where("ordered(a.v, b.v + 100)")
    return made.select(*(columns or ("a.k AS k", "a.v", "b.v")))


def started(join, base, format="parquet", out="out", **how):
    query = join.writeStream.format(format).start(str(base / out), checkpointLocation=str(base / "ck"), **how)
    query.stop()


@pytest.fixture(scope="module")
def base(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("restarts")
    write_batches(folder, BATCHES)
    run(join(spark, folder), folder / "out", folder / "ck")
    return folder


CHANGES = {
    "a type": (
        lambda spark, base: started(join(spark, base, "cast(a.k AS string) AS k", "a.v", "b.v"), base),
        "result columns: checkpoint has 'k int, a_v bigint, b_v bigint', query has 'k string, a_v bigint, b_v bigint'",
    ),
    "a name": (
        lambda spark, base: started(join(spark, base, "a.k AS key", "a.v", "b.v"), base),
        "result columns: checkpoint has 'k int, a_v bigint, b_v bigint', query has 'key int, a_v bigint, b_v bigint'",
    ),
    "an expression": (
        lambda spark, base: started(join(spark, base, "a.k AS k", "a.v", "b.v + 0 AS b_v"), base),
        "select list: checkpoint has 'a.k AS k, a.v AS a_v, b.v AS b_v', query has ",
    ),
    "a format": (
        lambda spark, base: started(join(spark, base), base, format="json"),
        "sink: checkpoint has 'parquet files in ",
    ),
    "a path": (lambda spark, base: started(join(spark, base), base, out="elsewhere"), "/elsewhere'"),
    "partitions": (
        lambda spark, base: started(join(spark, base), base, partitionBy="k"),
        "partitioned by: checkpoint has 'none', query has 'k'",
    ),
    "a predicate": (
        lambda spark, base: started(join(spark, base, predicate=more), base),
        "predicate ordered: checkpoint has 'code ",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_output_is_refused(spark, base, change):
    action, difference = CHANGES[change]
    before = output(spark, base / "out")
    text = refusal(CheckpointError, lambda: action(spark, base))
    assert text.startswith(f"[DIFFERENT_OUTPUT] checkpoint {base / 'ck'} was made for another output (")
    assert difference in text
    assert output(spark, base / "out") == before
    assert not (base / "elsewhere").exists()


def test_what_may_change_does(spark, base):
    writer = join(spark, base).writeStream.queryName("another").option("compression", "zstd")
    query = writer.trigger(availableNow=True).start(str(base / "out"), checkpointLocation=str(base / "ck"))
    query.awaitTermination()
    assert query.exception() is None
