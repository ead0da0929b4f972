"""Prices that are scaled until the plan that runs costs what was measured."""

from dataclasses import replace

import pytest

from watersmeet.optimizer.cost import CostModel, Prices
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures
from watersmeet.optimizer.measured_prices import FACTOR_MAX, JOINING, STORING, calibrated

ASSUMED = Prices(2e-7, 1e-8, 1e-7, probe_s=3e-8, exchange_s=5e-7, stage_s=1e-3, lookup_s=4e-7, store_s=2e-3)
NOTHING = Prices(0, 0, 0)
STREAMS = tuple(StreamFigures(name, 1000.0, 10.0, 16) for name in "ABCD")
ONE_KEY = JoinGraph(STREAMS, (Predicate(0b1111, 1e-4),))
MIXED = JoinGraph(STREAMS, (Predicate(0b0011, 1e-4), Predicate(0b0110, 1e-4), Predicate(0b1100, 1e-4)))
RUNNING = {"mjoin": frozenset(), "binary": frozenset({0b0011, 0b0111})}


def seconds_a_row(model: CostModel, running, group, counted):
    """What the model says of storing or joining, by row."""
    rows = replace(model, prices=replace(NOTHING, **{counted: 1.0})).plan(running).cpu_s
    only = replace(NOTHING, **{name: getattr(model.prices, name) for name in group})
    return replace(model, prices=only).plan(running).cpu_s / rows


@pytest.mark.parametrize("graph", [ONE_KEY, MIXED], ids=["one key", "several keys"])
@pytest.mark.parametrize("running", RUNNING.values(), ids=RUNNING)
def test_the_plan_that_runs_costs_what_was_measured(graph, running):
    model = CostModel(graph, ASSUMED, slots=2)
    found = calibrated(model, running, {"insert": 3e-6, "delete": 1e-6, "join": 2e-7})
    after = replace(model, prices=found.prices)
    assert seconds_a_row(after, running, STORING, "insert_s") == pytest.approx(4e-6)
    assert seconds_a_row(after, running, JOINING, "join_s") == pytest.approx(2e-7)
    assert found.storing == pytest.approx(4e-6 / seconds_a_row(model, running, STORING, "insert_s"))
    assert (found.prices.exchange_s, found.prices.stage_s) == (ASSUMED.exchange_s, ASSUMED.stage_s)
    assert found.prices.store_s / found.prices.insert_s == pytest.approx(ASSUMED.store_s / ASSUMED.insert_s)


def test_what_was_not_measured_stays():
    model = CostModel(ONE_KEY, ASSUMED)
    assert calibrated(model, frozenset(), {}) == calibrated(model, frozenset(), {"delete": 1.0})
    assert calibrated(model, frozenset(), {}).prices == ASSUMED
    found = calibrated(model, frozenset(), {"join": 1e-7})
    assert found.storing is None
    assert found.joining is not None
    assert found.prices.insert_s == ASSUMED.insert_s
    assert calibrated(replace(model, prices=NOTHING), frozenset(), {"join": 1e-7}).joining is None


def test_a_factor_has_bounds():
    model = CostModel(ONE_KEY, ASSUMED)
    assert calibrated(model, frozenset(), {"insert": 1.0}).storing == FACTOR_MAX
    assert calibrated(model, frozenset(), {"join": 1e-15}).joining == 1 / FACTOR_MAX
