"""A plan that runs before its state is complete (just-in-time, ours; JISC, EDBT 2014, has the idea).

The new plan takes over at once. Its stores of streams are shared with the old plan, so they are complete. Other stores
may *lack* rows: the results of rows that were stored when the plan changed, and of no later one. Every result with a
later row is made by the running plan, when its last row arrives.

    new plan (((a b) c) d) after (((b c) a) d)

    (a b)      lacks results of a and b       made when a row of c asks: a and b are pinned
    (a b c)    is shared

*Pinned* stores are those that such results are made of, as they were when the plan changed. A store can lack rows only
if its rows are results of one stage: the rows of other stages are under another key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watersmeet.plan.layout import PINNED, StoreLayout
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.stages import JoinPlan


def to_complete(old: JoinPlan, new: JoinPlan) -> JoinPlan:
    """The new plan, as it runs after the old one until its stores are complete."""
    return replace(new, since=old)


def completed(plan: JoinPlan) -> JoinPlan:
    return replace(plan, since=None)


def lacking(plan: JoinPlan, stage: int, slot: int) -> tuple[int, ...]:
    """The stores of a stage that lack rows on a slot, by number."""
    old = plan.since
    if old is None or stage == len(plan.stages) or plan.stages[stage].hops:
        return ()
    known = {layout.name for number in range(len(old.stages)) for layout in old.layouts(number, slot)}
    return tuple(i for i, layout in enumerate(plan.layouts(stage, slot)) if layout.name not in known)


def pinned(plan: JoinPlan, stage: int, slot: int) -> dict[int, StoreLayout]:
    """The stores of a stage from which the missing rows are made, by number, as they were when the plan changed."""
    lacks = set(lacking(plan, stage, slot))
    found = {}
    for store in sorted(lacks):
        node = node_below(plan.stages[stage].shape(slot), store)
        for number, layout in enumerate(node.inputs, node.first_store):
            if number not in lacks:
                found[number] = replace(layout, track=PINNED)
    return found


def node_below(nodes: Sequence[NodePlan], store: int) -> NodePlan:
    """The node whose results a store keeps."""
    above = next(node for node in nodes if node.first_store <= store < node.first_store + len(node.inputs))
    child = above.children[store - above.first_store]
    assert child is not None
    return nodes[child]
