"""The cost of a migration, in CPU seconds of a slot, before it begins: what is built, and from how many rows.

| store of the new plan, that the old one does not have | work                                                      |
|-------------------------------------------------------|-----------------------------------------------------------|
| of a stream, under another key                        | each row is exchanged and stored                          |
| of results                                            | the runs of each input are merged; rows of the smallest   |
|                                                       | one are looked up in the others; each result is joined    |
|                                                       | and stored                                                |

At the prices of `optimizer/cost.py` that is 0.12 us (|L| + |R|) + 0.42 us min(|L|, |R|) + 0.27 us |out|: hash matches,
not |L| |R|.

The prices are of another machine. So they are scaled by what the running query has counted: the time that its epochs
took, by the time that the prices give for the same rows (`price_factor`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from watersmeet.optimizer.cost import Prices
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import rebuild
from watersmeet.plan.tree import Leaf, Tree, streams_of
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import INSERT_NS, INSERTED, MATCHED, PROBE_NS

Stored: TypeAlias = Callable[[frozenset[int]], float]
"""The rows that a store of these streams holds, on all slots together."""
ROWS_MIN = 10_000
"""Stored so far, on a slot: before, times are those of a process that starts."""
FACTOR_MAX = 5.0


def migration_cost(old: JoinPlan, new: JoinPlan, stored: Stored, prices: Prices, slots: int = 1) -> float:
    """CPU seconds of a slot to build what the new plan needs and the old one does not have. All state is active."""
    how = rebuild(old, new, slots)
    built = {
        layout.name: layout
        for stage, of_stage in enumerate(how.built)
        for slot, numbers in enumerate(of_stage)
        for layout in [new.layouts(stage, slot)[number] for number in numbers]
    }
    return sum(_build_s(layout, stored, prices) for layout in built.values()) / slots


def price_factor(plan: JoinPlan, last: Manifest, prices: Prices) -> float:
    """The measured time of the epochs so far, by that of the same rows at these prices; 1 if too few rows
    have been stored."""
    counted = last.counters
    inserted = counted.of(INSERTED)
    if inserted < ROWS_MIN * last.slots:
        return 1.0
    nodes = [node for stage in plan.stages for node in (*stage.shape(0), *(hop.node for hop in stage.hops))]
    inputs = sum(len(node.inputs) for node in nodes)
    others = sum(len(node.inputs) * (len(node.inputs) - 1) for node in nodes) / inputs
    by_row = prices.insert_s + others * prices.lookup_s
    modelled = inserted * by_row + counted.of(MATCHED) * prices.join_s
    measured = (counted.of(INSERT_NS) + counted.of(PROBE_NS)) / 1e9
    return min(FACTOR_MAX, max(1 / FACTOR_MAX, measured / modelled))


def _build_s(layout: StoreLayout, stored: Stored, prices: Prices) -> float:
    rows = stored(_streams(layout.tree))
    if isinstance(layout.tree, Leaf):
        return rows * (prices.exchange_s + prices.insert_s)
    inputs = [stored(_streams(each)) for each in layout.tree.inputs]
    looked_up = min(inputs) * (len(inputs) - 1)
    return sum(inputs) * prices.insert_s + looked_up * prices.lookup_s + rows * (prices.join_s + prices.insert_s)


def _streams(tree: Tree) -> frozenset[int]:
    return frozenset(streams_of(tree))
