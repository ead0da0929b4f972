"""Our side of `benchmarks/native_spark.py`: three streams, one key, a window of 60 s, ten micro-batches."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks.workloads.on_spark import run_join, write_streams

STREAMS = ("a", "b", "c")
ROWS = 400_000


def add_arguments(parser: ArgumentParser, rows: int = ROWS, batches: int = 10) -> None:
    parser.add_argument("--rows", type=int, default=rows, help="rows per stream")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=batches)
    parser.add_argument("--seconds", type=int, default=3600, help="event time covered")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)


def prepare(data: Path, args: Namespace) -> None:
    write_streams(data, {name: {"k": args.keys} for name in STREAMS}, args)


def run(data: Path, work: Path, args: Namespace) -> dict[str, int]:
    keys = {name: {"k": args.keys} for name in STREAMS}
    return run_join(data, work, keys, "a.k = b.k AND b.k = c.k", "(a b c)", args.cores)
