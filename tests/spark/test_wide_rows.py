"""Wide rows through Spark: rows of 64 KB over many epochs, one wide value that many rows meet, and results that wait on
their way to the last stage."""

from collections import Counter
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracle import duckdb_join
from tests.spark.helpers import read_stream, run, write_batches
from watersmeet import StreamJoin
from watersmeet.runtime.spark.aside import Aside
from watersmeet.runtime.spark.stream_join import pieces_of

pytestmark = pytest.mark.spark

WIDTH = 1 << 16
SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.string()), ("w", pa.binary())])


def wide_rows(rng: np.random.Generator, rows: int) -> pa.Table:
    """Two values of 32 KB in each row, all different."""
    texts = [rng.bytes(WIDTH // 4).hex() for _ in range(rows)]
    values = [rng.bytes(WIDTH // 2) for _ in range(rows)]
    return pa.table([rng.integers(0, 40, rows), rng.integers(0, 40, rows), texts, values], schema=SCHEMA)


def seen(tables: list[pa.Table]) -> Counter:
    """Rows by the checksums of their values, file by file: they are not all in memory."""
    found: Counter = Counter()
    for table in tables:
        columns = [
            [crc32(v if isinstance(v, bytes) else v.encode()) for v in column.to_pylist()] for column in table.columns
        ]
        found.update(zip(*columns, strict=True))
    return found


def written(out: Path) -> list[pa.Table]:
    return [pq.read_table(path) for path in sorted(out.glob("*.parquet"))]


@pytest.mark.parametrize(
    "select", [["a.v", "b.w"], pytest.param(["a.v", "upper(hex(b.w)) AS h"], marks=pytest.mark.long)]
)
def test_rows_of_64_kilobytes_over_eight_epochs_equal_duckdb(spark, tmp_path, select):
    rng = np.random.default_rng(5)
    batches = [{name: wide_rows(rng, 60) for name in "ab"} for _ in range(8)]
    write_batches(tmp_path, batches)
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, tmp_path / name, SCHEMA))
    join = join.where("a.k = b.k").where("a.j = b.j").select(*select).option("slots", 2)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert query.lastProgress["epoch"] >= 7
    everything = {name: pa.concat_tables(batch[name] for batch in batches) for name in "ab"}
    plain = StreamJoin(spark)
    for name in "ab":
        plain = plain.stream(name, read_stream(spark, tmp_path / name, SCHEMA))
    asked = pieces_of(plain.where("a.k = b.k").where("a.j = b.j").select("a.v", "b.w")).build()[0]
    expected = duckdb_join(asked, everything)
    if "hex" in select[1]:
        shown = pa.array([value.hex().upper() for value in expected.column(1).to_pylist()])
        expected = expected.set_column(1, "h", shown)
    found = seen(written(tmp_path / "out"))
    assert found.total() > 100
    assert found == seen([expected])


@pytest.mark.slow
def test_one_wide_value_that_many_rows_meet_is_sent_in_parts(spark, tmp_path):
    """Together the results have 2.5 GB: more than a column of Arrow can have, and than memory should."""
    wide, many = "w" * 100_000, 25_000
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    narrow = pa.table({"k": np.full(many, 1), "v": [str(i) for i in range(many)]}, schema)
    few = pa.table({"k": [1, *range(2, 20_000)], "v": [wide, *("n" for _ in range(2, 20_000))]}, schema)
    write_batches(tmp_path, [{"a": few, "b": narrow}])
    join = StreamJoin(spark)
    for name in "ab":
        join = join.stream(name, read_stream(spark, tmp_path / name, schema))
    join = join.where("a.k = b.k").select("a.v AS wide", "b.v AS n").option("slots", 1)
    run(join, tmp_path / "out", tmp_path / "ck")
    (file,) = (tmp_path / "out").glob("*.parquet")
    parquet = pq.ParquetFile(file)
    groups = range(parquet.metadata.num_row_groups)
    assert parquet.metadata.num_rows == many
    assert max(parquet.metadata.row_group(i).num_rows for i in groups) * len(wide) < 64 << 20
    assert sorted(int(v) for i in groups for v in parquet.read_row_group(i, ["n"])["n"].to_pylist()) == [*range(many)]
    assert parquet.read_row_group(0, ["wide"])["wide"].unique().to_pylist() == [wide]


def test_results_put_aside_wait_on_disk_and_come_in_batches(tmp_path):
    aside = Aside(tmp_path, bytes_max=100)
    assert [*aside.take()] == []
    results = [bytes([i]) * size for i, size in enumerate((10, 60, 60, 300, 0, 1))]
    aside.put(results[:2])
    aside.put(results[2:])
    assert aside._file._rolled
    assert [*map(len, aside.take())] == [2, 1, 1, 2]
    aside.put(results)
    assert [result for some in aside.take() for result in some] == results
    assert [*aside.take()] == []
    assert not list(tmp_path.iterdir())
