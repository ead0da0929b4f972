"""What is closed stays until it expires, whatever the stage, and is closed only where it can be cleaned up."""

from dataclasses import replace

import pyarrow as pa
import pytest

from watersmeet.epoch import protocol
from watersmeet.epoch.kinds import Batch, Clean, Spill
from watersmeet.epoch.tasks import tasks_of
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64())])
NAMES = "abc"
ROWS = {name: pa.table({"x": [1, 2], "y": [1, 2]}, schema=SCHEMA) for name in NAMES}
GENERATION = 2


def engine(folder, tree: str, *, aggregates: bool = False) -> InProcessQuery:
    query = build_query(
        [Stream(name, SCHEMA) for name in NAMES],
        where=["a.x = b.x", "b.y = c.y"],
        within=None,
        windows={},
        select=["count(*) AS n"] if aggregates else ["a.x", "c.y"],
        group_by=["a.x"] if aggregates else [],
    )
    return InProcessQuery(
        query, folder, partitions=8, trees=[parse_tree(tree, NAMES)], mode="complete" if aggregates else None
    )


def engine_of(kind: str, folder) -> tuple[InProcessQuery, int]:
    """A query, and a stage of it that is of this kind."""
    found = engine(folder, "(a b c)" if kind == "hops" else "((a b) c)", aggregates=kind == "aggregate")
    kinds = ["hops" if stage.hops else "nodes" for stage in found.plan.stages]
    return found, [*kinds, "aggregate"].index(kind)


@pytest.mark.parametrize("kind", ["hops", "nodes", "aggregate"])
def test_closed_extents_are_carried_over(tmp_path, kind):
    query, stage = engine_of(kind, tmp_path)
    query.run(ROWS)
    manifest = query.manifest
    names = [layout.name for layout in query.plan.layouts(stage, 0)]
    closed = {name: tuple(replace(e, generation=GENERATION) for e in manifest.extents[0][name]) for name in names}
    assert closed
    state = protocol.State(protocol.Phase.IDLE, replace(manifest, extents=({**manifest.extents[0], **closed},)))
    query.drive.state = state
    query.run(ROWS)
    found = query.manifest.extents[0]
    kept = {name: tuple(e for e in found[name] if not e.is_active) for name in names}
    assert kept == closed
    assert {e.segment for extents in kept.values() for e in extents} <= query.manifest.segments.keys()


@pytest.mark.parametrize("kind", ["hops", "aggregate"])
def test_stages_without_generations_refuse_orders(tmp_path, kind):
    query, stage = engine_of(kind, tmp_path)
    for order in (Spill(stage, 0, (1,)), Clean(stage, 0, 0, 8)):
        with pytest.raises(ValueError, match=f"stage {stage} does not spill"):
            tasks_of(query.plan, query.manifest, Batch(0, (order,)))


def test_stages_of_nodes_take_orders(tmp_path):
    query, stage = engine_of("nodes", tmp_path)
    (task,) = tasks_of(query.plan, query.manifest, Batch(0, (Spill(stage, 0, (1,)),)))[stage]
    assert task.spill == (1,)
