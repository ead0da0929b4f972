"""Frontiers (DESIGN 3.6): no row of a stream or node that is yet to come is earlier than its frontier.

Rows of a store expire when the frontiers of all its siblings have passed them. The frontier of a stream is the
watermark. Owed results of a node, and of all nodes below it, hold back the frontier of its output: a closed extent has
their earliest time (`ExtentRef.since_us`). Groups of one generation owe nothing; a row that arrives for them is not
late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from watersmeet.epoch.owing import extents_of_stage, owing_groups
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import streams_of
from watersmeet.state.manifest import Manifest

Streams = frozenset[int]


@dataclass(frozen=True, slots=True)
class Debt:
    """A node, named by its streams, may owe results of time `since_us` and later, on one slot in one stage."""

    stage: int
    slot: int
    streams: Streams
    since_us: int


def debts(plan: JoinPlan, manifest: Manifest) -> list[Debt]:
    """All nodes that may owe results, with the earliest time of these."""
    found: dict[tuple[int, int, Streams], int] = {}
    if all(extent.is_active for extent in manifest.all_extents()):
        return []
    for number in range(len(plan.stages)):
        for slot in range(manifest.slots):
            extents = extents_of_stage(plan, manifest, number, slot)
            owing = owing_groups(extents)
            closed = [e for e in extents if e.since_us is not None and e.groups & owing]
            if closed:
                above = [node for _, node in stores_and_nodes(plan, number, slot)]
                for extent in closed:
                    place = number, slot, above[extent.store]
                    assert extent.since_us is not None
                    found[place] = min(extent.since_us, found.get(place, extent.since_us))
    return [Debt(*place, since) for place, since in found.items()]


def stores_and_nodes(plan: JoinPlan, stage: int, slot: int) -> Iterator[tuple[Streams, Streams]]:
    """For every store of a stage: its streams, and the streams of its node."""
    found = plan.stages[stage]
    if found.hops:
        for layout in found.stores(stage, slot):
            yield frozenset(streams_of(layout.tree)), frozenset(streams_of(found.node))
        return
    for node in found.shape(slot):
        joined = frozenset(stream for layout in node.inputs for stream in streams_of(layout.tree))
        for layout in node.inputs:
            yield frozenset(streams_of(layout.tree)), joined


def holds(plan: JoinPlan, stage: int, slot: int, owed: Iterable[Debt]) -> tuple[int | None, ...]:
    """Per store of a stage: the earliest time of results that nodes below its siblings owe."""
    relevant = [debt for debt in owed if debt.stage != stage or debt.slot == slot]
    if not relevant:
        return ()
    return tuple(
        min((debt.since_us for debt in relevant if debt.streams <= node - store), default=None)
        for store, node in stores_and_nodes(plan, stage, slot)
    )


def frontier_of_stage(
    plan: JoinPlan, stage: int, slot: int, watermark_us: int | None, owed: Iterable[Debt]
) -> int | None:
    """No row that comes to a node of the stage is earlier: late rows are dropped, owed results are not."""
    inside = frozenset(streams_of(plan.stages[stage].node))
    below = [d.since_us for d in owed if d.streams < inside and (d.stage != stage or d.slot == slot)]
    return None if watermark_us is None else min([watermark_us, *below])


def frontier(manifest: Manifest, owed: Iterable[Debt]) -> int | None:
    """No future result of the join is earlier."""
    if manifest.watermark_us is None:
        return None
    return min([manifest.watermark_us, *(debt.since_us for debt in owed)])
