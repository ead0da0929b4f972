"""The clean-up of one group that is larger than the budget: what it owes is made chunk by chunk, from files that are
mapped. Memory is watched from outside, as the peak of a process of its own."""

import json
import subprocess
import sys

BUDGET_BYTES = 16 << 20
PROGRAM = """
import json, resource, sys, tempfile
from pathlib import Path

import pyarrow as pa

from watersmeet.adaptation.clean_up import cleaning_orders
from watersmeet.engine.step import step
from watersmeet.epoch.kinds import Cleaning, Spill
from watersmeet.epoch.tasks import named, tasks_of
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.tiers import Tiers

rows, width, budget = json.loads(sys.argv[1])
schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
query = build_query(
    [Stream(name, schema) for name in "ab"],
    where=["a.k = b.k"],
    within=None,
    windows={},
    select=["a.v", "b.v"],
)


def batch(number):
    values = [f"{number}-{i}".rjust(width) for i in range(rows)]
    return pa.table({"k": [1] * rows, "v": values}, schema=schema)


with tempfile.TemporaryDirectory() as folder:
    engine = InProcessQuery(query, Path(folder), memory=Path(folder) / "memory", memory_budget_bytes=budget)
    groups = tuple(range(engine.plan.partitions))
    for number in range(3):  # a and b never arrive together: all that is found is owed
        for name in "ab":
            engine.order((Spill(0, 0, groups),))
            assert engine.run({name: batch(number)}).num_rows == 0
    state = sum(ref.bytes for ref in engine.manifest.segments.values())
    cleaning = Cleaning(cleaning_orders(engine.plan, engine.manifest), "asked for")
    ((task,),) = tasks_of(engine.plan, engine.manifest, cleaning).values()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = size = 0
    tiers = Tiers(engine.checkpoint.segments, engine.setup.memory, budget)
    for emitted in step(engine.plan, named(task, "x"), [], tiers):
        results += emitted.rows.num_rows
        size += emitted.rows.nbytes
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([state, results, size, (after - before) * 1024]))
"""


def test_a_group_larger_than_the_budget_is_cleaned_up_in_chunks():
    rows, width = 60, 60_000
    arguments = json.dumps([rows, width, BUDGET_BYTES])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, arguments], capture_output=True, text=True, timeout=300, check=True
    )
    state, results, size, growth = json.loads(done.stdout)
    assert state > 1.2 * BUDGET_BYTES
    assert results == (3 * rows) ** 2
    assert size > 100 * BUDGET_BYTES
    assert growth < state + 4 * BUDGET_BYTES, "beside the mapped files, a few chunks"
