"""The first micro-batches, joined again by another plan, after what they were first joined under has changed."""

import pyarrow as pa
import pytest

from tests.oracle import canonical
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.manifest import FirstBatch, SegmentRef

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])


def query(delay_us: int) -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts", delay_us) for name in "abc"]
    where, within = ["a.k = b.k AND b.k = c.k"], "30 microseconds"
    return build_query(streams, where=where, within=within, windows={}, select=["a.v", "b.v", "c.v"])


def batch(**times: list[int]) -> dict[str, pa.Table]:
    return {name: pa.table([[1] * len(at), at, at], names=SCHEMA.names).cast(SCHEMA) for name, at in times.items()}


@pytest.mark.parametrize("tree", ["((a b) c)", "(a b c)", "(a (b c))"])
def test_rows_that_only_a_shorter_delay_would_have_let_go_are_still_there(tmp_path, tree):
    before = batch(a=[50, 100], b=[100], c=[100])
    engine = InProcessQuery(query(delay_us=60), tmp_path)
    engine.run(before)
    known = engine.manifest
    assert known.watermark_us == 40
    engine = InProcessQuery(query(delay_us=0), tmp_path)
    this = FirstBatch(SegmentRef("", 0, 0), 0, known.watermark_us, known.last_seen_ms)
    engine.replan(parse_tree(tree, "abc"), [(before, this)])
    found = engine.run(batch(a=[], b=[60], c=[60]))
    assert canonical(found) == {(50, 60, 60): 1}
    assert engine.manifest.watermark_us == 100
