"""Our side of `benchmarks/chain_of_keys.py`: five streams over three keys, three stages, ten micro-batches."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks.workloads.on_spark import run_join, write_streams

COLUMNS = {"a": "x", "b": "x", "c": "xy", "d": "yz", "e": "z"}
WHERE = "a.x = b.x AND b.x = c.x AND c.y = d.y AND d.z = e.z"
PLAN = "(((a b c) d) e)"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=60_000, help="rows per stream")
    parser.add_argument("--keys", type=int, nargs=3, default=[6_000, 12_000, 12_000], help="values of x, y and z")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=600, help="event time covered")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)


def prepare(data: Path, args: Namespace) -> None:
    write_streams(data, keys_of(args), args)


def run(data: Path, work: Path, args: Namespace) -> dict[str, int]:
    return run_join(data, work, keys_of(args), WHERE, PLAN, args.cores)


def keys_of(args: Namespace) -> dict[str, dict[str, int]]:
    values = dict(zip("xyz", args.keys, strict=True))
    return {name: {column: values[column] for column in columns} for name, columns in COLUMNS.items()}
