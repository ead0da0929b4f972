"""Moving values: recent epochs count more, empty ones nothing."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.adaptation.plans import SCHEMA
from watersmeet.adaptation.moving import Counted
from watersmeet.adaptation.moving import Moving as Real
from watersmeet.engine.key_hashes import key_hashes
from watersmeet.engine.statistics import Tally
from watersmeet.epoch.key_sketch import SketchedKey, sketched_classes
from watersmeet.epoch.task import SlotReport
from watersmeet.query.logical import Stream, build_query
from watersmeet.state.measures import (
    INSERT_NS,
    PASSED,
    PROBE_NS,
    ROWS,
    STATE_ROWS,
    TESTED,
    Counts,
    Figure,
    residual_name,
)

QUERY = build_query(
    [Stream(name, SCHEMA, "ts", 0) for name in "abc"],
    where=["a.x = b.x", "b.y = c.y", "a.z < c.z"],
    within="10 seconds",
    windows={},
    select=["a.x"],
)
CLASSES = sketched_classes(QUERY)


class Moving(Real):
    def add(self, seconds, *reports):
        super().add(seconds, Counted.of(reports))


def report(rows=100, slot=0, tested=0, passed=0, stored=0, keys=None, rng=None) -> SlotReport:
    counts = {
        Figure(ROWS): rows,
        Figure(TESTED, residual_name(0)): tested,
        Figure(PASSED, residual_name(0)): passed,
        Figure(STATE_ROWS, "a"): stored,
        Figure(INSERT_NS): 1_000_000,
        Figure(PROBE_NS): 3_000_000,
    }
    tally = Tally(8, CLASSES)
    for stream, key_class in (("b", 0), ("c", 0), ("a", 1), ("b", 1)) if keys else ():
        values = rng.integers(0, keys[key_class], rows)
        tally.sketch(SketchedKey(stream, (key_class,)), key_hashes([pa.array(values)]))
    seen = dict.fromkeys("abc", (rows, None))
    return SlotReport(1, 0, slot, (), (), Counts(counts), seen=seen, sketches=tally.sketches())


def test_rates_follow_recent_epochs():
    moving = Moving(10)
    for _ in range(100):
        moving.add(1, *[report(rows=100)])
    assert moving.assumptions(QUERY, CLASSES).rates["a"] == pytest.approx(100)
    for _ in range(20):
        moving.add(1, *[report(rows=300)])
    assert moving.assumptions(QUERY, CLASSES).rates["a"] == pytest.approx(300 - 200 * np.exp(-2), rel=0.01)


def test_an_epoch_that_covers_no_time_ages_nothing():
    moving = Moving(10)
    moving.add(5, *[report(rows=100)])
    moving.add(0, *[report(rows=50)])
    assert moving.assumptions(QUERY, CLASSES).rates["a"] == pytest.approx(30)


def test_without_a_memory_values_are_totals():
    totals = Moving()
    for _ in range(3):
        totals.add(1000, *[report(rows=100), report(rows=50, slot=1)])
    assert totals.of(ROWS) == 450
    assert totals.rate_of_slot(1, ROWS) * totals.seconds == pytest.approx(150)
    assert totals.cpu_s == pytest.approx(2 * 0.004 / 1000)


def test_gauges_are_means_over_time():
    moving = Moving()
    moving.add(1, *[report(stored=100)])
    moving.add(3, *[report(stored=200)])
    assert moving.rate(STATE_ROWS, "a") == pytest.approx(175)


def test_selectivities_of_keys_come_from_sketches_and_follow_a_swap():
    rng = np.random.default_rng(1)
    moving = Moving(5)
    for _ in range(20):
        moving.add(1, *[report(rows=1000, slot=slot, keys=(20, 500), rng=rng) for slot in range(2)])
    before = moving.assumptions(QUERY, CLASSES).keys
    assert before == pytest.approx({0: 1 / 20, 1: 1 / 500}, rel=0.2)
    for _ in range(25):
        moving.add(1, *[report(rows=1000, keys=(500, 20), rng=rng)])
    assert moving.assumptions(QUERY, CLASSES).keys == pytest.approx({0: 1 / 500, 1: 1 / 20}, rel=0.2)


def test_selectivities_of_residuals_are_passed_by_tested():
    moving = Moving(10)
    assert moving.assumptions(QUERY, CLASSES).residuals == {}
    moving.add(1, *[report(tested=100, passed=25)])
    moving.add(1, *[report(tested=0, passed=0)])
    assert moving.assumptions(QUERY, CLASSES).residuals[0] == pytest.approx(0.25)


def test_values_survive_a_restart():
    rng = np.random.default_rng(1)
    moving = Moving(5)
    for _ in range(4):
        moving.add(1, *[report(rows=300, tested=10, passed=3, keys=(20, 500), rng=rng)])
    again = Moving(5)
    again.restore(json.loads(json.dumps(moving.to_value())))
    one, other = (each.assumptions(QUERY, CLASSES) for each in (moving, again))
    assert one.rates == pytest.approx(other.rates)
    assert one.keys == pytest.approx(other.keys)
    assert one.residuals == other.residuals
    assert moving.cpu_s == pytest.approx(again.cpu_s)
    elsewhere = Moving(6)
    elsewhere.restore(json.loads(json.dumps(moving.to_value())))
    assert elsewhere.rows == 0
