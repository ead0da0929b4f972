"""`toTable`: tables that are made, found, or not made because the query is refused."""

import pytest

from tests.oracle import canonical
from tests.spark.helpers import expected, join_of, random_batches, write_batches
from watersmeet.errors import WatersmeetError

BATCHES = random_batches(seed=1, streams="abc", batches=3, rows=25)


def test_to_table_makes_it_or_goes_on_with_it(spark, tmp_path):
    write_batches(tmp_path, BATCHES[:2])
    for more in (0, 1):
        write_batches(tmp_path, BATCHES[2 : 2 + more], start=2)
        writer = join_of(spark, tmp_path).writeStream.option("checkpointLocation", tmp_path / "ck")
        writer.trigger(availableNow=True).toTable("joined_rows").awaitTermination()
    assert canonical(spark.table("joined_rows").toArrow()) == expected(join_of(spark, tmp_path), BATCHES)
    spark.sql("DROP TABLE joined_rows")


@pytest.mark.parametrize("last_check", ["require_able_workers", "require_room"])
def test_to_table_makes_no_table_for_a_query_that_is_refused(spark, tmp_path, monkeypatch, last_check):
    def refuse(*_args):
        raise WatersmeetError("refused at the end")

    monkeypatch.setattr(f"watersmeet.runtime.spark.writer.{last_check}", refuse)
    write_batches(tmp_path, BATCHES[:1])
    writer = join_of(spark, tmp_path).writeStream.option("checkpointLocation", tmp_path / "ck")
    with pytest.raises(WatersmeetError, match="refused at the end"):
        writer.trigger(availableNow=True).toTable("never_made")
    assert not spark.catalog.tableExists("never_made")


@pytest.mark.parametrize("partition_by", [None, "k"])
def test_to_table_makes_tables_in_a_given_path_and_without_one(spark, tmp_path, partition_by):
    write_batches(tmp_path, BATCHES[:1])
    for i, options in enumerate(({"path": str(tmp_path / "a place")}, {})):
        writer = join_of(spark, tmp_path).writeStream.option("checkpointLocation", tmp_path / f"ck{i}")
        query = writer.trigger(availableNow=True).toTable("default.`placed_rows`", partitionBy=partition_by, **options)
        query.awaitTermination()
        found = spark.table("default.`placed_rows`").select(*join_of(spark, tmp_path).columns)
        assert canonical(found.toArrow()) == expected(join_of(spark, tmp_path), BATCHES[:1])
        spark.sql("DROP TABLE default.`placed_rows`")
