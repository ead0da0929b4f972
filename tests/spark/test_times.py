"""Time on Spark: a pause is no silence, and event times reach to the ends of what a timestamp can hold."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracle import canonical, nested_loop_join
from tests.scenarios import UTC, table_of
from tests.spark.helpers import output, read_stream, run, write_batches
from watersmeet import StreamJoin
from watersmeet.runtime.spark import driver
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.units import iso_time

pytestmark = pytest.mark.spark

EARLIEST, LATEST = -(2**63), 2**63 - 1
SECOND = 1_000_000


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("ts", kind), ("v", pa.int64())])


def timed_join(spark, folder, kind: pa.DataType, within: str, *where: str) -> StreamJoin:
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, folder / name, schema_of(kind)), eventTime="ts")
    for condition in ("a.k = b.k", *where):
        join = join.where(condition)
    return join.within(within).select("a.v", "b.v", "a.ts")


def test_the_time_that_no_driver_ran_is_no_silence(spark, tmp_path, monkeypatch):
    now = [1000]
    monkeypatch.setattr(driver, "now_ms", lambda: now[0])
    rows = schema_of(UTC)
    batches = [
        {"a": table_of(rows, [(1, 100 * SECOND, 1)]), "b": table_of(rows, [(1, 100 * SECOND, 2)])},
        {"a": table_of(rows, [(1, 200 * SECOND, 3)]), "b": rows.empty_table()},
        {"a": rows.empty_table(), "b": table_of(rows, [(1, 101 * SECOND, 4), (1, 199 * SECOND, 5)])},
    ]
    for number, batch in enumerate(batches):
        write_batches(tmp_path, [batch], start=number)
        join = timed_join(spark, tmp_path, UTC, "10 seconds").option("idleTimeout", "10 seconds")
        run(join, tmp_path / "out", tmp_path / "ck")
        now[0] += 3_600_000
    assert output(spark, tmp_path / "out") == nested_loop_join(pieces_of(join).build()[0], batches).results
    assert output(spark, tmp_path / "out").total() == 3


@pytest.mark.parametrize("kind", [UTC, pa.timestamp("us")], ids=["instants", "wall clocks"])
@pytest.mark.parametrize(
    "where", [pytest.param((), marks=pytest.mark.long), ("a.v < 100",)], ids=["all rows", "a filter"]
)
@pytest.mark.parametrize("end", [EARLIEST, LATEST], ids=["earliest", "latest"])
def test_times_at_the_ends_equal_the_oracle(spark, tmp_path, kind, where, end):
    rows, step = schema_of(kind), 1 if end == EARLIEST else -1
    moments = [[end + step * n for n in batch] for batch in ((5, 3), (1, 4), (0, 2))]
    batches = [
        {name: table_of(rows, [(1, moment, 10 * i + number) for i, moment in enumerate(some)]) for name in "ab"}
        for number, some in enumerate(moments)
    ]
    write_batches(tmp_path, batches)
    join = timed_join(spark, tmp_path, kind, "3 microseconds", *where)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    asked = pieces_of(timed_join(spark, tmp_path, kind, "3 microseconds")).build()[0]
    expected = nested_loop_join(asked, batches)
    found = pa.concat_tables(pq.read_table(path) for path in (tmp_path / "out").glob("*.parquet"))
    assert canonical(found) == expected.results
    assert expected.results.total() > 3
    latest = max(moment for some in moments for moment in some)
    assert query.lastProgress["eventTime"]["watermark"] == iso_time(latest)
