"""Which stages may spill, and that orders, figures and the coordinator agree on it."""

import pyarrow as pa
import pytest

from tests.unit.adaptation.plans import chain
from tests.unit.epoch.plans import aggregate_plan, hops
from watersmeet.adaptation.ledger import GroupLedger
from watersmeet.epoch.after import initial_manifest
from watersmeet.epoch.kinds import Batch, Clean, Spill
from watersmeet.epoch.tasks import tasks_of
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.spillable import can_spill, kept_because, spillable_stages
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.query.confidence import with_confidence
from watersmeet.query.logical import Stream, build_query

PLAIN = pa.schema([("x", pa.int64()), ("y", pa.int64())])


def keyless() -> JoinPlan:
    query = build_query(
        [Stream(name, PLAIN) for name in "ab"], where=["a.x < b.x"], within=None, windows={}, select=["a.x"]
    )
    return plan_join(query, (default_tree(query),), 8)


def with_intervals() -> JoinPlan:
    query = build_query(
        [Stream(name, PLAIN) for name in "ab"],
        where=["a.x = b.x"],
        within=None,
        windows={},
        select=["count(*) AS n"],
    )
    query = with_confidence(query, 0.95, {"a": 10, "b": 10})
    return plan_join(query, (default_tree(query),), 8, "update")


@pytest.mark.parametrize(
    ("plan", "stages"),
    [(chain(), [0, 1, 2]), (aggregate_plan(), [0]), (hops(), []), (keyless(), []), (with_intervals(), [])],
)
def test_only_nodes_with_one_key_spill(plan, stages):
    assert spillable_stages(plan) == stages
    before = initial_manifest(plan, 1)
    assert len(GroupLedger(plan).figures(0, before.placement, 0)) == 0
    for stage in range(plan.stage_count):
        assert can_spill(plan, stage) == (stage in stages)
        for order in (Spill(stage, 0, (1,)), Clean(stage, 0, 0, 8)):
            if stage in stages:
                assert tasks_of(plan, before, Batch(0, (order,)))
            else:
                with pytest.raises(ValueError, match=f"stage {stage} does not spill: {kept_because(plan, stage)}"):
                    tasks_of(plan, before, Batch(0, (order,)))


def test_the_reason_names_the_kind_of_state():
    assert "accumulators" in kept_because(aggregate_plan(), 1)
    assert "several keys" in kept_because(hops(), 0)
    assert "without a key" in kept_because(keyless(), 0)
    assert "intervals" in kept_because(with_intervals(), 0)
    assert kept_because(chain(), 0) is None
