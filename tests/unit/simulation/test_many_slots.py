"""Fifty slots and a thousand groups, by counts: what relocation must do with a cluster, whatever the policy."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.relocation_policies import RelocationSettings
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.simulation.clock import ClockPrices, VirtualClock
from watersmeet.simulation.counter_model import Cluster, CounterModel
from watersmeet.simulation.load import Load, normed, zipf
from watersmeet.simulation.watching import events_of, relocations, simulated, unevenness

SLOTS, GROUPS = 50, 1000
RATE, BATCH_S, DAY_S, INTERVAL_S = 5000.0, 600.0, 86_400.0, 1500.0
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
BASE = zipf(GROUPS, 0.1, 1)(0.0)
PHASE = np.repeat(np.arange(20) / 20, GROUPS // 20)


def wandering(at_s: float) -> np.ndarray:
    return normed(BASE * (1 + 0.8 * np.sin(2 * np.pi * (at_s / DAY_S + PHASE))))


def model(policy, *, spread, budget=None, seed=None) -> CounterModel:
    query = build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in "ab"],
        where=["a.k = b.k"],
        within="2 hours",
        windows={},
        select=["a.n AS an", "b.n AS bn"],
    )
    plan = plan_join(query, (parse_tree("(a b)", list("ab")),), GROUPS)
    graph = graph_of(query, Assumptions(rates=dict.fromkeys("ab", RATE), keys={0: 1e-6}))
    spill = None if budget is None else SpillSettings(policy=policy_named("global-output"), budget_bytes=budget)
    how = {"interval_s": INTERVAL_S, "budget_bytes": budget}
    relocator = None if policy == "off" else Relocator(RelocationSettings(policy=policy, **how))
    cluster = Cluster(slots=SLOTS, hosts=SLOTS, budget_bytes=budget, spill=spill, relocator=relocator)
    load = Load([RATE] * 2, {plan.stages[0].key_text: spread})
    return CounterModel(plan, graph, load, cluster, seed)


def owners_of(model) -> np.ndarray:
    return np.array(next(iter(model.manifest.placement.owners.values())))


@pytest.mark.parametrize("policy", ["balance", "lazy-disk", "active-disk"])
def test_no_group_moves_twice_within_the_interval(policy):
    counted = model(policy, spread=lambda _: zipf(GROUPS, 0.3, 2)(0.0), budget=12_000_000, seed=3)
    last, moved_s, moves = owners_of(counted), np.full(GROUPS, -np.inf), 0
    clock = VirtualClock(BATCH_S)

    def watch(moment):
        nonlocal last, moves
        owners = owners_of(counted)
        went = owners != last
        assert not np.any(moment.arrived_s - moved_s[went] < INTERVAL_S)
        moved_s[went], last = moment.arrived_s, owners
        moves += int(went.sum())

    simulated(counted, clock, DAY_S / 6, ClockPrices(), watch)
    assert moves > 0, "otherwise nothing is shown"


def test_memory_is_even_after_a_day_of_wandering_load():
    stays, moves = (
        simulated(model(policy, spread=wandering), VirtualClock(BATCH_S), DAY_S, ClockPrices())
        for policy in ("off", "balance")
    )
    assert unevenness(stays[-1].done.active_bytes) > 1.5
    assert unevenness(moves[-1].done.active_bytes) <= 1.1
    assert relocations(moves) > 10


def test_moves_and_spills_of_the_model_are_those_of_its_events():
    counted = model("lazy-disk", spread=lambda _: zipf(GROUPS, 0.3, 2)(0.0), budget=12_000_000)
    before = owners_of(counted)
    moments = simulated(counted, VirtualClock(BATCH_S), DAY_S / 6, ClockPrices())
    moved = sum(event.details["groups"] for _, event in events_of(moments, "relocate"))
    assert moved >= np.count_nonzero(owners_of(counted) != before) > 0
    spilled = sum(event.details["bytes"] for _, event in events_of(moments, "spill"))
    assert spilled > 0
    closed = [moment.done.closed_bytes.sum() for moment in moments]
    assert max(closed) <= spilled * 1.01
    assert closed[0] == 0
