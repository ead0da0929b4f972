"""The rows that stores of another plan would hold are predicted from what the running query stores and has counted."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.scenarios import UTC
from watersmeet.adaptation.migration_cost import ROWS_MIN, price_factor
from watersmeet.adaptation.stored_rows import rows_of_stores
from watersmeet.optimizer.cost import DEFAULT_PRICES, Prices
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree, streams_of
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import INSERT_NS, INSERTED, PROBE_NS, Counts

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", UTC)])
ROWS, KEYS = 2_000, 1_000


def engine_over(folder, where: str, tree: str, batches: int = 2) -> InProcessQuery:
    rng = np.random.default_rng(0)
    streams = [Stream(name, SCHEMA, "ts") for name in "abcd"]
    query = build_query(streams, where=[where], within="1 hour", windows={}, select=["a.k"])
    engine = InProcessQuery(query, folder, partitions=8, trees=[parse_tree(tree, "abcd")])
    for second in range(batches):
        times = pa.array([second * 1_000_000] * ROWS).cast(UTC)
        engine.run(
            {name: pa.table([*rng.integers(0, KEYS, (2, ROWS)), times], schema=SCHEMA) for name in "abcd"},
        )
    return engine


@pytest.mark.parametrize(
    ("where", "new"),
    [
        ("a.k = b.k AND b.k = c.k AND c.k = d.k", "((a b) (c d))"),
        ("a.k = b.k AND b.k = c.k AND c.k = d.k", "(a (b c d))"),
        ("a.k = b.k AND b.j = c.j AND c.j = d.j", "(a (b (c d)))"),
        ("a.k = b.k AND b.j = c.j AND c.j = d.j", "((a b c) d)"),
    ],
)
def test_rows_of_another_plan_are_predicted(tmp_path, where, new):
    engine = engine_over(tmp_path, where, "(((a b) c) d)")
    before, plan = engine.manifest, plan_join(engine.query, (parse_tree(new, "abcd"),), 8)
    predicted = rows_of_stores(engine.plan, before, plan)
    for _ in engine.migrating(plan, "moving-state"):
        pass
    for stage in range(len(plan.stages)):
        for layout in plan.layouts(stage, 0):
            stored = sum(extent.rows for extent in engine.manifest.extents[0][layout.name])
            assert predicted(frozenset(streams_of(layout.tree))) == pytest.approx(stored, rel=0.1)


def test_where_a_key_was_never_compared_results_are_as_many_as_the_largest_input(tmp_path):
    engine = engine_over(tmp_path, "a.k = b.k AND b.k = c.k AND c.k = d.k", "(((a b) c) d)")
    plan = plan_join(engine.query, (parse_tree("(a (b (c d)))", "abcd"),), 8)
    uncounted = replace(engine.manifest, counters=Counts())
    assert rows_of_stores(engine.plan, uncounted, plan)(frozenset({2, 3})) == 2 * ROWS


def test_prices_follow_the_times_of_the_running_query(tmp_path):
    where = "a.k = b.k AND b.k = c.k AND c.k = d.k"
    few, many = (engine_over(tmp_path / str(n), where, "(((a b) c) d)", batches=n) for n in (0, 2))
    assert price_factor(few.plan, few.manifest, DEFAULT_PRICES) == 1
    assert 2 * 4 * ROWS >= ROWS_MIN
    counted = many.manifest.counters
    spent_s = (counted.of(INSERT_NS) + counted.of(PROBE_NS)) / 1e9
    by_row = Prices(insert_s=spent_s / counted.of(INSERTED), delete_s=0.0, join_s=0.0)
    halved = Prices(insert_s=by_row.insert_s / 2, delete_s=0.0, join_s=0.0)
    assert price_factor(many.plan, many.manifest, by_row) == pytest.approx(1)
    assert price_factor(many.plan, many.manifest, halved) == pytest.approx(2)
