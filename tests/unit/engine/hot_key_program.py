"""Joins three streams of which one key holds a share of the rows, consumes the results, and prints what it took.

A program of its own, because the most memory a process ever had can only be asked of the process.
"""

import argparse
import json
import resource
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.engine.inbox import chunks
from watersmeet.engine.step import step
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.epoch import named, slot_tasks
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.tiers import Tiers

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
HOT = 7


def table_of(ordinal: int, rows: int, hot_rows: int, rng: np.random.Generator) -> pa.Table:
    keys = np.where(np.arange(rows) < hot_rows, HOT, 10 + 3 * np.arange(rows) + ordinal)
    rng.shuffle(keys)
    return pa.table({"k": keys, "v": np.arange(rows), "s": ["x" * 60] * rows}, schema=SCHEMA)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=int)
    parser.add_argument("hot_rows", type=int)
    parser.add_argument("budget", type=int)
    args = parser.parse_args()
    query = build_query(
        [Stream(name, SCHEMA) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k"],
        within=None,
        windows={},
        select=[f"{name}.{column}" for name in "abc" for column in "vs"],
    )
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = InProcessQuery(query, folder)
        frames = [engine.frame(i, table_of(i, args.rows, args.hot_rows, rng)) for i in range(3)]
        (task,) = slot_tasks(engine.manifest, 0)
        tiers = Tiers(folder / "segments", folder / "memory", args.budget)
        before, results, result_bytes = peak_bytes(), 0, 0
        for batch in step(engine.plan, named(task, "x"), frames, tiers, lambda f: chunks(f, rows_max=args.rows)):
            results += batch.num_rows
            result_bytes += batch.nbytes
    print(json.dumps({"results": results, "result_bytes": result_bytes, "grown_bytes": peak_bytes() - before}))


if __name__ == "__main__":
    main()
