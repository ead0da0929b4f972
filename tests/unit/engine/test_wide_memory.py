"""Real sizes: merges and probes of more bytes than Arrow's offsets reach, in a process that may have few of them.

`RLIMIT_DATA` is the judge: it counts what a process has of its own, and not the files that it has mapped.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BEGIN = """
import resource, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
from watersmeet.engine.layers import Layer, merged
from watersmeet.engine.mjoin import probe
from watersmeet.plan.stages import plan_join
from watersmeet.plan.default_tree import default_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.state.run import build_runs
from watersmeet.state.segment import read_segment
from watersmeet.state.tiers import Tiers

def now_bytes():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))

def allow(extra):
    limit = now_bytes() + extra
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

def run_of(keys, kind, values):
    hashes = keys.astype(np.uint64) << np.uint64(40)
    return build_runs(hashes, pa.record_batch({"k": keys}), None, pa.record_batch({"v": pa.array(values, kind)}))[0]
"""
MERGE = """
tiers = Tiers(Path(sys.argv[1]), None)
ref = tiers.write("0-0-0-a-0.seg", [(0, run_of(np.arange(1024), pa.string(), ["x" * 65536] * 1024))])
runs = [read_segment(tiers.durable / ref.name)[0] for _ in range(36)]
allow(900 << 20)
layer = merged([Layer(0, (pair,)) for pair in runs])
written = tiers.write("1-0-0-a-0.seg", layer.made_runs())
found = [run for _, run in tiers.peek(written)]
assert written.bytes > 36 << 26
assert sum(run.rows for run in found) == 36 * 1024
assert max(run.payload_bytes() for run in found) <= 1 << 28
assert all(not set(a.hashes.tolist()) & set(b.hashes.tolist()) for a, b in zip(found, found[1:]))
"""
PROBE = """
schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
streams = [Stream(name, schema) for name in "ab"]
query = build_query(streams, where=["a.k = b.k"], within=None, windows={}, select=["a.v", "b.v"])
plan = plan_join(query, (default_tree(query),), 8, None, {})
node = plan.stages[0].shape(0)[0]
wide, many = "w" * 100_000, 22_000
stored = run_of(np.arange(20_000), pa.string(), [wide, *("n" for _ in range(19_999))])
delta = run_of(np.zeros(many, dtype=np.int64), pa.string(), ["n"] * many)
allow(600 << 20)
rows = size = 0
for origin, targets in ((1, [[stored], []]), (0, [[], [delta]])):
    for joined in probe(node, origin, (stored, delta)[origin], targets):
        columns = [joined.column(column.field) for column in plan.output]
        assert max(column.nbytes for column in columns) <= 20 << 20
        rows += joined.rows
        size += sum(column.nbytes for column in columns)
assert rows == 2 * many and size > 2 * many * len(wide)
"""


def succeeds(program: str, *arguments: str) -> None:
    text = BEGIN + program
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
def test_a_merge_of_more_than_two_gigabytes_takes_less_than_one(tmp_path):
    succeeds(MERGE, str(tmp_path))


@pytest.mark.slow
def test_one_wide_value_that_many_rows_meet_takes_little_memory():
    succeeds(PROBE)
