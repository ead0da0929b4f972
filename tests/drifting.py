"""Small streams whose selectivities change, and queries over them that the optimiser adapts, in process.

A chain a.x = b.x AND b.y = c.y; a phase says how many values x and y have. Prices have no constants per micro-batch, so
that few rows are enough to make one plan better than another by much.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.cost import Prices
from watersmeet.optimizer.dominating import Budget
from watersmeet.plan.tree import parse_tree
from watersmeet.planning.planner import Planner
from watersmeet.planning.reoptimizing import Reoptimizer
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
NAMES = ["a", "b", "c"]
WINDOW = 10
"""Seconds, and micro-batches."""
PRICES = Prices(insert_s=1.2e-7, delete_s=0.0, join_s=1.5e-7, exchange_s=3.4e-7, lookup_s=4.2e-7)
FEW, MANY = 10, 4000
X_OFTEN, Y_OFTEN = (FEW, MANY), (MANY, FEW)
"""Phases: a and b match often, or b and c do."""
RIGHT = {X_OFTEN: "(a (b c))", Y_OFTEN: "((a b) c)"}


def drifting_query() -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in NAMES],
        where=["a.x = b.x", "b.y = c.y"],
        within=f"{WINDOW} seconds",
        windows={},
        select=[f"{name}.n AS {name}n" for name in NAMES],
    )


def batches(phases: Iterable[tuple[tuple[int, int], int]], rows: int = 60, seed: int = 0) -> Iterator[dict]:
    """Micro-batches of a second: phases, and how many of each."""
    rng, second = np.random.default_rng(seed), 0
    for (x, y), count in phases:
        for _ in range(count):
            yield {name: _rows(rng, second, x, y, int(rng.poisson(rows))) for name in NAMES}
            second += 1


def _rows(rng: np.random.Generator, second: int, x: int, y: int, rows: int) -> pa.Table:
    times = np.sort(rng.integers(0, 1_000_000, rows)) + second * 1_000_000
    columns = [rng.integers(0, x, rows), rng.integers(0, y, rows), rng.integers(0, 1 << 40, rows), times]
    return pa.table([pa.array(c).cast(field.type) for c, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def reoptimizer(query: JoinQuery | None = None, *, slots: int = 1, plan: str = "auto", **how) -> Reoptimizer:
    """By default its looks take no time: epochs of tests are so short that the quota of planning would be a matter of
    chance."""
    planner = Planner(query or drifting_query(), plan, Assumptions({}), slots, 16, Budget(), prices=PRICES)
    return Reoptimizer(planner, **{"sketching_share": 1.0, "clock": lambda: 0.0, **how})


def started(folder: Path, tree: str, adapts: Reoptimizer | None, **setup) -> InProcessQuery:
    trees = [parse_tree(tree, NAMES)]
    return InProcessQuery(drifting_query(), folder, partitions=16, trees=trees, reoptimizer=adapts, **setup)
