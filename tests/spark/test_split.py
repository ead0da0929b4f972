"""The group formula in the JVM is that of plan/partitioning.py: a row lands in the slot of its group."""

import numpy as np
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from tests.spark.helpers import join_of, random_batches
from tests.spark.make_old_checkpoint import chain_join
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.frame import HASH, STAGE, STREAM, pool_name
from watersmeet.plan.partitioning import PARTITIONS_MAX, even_assignment, group_of
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.runtime.spark.frames import RANGES_MAX, hashed, split
from watersmeet.runtime.spark.homes import anchor_at
from watersmeet.runtime.spark.source import spark_type, unite
from watersmeet.runtime.spark.stream_join import pieces_of


@pytest.fixture(scope="module")
def query(spark, tmp_path_factory):
    return pieces_of(join_of(spark, tmp_path_factory.mktemp("feed"))).build()[0]


def in_turn(partitions, slots):
    return tuple(group % slots for group in range(partitions))


EVEN = [(even_assignment, *sizes) for sizes in [(256, 2), (7, 3), (1, 1), (300, 40), (PARTITIONS_MAX, 4)]]
SCATTERED = [(in_turn, *sizes) for sizes in [(7, 3), (300, 4)]]


def anchor_of(spark, slots):
    """An anchor that prefers the only host."""
    address = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keys().mkString(",")
    anchor = anchor_at(spark, [address.rpartition(":")[0]] * slots)
    assert anchor is not None
    return anchor


def split_rows(spark, plan, placement, anchor=None):
    """5000 rows for every stage of a plan, with the hash of their key and the slot that each was sent to."""
    keys = {pool_name(column) for columns in plan.frame.keys for column in columns}
    given = {STREAM: "0", STAGE: f"id % {len(plan.stages)}"} | dict.fromkeys(keys, "cast(id * 7919 as int)")
    texts = [f"{given.get(f.name, 'null')}::{spark_type(f.type).simpleString()} AS {f.name}" for f in plan.frame.schema]
    if not plan.frame.has_stages:
        texts.append(f"0 AS {STAGE}")
    rows = spark.range(5000 * len(plan.stages)).selectExpr(*texts)
    sent = split(plan, hashed(plan, rows), placement, anchor)
    return sent.select(STAGE, HASH, F.spark_partition_id().alias("slot")).toArrow()


def groups_and_slots(sent, partitions):
    return group_of(sent[HASH].to_numpy().view(np.uint64), partitions), sent["slot"].to_numpy()


@pytest.mark.parametrize("at_home", [False, True])
@pytest.mark.parametrize(("deal", "partitions", "slots"), [*EVEN, *SCATTERED])
def test_split_keeps_the_rows_of_a_group_in_the_slot_of_its_owner(spark, query, partitions, slots, deal, at_home):
    anchor = anchor_of(spark, slots) if at_home and slots > 1 else None
    plan = plan_join(query, (default_tree(query),), partitions)
    owners = deal(partitions, slots)
    sent = split_rows(spark, plan, Placement(slots, {plan.key_of_stage(0): owners}), anchor)
    groups, placed = groups_and_slots(sent, partitions)
    assert (placed == np.asarray(owners)[groups]).all()
    assert len(set(groups.tolist())) > min(partitions, 5000) // 2


@pytest.mark.parametrize("at_home", [False, True])
def test_keys_are_placed_each_by_its_own_owners(spark, tmp_path, at_home):
    query = pieces_of(chain_join(spark, tmp_path)).build()[0]
    plan = plan_join(query, (parse_tree("((a b) c)", "abc"),), 300)
    keys = [plan.key_of_stage(stage) for stage in range(2)]
    placement = Placement(3, {keys[0]: tuple(reversed(even_assignment(300, 3))), keys[1]: in_turn(300, 3)})
    assert len(placement.owners) == 2
    assert RANGES_MAX < 300  # so one key is placed by comparisons, the other by a table
    sent = split_rows(spark, plan, placement, anchor_of(spark, 3) if at_home else None)
    for stage, key in enumerate(keys):
        groups, placed = groups_and_slots(sent.filter(pc.equal(sent[STAGE], stage)), 300)
        assert len(set(groups.tolist())) > 150
        assert (placed == np.asarray(placement.owners[key])[groups]).all()


def test_streams_are_united_in_name_order(spark, query, tmp_path):
    assert [stream.name for stream in query.streams] == ["a", "b", "c"]
    frames = {
        name: spark.createDataFrame(table.to_pandas()) for name, table in random_batches(1, "cab", 1, 5)[0].items()
    }
    frames = {name: df.selectExpr("cast(k as int) k", "ts", "v", "name") for name, df in frames.items()}
    united = unite(query, frames)
    assert {row[0] for row in united.filter("_stream = 2").select("_stream").collect()} == {2}
    assert united.count() == 18
