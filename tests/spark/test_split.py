"""The group formula in the JVM is that of plan/partitioning.py: a row lands in the slot of its group."""

import numpy as np
import pytest
from pyspark.sql import functions as F

from tests.spark.helpers import join_of, random_batches
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.frame import HASH, STAGE, STREAM, pool_name
from watersmeet.plan.partitioning import PARTITIONS_MAX, even_assignment, group_of
from watersmeet.plan.stages import plan_join
from watersmeet.runtime.spark.frames import hashed, split
from watersmeet.runtime.spark.source import spark_type, unite


@pytest.fixture(scope="module")
def query(spark, tmp_path_factory):
    return join_of(spark, tmp_path_factory.mktemp("feed")).build()[0]


def in_turn(partitions, slots):
    return tuple(group % slots for group in range(partitions))


EVEN = [(even_assignment, *sizes) for sizes in [(256, 2), (7, 3), (1, 1), (300, 40), (PARTITIONS_MAX, 4)]]
SCATTERED = [(in_turn, *sizes) for sizes in [(7, 3), (300, 4)]]


@pytest.mark.parametrize(("deal", "partitions", "slots"), [*EVEN, *SCATTERED])
def test_split_keeps_the_rows_of_a_group_in_the_slot_of_its_assignment(spark, query, partitions, slots, deal):
    plan = plan_join(query, (default_tree(query),), partitions)
    given = {STREAM: "0", pool_name(plan.frame.keys[0][0]): "cast(id * 7919 as int)"}
    rows = spark.range(5000).selectExpr(
        f"0 AS {STAGE}",
        *(f"{given.get(f.name, 'null')}::{spark_type(f.type).simpleString()} AS {f.name}" for f in plan.frame.schema),
    )
    assignment = deal(partitions, slots)
    placed = (
        split(plan, hashed(plan, rows), assignment, slots).select(HASH, F.spark_partition_id().alias("slot")).toArrow()
    )
    groups = group_of(placed[HASH].to_numpy().view(np.uint64), partitions)
    assert (placed["slot"].to_numpy() == np.asarray(assignment)[groups]).all()
    assert len(set(groups.tolist())) > min(partitions, 5000) // 2


def test_streams_are_united_in_name_order(spark, query, tmp_path):
    assert [stream.name for stream in query.streams] == ["a", "b", "c"]
    frames = {
        name: spark.createDataFrame(table.to_pandas()) for name, table in random_batches(1, "cab", 1, 5)[0].items()
    }
    frames = {name: df.selectExpr("cast(k as int) k", "ts", "v", "name") for name, df in frames.items()}
    united = unite(query, frames)
    assert {row[0] for row in united.filter("_stream = 2").select("_stream").collect()} == {2}
    assert united.count() == 18
