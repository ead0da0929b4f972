"""What is closed stays until it expires, whatever the stage, and is closed only where it can be cleaned up."""

from dataclasses import replace

import pyarrow as pa
import pytest

from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.epoch import slot_tasks
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.manifest import Order

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
    extents = tuple(replace(e, generation=GENERATION) for e in query.manifest.extents[stage][0])
    assert extents
    stages = [*query.manifest.extents]
    stages[stage] = (extents,)
    query.manifest = replace(query.manifest, extents=tuple(stages))
    query.run(ROWS)
    kept = [e for e in query.manifest.extents[stage][0] if not e.is_active]
    assert kept == list(extents)
    assert {e.segment for e in kept} <= query.manifest.segments.keys()


@pytest.mark.parametrize("order", [{"spill": (1,)}, {"clean": (0, 8)}])
@pytest.mark.parametrize("kind", ["hops", "aggregate"])
def test_stages_without_generations_refuse_orders(tmp_path, kind, order):
    query, stage = engine_of(kind, tmp_path)
    with pytest.raises(ValueError, match=f"cannot spill or clean up in stage {stage}"):
        slot_tasks(query.plan, query.manifest, stage, [Order(stage, 0, **order)])


def test_stages_of_nodes_take_orders(tmp_path):
    query, stage = engine_of("nodes", tmp_path)
    (task,) = slot_tasks(query.plan, query.manifest, stage, [Order(stage, 0, spill=(1,))])
    assert task.spill == (1,)
