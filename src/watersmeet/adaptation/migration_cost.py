"""The cost of a migration, in CPU seconds of a slot, before it begins: what is built, and from how many rows.

| store of the new plan, that the old one does not have | work                                                      |
|-------------------------------------------------------|-----------------------------------------------------------|
| of a stream, under another key                        | each row is exchanged and stored                          |
| of results                                            | rows of the smallest input are looked up in the others;   |
|                                                       | each result is joined and stored                          |

At the prices of `optimizer/cost.py` that is 0.42 us min(|L|, |R|) + 0.27 us |out|: hash matches, not |L| |R|.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from watersmeet.optimizer.cost import Prices
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import rebuild
from watersmeet.plan.tree import Leaf, Tree, streams_of

Stored: TypeAlias = Callable[[frozenset[int]], float]
"""The rows that a store of these streams holds, on all slots together."""


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


def _build_s(layout: StoreLayout, stored: Stored, prices: Prices) -> float:
    rows = stored(_streams(layout.tree))
    if isinstance(layout.tree, Leaf):
        return rows * (prices.exchange_s + prices.insert_s)
    inputs = [stored(_streams(each)) for each in layout.tree.inputs]
    looked_up = min(inputs) * (len(inputs) - 1)
    return looked_up * prices.lookup_s + rows * (prices.join_s + prices.insert_s)


def _streams(tree: Tree) -> frozenset[int]:
    return frozenset(streams_of(tree))
