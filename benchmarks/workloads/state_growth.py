"""The workload of `benchmarks/state_growth.py`: the engine without Spark, while its state grows 100-fold."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
BATCH_US = 1_000_000


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000, help="rows per stream and micro-batch")
    parser.add_argument("--window", action="store_true", help="rows expire after a third of the run")
    parser.add_argument("--repetitions", type=int, default=8, help="each from an empty state")
    parser.add_argument("--seed", type=int, default=1)


def prepare(data: Path, args: Namespace) -> None:
    """Its rows are drawn while it runs, which takes little."""


def run(data: Path, work: Path, args: Namespace) -> dict[str, int]:
    query = build_query(
        [Stream(name, SCHEMA, "ts" if args.window else None) for name in "ab"],
        where=["a.k = b.k"],
        within=f"{args.batches // 3} seconds" if args.window else None,
        windows={},
        select=["a.v", "b.v"],
    )
    rng = np.random.default_rng(args.seed)
    results, checksum = 0, 0
    for number in range(args.repetitions):
        with TemporaryDirectory(prefix="watersmeet-bench-", dir="/dev/shm") as memory:
            engine = InProcessQuery(query, work / str(number), memory=Path(memory), hash_keys=mixed, **without_log())
            for batch in range(args.batches):
                found = engine.run(batch_of(batch, args.rows, args.rows * max(1, args.batches // 100), rng))
                results += found.num_rows
                checksum += sum(int(column.to_numpy().sum()) for column in found.columns)
    return {"results": results, "checksum": checksum}


def without_log() -> dict[str, bool]:
    """The engine without a log of Spark's, which runners write in its place: the first ones wrote none, and cannot be
    asked to."""
    try:
        from watersmeet.runtime.inprocess_slots import Setup
    except ImportError:
        return {}
    return {"keeps_log": False} if "keeps_log" in Setup.__dataclass_fields__ else {}


def mixed(keys: list[pa.Array]) -> Any:
    """A hash that costs nothing beside the join."""
    return keys[0].to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def batch_of(number: int, rows: int, old: int, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Every row matches one of its own batch, and one in ten one of the first hundredth of the run."""
    fresh = np.arange(number * rows, (number + 1) * rows)
    known = rng.integers(0, old, rows // 10)
    right = np.concatenate([fresh[: rows - len(known)], known])
    times = number * BATCH_US + rng.integers(0, BATCH_US, rows)
    return {name: pa.table([keys, keys, times], schema=SCHEMA) for name, keys in (("a", fresh), ("b", right))}
