"""`auto` takes the cheapest strategy whose wait is short beside a micro-batch."""

from itertools import pairwise

import pyarrow as pa
import pytest

from tests.scenarios import UTC
from watersmeet.adaptation.migration import AUTO, BACKFILL, JUST_IN_TIME, MOVING_STATE, PARALLEL_TRACK, chosen
from watersmeet.adaptation.migration_choice import predicted_s
from watersmeet.adaptation.pace import Pace
from watersmeet.epoch.goals import Migrate
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", UTC)])
PARTITIONS = 8


def query_of(where: str, within: str | None = "1 hour") -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts" if within else None) for name in "abc"]
    return build_query(streams, where=[where], within=within, windows={}, select=["a.k"])


def plan_of(query: JoinQuery, tree: str) -> JoinPlan:
    return plan_join(query, (parse_tree(tree, "abc"),), PARTITIONS)


def with_rows(query: JoinQuery, folder, tree: str, rows: int) -> InProcessQuery:
    """A query that has taken in so many rows of each stream, all with different keys."""
    keys = list(range(rows))
    table = pa.table([keys, keys, pa.array(keys).cast(UTC)], schema=SCHEMA)
    engine = InProcessQuery(query, folder, partitions=PARTITIONS, trees=[parse_tree(tree, "abc")])
    engine.run(dict.fromkeys("abc", table))
    return engine


ONE_KEY, TWO_KEYS = "a.k = b.k AND b.k = c.k", "a.k = b.k AND b.j = c.j"


@pytest.mark.parametrize(
    ("where", "batch_s", "strategy"),
    [
        (ONE_KEY, None, MOVING_STATE),
        (ONE_KEY, 1.0, MOVING_STATE),
        (ONE_KEY, 1e-6, JUST_IN_TIME),
        (TWO_KEYS, 1.0, MOVING_STATE),
        (TWO_KEYS, 1e-6, BACKFILL),
    ],
)
def test_auto_weighs_the_wait_against_a_micro_batch(tmp_path, where, batch_s, strategy):
    query = query_of(where)
    engine = with_rows(query, tmp_path, "((a b) c)", rows=500)
    goal = Migrate(plan_of(query, "(a (b c))"), AUTO, "asked for")
    assert chosen(engine.plan, engine.manifest, goal, batch_s) == (strategy, "asked for")


@pytest.mark.parametrize("strategy", [BACKFILL, JUST_IN_TIME])
def test_every_other_micro_batch_has_a_chunk_and_only_the_others_merge(tmp_path, strategy):
    query = query_of(ONE_KEY)
    engine = with_rows(query, tmp_path, "((a b) c)", rows=100)
    for command in engine.migrating(plan_of(query, "(a (b c))"), strategy):
        assert command is not None
    engine.coordinator.pace = Pace(1)
    fed, files = [], [len(engine.manifest.segments)]
    for second in range(100, 112):
        table = pa.table([[1], [1], pa.array([second]).cast(UTC)], schema=SCHEMA)
        engine.run(dict.fromkeys("abc", table))
        assert engine.manifest.migration is not None
        fed.append(engine.manifest.migration.fed)
        files.append(len(engine.manifest.segments))
    assert fed == [number // 2 + 1 for number in range(12)]
    grown = [after - before for before, after in pairwise(files)]
    assert all(more == 2 for more in grown[::2]), "a file of the batch, and one of the chunk"
    assert all(more <= 0 for more in grown[1::2])


@pytest.mark.parametrize("where", [ONE_KEY, TWO_KEYS])
def test_under_overload_auto_takes_the_cheapest(tmp_path, where):
    query = query_of(where)
    engine = with_rows(query, tmp_path, "((a b) c)", rows=500)
    goal = Migrate(plan_of(query, "(a (b c))"), AUTO, "asked for")
    assert chosen(engine.plan, engine.manifest, goal, 1e-6, is_overloaded=True) == (MOVING_STATE, "asked for")


def test_the_wait_grows_with_the_stored_rows_and_is_nothing_without_a_build(tmp_path):
    query = query_of(ONE_KEY)
    few, many = (with_rows(query, tmp_path / str(rows), "((a b) c)", rows) for rows in (100, 1000))
    new = plan_of(query, "(a (b c))")
    assert predicted_s(many.plan, many.manifest, new) == pytest.approx(10 * predicted_s(few.plan, few.manifest, new))
    assert predicted_s(many.plan, many.manifest, plan_of(query, "(a b c)")) == 0


@pytest.mark.parametrize(
    ("where", "within", "strategy", "reason"),
    [
        (ONE_KEY, None, PARALLEL_TRACK, "asked for; not parallel-track: a stream without a window keeps its rows"),
        (TWO_KEYS, "1 hour", JUST_IN_TIME, "asked for; not just-in-time: rows would have to be exchanged first"),
    ],
)
def test_a_strategy_that_does_not_fit_becomes_a_backfill(tmp_path, where, within, strategy, reason):
    query = query_of(where, within)
    engine = with_rows(query, tmp_path, "((a b) c)", rows=10)
    found, told = chosen(engine.plan, engine.manifest, Migrate(plan_of(query, "(a (b c))"), strategy, "asked for"), 1.0)
    assert found == BACKFILL
    assert told.startswith(reason)
