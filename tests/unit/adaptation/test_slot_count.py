"""A start with another number of slots, where slots run different shapes: in which epochs, and on which slots."""

from itertools import count

import pyarrow as pa
import pytest

from tests.unit.adaptation.plans import CLOSED, extent, manifest_with
from watersmeet.adaptation.slot_count import OTHER_SLOTS, step_to_slots
from watersmeet.epoch.kinds import Clean
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.manifest import ACTIVE

SHAPES = ("(a b c)", "((a b) c)")
SCHEMA = pa.schema([("k", pa.int64())])
KEY = "a.k = b.k = c.k"


def asked() -> JoinQuery:
    streams = [Stream(name, SCHEMA) for name in "abc"]
    return build_query(streams, where=["a.k = b.k", "b.k = c.k"], within=None, windows={}, select=["a.k"])


def planned() -> JoinPlan:
    return plan_join(asked(), tuple(parse_tree(text, "abc") for text in SHAPES), 8)


def test_nothing_moves_before_all_that_is_owed_is_emitted():
    plan, one = planned(), Placement(1, {KEY: (0,) * 8})
    owing = manifest_with(plan, {(0, 1): [extent(ACTIVE), extent(CLOSED, 5, 6)]}, slots=2)
    step = step_to_slots(plan, owing, one, 1 << 20)
    assert (step.moves, step.slots) == ((), None)
    assert step.orders == (Clean(0, 1, 5, 6, keep=True),)
    closed = manifest_with(plan, {(0, 1): [extent(CLOSED, 4, 8)]}, slots=2)
    assert step_to_slots(plan, closed, one, 1 << 20).orders == (Clean(0, 1, 4, 8, keep=True),)


def test_then_all_groups_move_in_one_epoch():
    plan, one = planned(), Placement(1, {KEY: (0,) * 8})
    free = manifest_with(plan, {(0, 1): [extent(ACTIVE, 4, 8)]}, slots=2)
    step = step_to_slots(plan, free, one, 1 << 20)
    assert (step.slots, step.orders, step.reason) == (1, (), OTHER_SLOTS)
    assert [(move.sender, move.receiver, move.groups) for move in step.moves] == [(1, 0, (4, 5, 6, 7))]


@pytest.mark.parametrize("slots", [1, 3, 5])
def test_it_is_done_before_the_first_batch_and_within_the_budget(tmp_path, slots):
    runs = count()

    def started(slots: int) -> InProcessQuery:
        return InProcessQuery(
            asked(),
            tmp_path / "checkpoint",
            slots=slots,
            partitions=8,
            trees=[parse_tree(text, "abc") for text in SHAPES],
            memory=tmp_path / str(next(runs)),
            memory_budget_bytes=20_000,
        )

    keys = pa.table({"k": range(100)}, schema=SCHEMA)
    started(2).run({"a": keys, "b": keys})
    engine = started(slots)
    assert engine.manifest.slots == 2
    engine.recover()
    assert engine.manifest.slots == slots
    assert [(event["kind"], event["slots"]) for event in engine.manifest.events] == [("slots", slots)]
    held = sum(path.stat().st_size for path in engine.setup.memory.glob("*.seg"))
    assert held <= 20_000 * min(2, slots)
    assert engine.run({"c": keys}).num_rows == 100
