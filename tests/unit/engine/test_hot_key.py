"""One key with 30 % of the rows of each of three streams: its results, far more than fit into the budget, are made
chunk by chunk. Memory is watched from outside: the peak of a process of its own, beyond what it needs for the same rows
spread evenly."""

import json
import subprocess
import sys

import pytest

BUDGET_BYTES = 64 << 20
PROGRAM = """
import json, resource, sys, tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.engine.step import step
from watersmeet.epoch.kinds import Batch
from watersmeet.epoch.tasks import named, tasks_of
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.tiers import Tiers

rows, hot_share, wide, tree, budget = json.loads(sys.argv[1])
schema = pa.schema([("k", pa.int64()), ("v", pa.string() if wide else pa.int64())])
query = build_query(
    [Stream(name, schema) for name in "abc"],
    where=["a.k = b.k", "b.k = c.k"],
    within=None,
    windows={},
    select=["a.v", "b.v", "c.v"],
)


def table(number, count, share):
    hot = int(count * share)
    keys = np.concatenate([np.zeros(hot, dtype=np.int64), 1 + np.arange(count - hot)])
    values = [f"{i:0{wide}d}" for i in range(count)] if wide else np.arange(count)
    return pa.table({"k": keys, "v": values}, schema=schema)


def consumed(count, share):
    with tempfile.TemporaryDirectory() as folder:
        engine = InProcessQuery(query, Path(folder), trees=[parse_tree(tree, "abc")])
        frames = [engine.slots.frames.frame(i, engine.plan.places(i)[0], table(i, count, share)) for i in range(3)]
        ((task,),) = tasks_of(engine.plan, engine.manifest, Batch(0)).values()
        results = largest = 0
        for emitted in step(engine.plan, named(task, "a"), frames, Tiers(Path(folder) / "s", None, budget)):
            results += emitted.rows.num_rows
            largest = max(largest, emitted.rows.nbytes)
        return results, largest


consumed(rows, 0.0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
results, largest = consumed(rows, hot_share)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([results, largest, (after - before) * 1024]))
"""


def watched(rows: int, share: float, wide: int, tree: str) -> tuple[int, int, int]:
    arguments = json.dumps([rows, share, wide, tree, BUDGET_BYTES])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, arguments], capture_output=True, text=True, timeout=120, check=True
    )
    results, largest, growth = json.loads(done.stdout)
    return results, largest, growth


@pytest.mark.parametrize("tree", ["(a b c)", "((a b) c)"])
def test_a_hot_key_costs_time_and_not_memory(tree):
    rows = 1000
    results, largest, growth = watched(rows, 0.3, 0, tree)
    assert results == 300**3 + rows - 300
    assert results * 3 * 8 > 3 * BUDGET_BYTES
    assert largest < BUDGET_BYTES / 4
    assert growth < BUDGET_BYTES


def test_chunks_of_wide_rows_are_shorter():
    rows = 120
    results, largest, growth = watched(rows, 0.3, 20_000, "(a b c)")
    assert results == 36**3 + rows - 36
    assert results * 3 * 20_000 > 30 * BUDGET_BYTES
    assert largest < BUDGET_BYTES / 2
    assert growth < BUDGET_BYTES
