"""What a running join has shown, as the optimiser takes it."""

import pyarrow as pa
import pytest

from watersmeet.observe.measured import measured
from watersmeet.observe.progress import EpochProgress
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.state.measures import Counts

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])


def query(*where, within=None):
    streams = [Stream(name, SCHEMA, "ts" if within else None) for name in "abc"]
    return build_query(streams, where=list(where), within=within, windows={}, select=["a.v", "b.v AS bv", "c.v AS cv"])


def epoch(arrivals, totals):
    return EpochProgress(
        0, 0, 1, {}, Counts(), [], Counts.named(totals), None, [], 0, 0, 0, 0, statistics={"arrivals": arrivals}
    )


def seen(join, tree, *epochs):
    return measured(join, plan_join(join, [parse_tree(tree, "abc")], 16), epochs)


def test_rates_are_of_event_time_with_windows_and_of_the_clock_without():
    arrivals = {"a": {"rows": 100, "rowsPerSecond": 1000.0, "rowsPerEventSecond": 50.0}}
    again = {"a": {"rows": 200, "rowsPerSecond": 1000.0, "rowsPerEventSecond": 50.0}}
    windowed = seen(
        query("a.x = b.x", "b.x = c.x", within="1 minute"), "(a b c)", epoch(arrivals, {}), epoch(again, {})
    )
    assert windowed.rates == {"a": pytest.approx(50.0)}
    assert windowed.batch_s == pytest.approx(3.0)
    assert seen(query("a.x = b.x", "b.x = c.x"), "(a b c)", epoch(arrivals, {})).rates == {"a": pytest.approx(1000.0)}


def test_an_epoch_without_rows_says_nothing():
    found = seen(query("a.x = b.x", "b.x = c.x"), "(a b c)", epoch({"a": {"rows": 0, "rowsPerSecond": 0.0}}, {}))
    assert found.rates == {}
    assert found.batch_s is None


def test_pairs_of_shapes_that_several_slots_run_are_counted_once():
    join = query("a.x = b.x", "b.x = c.x")
    plan = plan_join(join, [parse_tree("(a b c)", "abc"), parse_tree("((a b) c)", "abc")], 16)
    totals = {"pairs.a~b": 100, "matches.a~b": 10, "pairs.b~c": 300, "matches.b~c": 90}
    assert measured(join, plan, [epoch({}, totals)]).keys == {0: pytest.approx(100 / 400)}


def test_under_a_key_of_two_classes_each_gets_an_equal_part():
    join = query("a.x = b.x", "a.y = b.y", "b.x = c.x", "b.y = c.y")
    found = seen(join, "(a b c)", epoch({}, {"pairs.a~b": 1000, "matches.a~b": 10}))
    assert found.keys == {0: pytest.approx(0.1), 1: pytest.approx(0.1)}


def test_a_predicate_that_nothing_passed_still_lets_something_pass():
    found = seen(query("a.x = b.x", "b.x = c.x", "a.v < b.v"), "(a b c)", epoch({}, {"tested.residual 0": 50}))
    assert found.residuals == {0: pytest.approx(0.01)}


def test_costs_are_seconds_a_row_and_wait_for_some_rows():
    join = query("a.x = b.x", "b.x = c.x")
    totals = {"insert_ns": 3_000_000, "inserted": 2000, "probe_ns": 500_000, "matched": 1000}
    assert seen(join, "(a b c)", epoch({}, totals)).costs == {
        "insert": pytest.approx(1.5e-6),
        "join": pytest.approx(0.5e-6),
    }
    assert seen(join, "(a b c)", epoch({}, totals | {"inserted": 999})).costs == {}
