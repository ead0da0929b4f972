"""A restart deals the state out over other slots, unless slots hold state of different shapes."""

import pyarrow as pa
import pytest

from watersmeet.epoch.after import nothing_yet, resumed
from watersmeet.errors import CheckpointError
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query


def plan(*texts: str) -> JoinPlan:
    streams = [Stream(name, pa.schema([("k", pa.int64())])) for name in "abc"]
    query = build_query(streams, where=["a.k = b.k AND b.k = c.k"], within=None, windows={}, select=[])
    return plan_join(query, tuple(parse_tree(text, "abc") for text in texts), partitions=8)


@pytest.mark.parametrize("texts", [("((a b) c)",), ("((a b) c)", "((a b) c)")])
def test_slots_of_one_shape_may_change_in_number(texts):
    made = plan(*texts)
    assert resumed(made, nothing_yet(made, 2), 3).slots == 3


def test_slots_of_several_shapes_keep_their_number():
    made = plan("(a b c)", "((a b) c)")
    manifest = nothing_yet(made, 2)
    assert resumed(made, manifest, 2) is manifest
    with pytest.raises(CheckpointError, match="2 slots with plans of their own, this run 3"):
        resumed(made, manifest, 3)
