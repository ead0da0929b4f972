"""Queries whose plan changes while they run, by script, by hand and by option: results are those of any plan."""

import json

import pytest

from tests.spark.helpers import expected, join_of, output, random_batches, read_stream, run, start, until, write_batches
from watersmeet import StreamJoin, WatersmeetError
from watersmeet.state.checkpoint import Checkpoint

BATCHES = random_batches(seed=3, streams="abc", batches=5, rows=40, keys=5)


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


def migrations(checkpoint):
    lines = (checkpoint / "watersmeet" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == "migrate"]


def test_a_rehearsal_on_one_key(spark, feed, tmp_path):
    script = "0: migrate ((a b) c); 2: migrate (a (b c)) moving-state; 4: migrate (a b c)"
    join = join_of(spark, feed).option("plan", "(a b c)").option("rehearse", script)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    assert [event["plan"] for event in migrations(tmp_path / "ck")] == ["((a b) c)", "(a (b c))", "(a b c)"]
    assert query.migration["phase"] == "done"
