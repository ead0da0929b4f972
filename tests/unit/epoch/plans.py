"""Plans with an aggregation and with hops, for tests of epochs."""

import pyarrow as pa

from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query

PLAIN = pa.schema([("x", pa.int64()), ("y", pa.int64())])
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def counted(window: str | None = "10 microseconds") -> JoinQuery:
    """Results of a join of a and b, counted by key and, if one is given, by window."""
    return build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in "ab"],
        where=["a.k = b.k"],
        within="100 microseconds",
        windows={},
        select=["a.k AS k", "count(*) AS n"],
        group_by=["a.k", *([f"window(result_time, '{window}')"] if window else [])],
    )


def aggregate_plan(mode: OutputMode = "append", window: str | None = "10 microseconds") -> JoinPlan:
    """Two stages: of the join, and of the aggregation."""
    query = counted(window)
    return plan_join(query, (default_tree(query),), 8, mode)


def hops() -> JoinPlan:
    """Stages of hops: a node over two keys."""
    streams = [Stream(name, PLAIN) for name in "abc"]
    query = build_query(streams, where=["a.x = b.x", "b.y = c.y"], within=None, windows={}, select=["a.x"])
    plan = plan_join(query, (parse_tree("(a b c)", "abc"),), 8)
    assert all(stage.hops for stage in plan.stages)
    return plan
