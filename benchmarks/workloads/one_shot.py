"""Our side of `benchmarks/one_shot.py`: the query of `native_spark` over more rows in few, large micro-batches.

So the engine has a larger share of the time than in `native_spark`, and what a micro-batch costs anyway a smaller one.
"""

from __future__ import annotations

from argparse import ArgumentParser

from benchmarks.workloads import native_spark
from benchmarks.workloads.native_spark import prepare, run

__all__ = ["add_arguments", "prepare", "run"]

ROWS, BATCHES = 1_200_000, 3


def add_arguments(parser: ArgumentParser) -> None:
    native_spark.add_arguments(parser, ROWS, BATCHES)
