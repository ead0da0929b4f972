"""Which stores a new plan shares with the old one, and the source of rows for the others (M1; dissertation 12.1).

State is matched by its schema: streams, key and layout, which are the name of a store. The rows of a store follow from
its streams alone, whatever tree made them, as long as no results are owed.

| store of the new plan              | is made                                                                    |
|------------------------------------|----------------------------------------------------------------------------|
| the old plan has one of that name  | shared: its extents stay as they are                                       |
| of a stream, under another key     | fed: the stream's rows are read from any store of it, and exchanged        |
| of results                         | built: the node below joins the stored rows of its inputs, children first  |

A node joins only if a store above it must be built. The topmost node of the query never does: its results are emitted
already. A node over several keys that must join gets the rows of all its inputs again, as if they had just arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm
from typing import TypeAlias

from watersmeet.plan.carrying import Carry
from watersmeet.plan.completion import pinned
from watersmeet.plan.layout import PINNED, StoreLayout, StoreName
from watersmeet.plan.stages import JoinPlan, Place
from watersmeet.plan.tree import Leaf
from watersmeet.query.expressions import Expression


@dataclass(frozen=True, slots=True)
class Feed:
    """An input of a stage that gets the stored rows of a stream, from a store of the old plan."""

    place: Place
    source: StoreLayout
    tests: tuple[Expression, ...] = ()
    """Predicates of a changed query: rows that fail one are left out."""
    is_carried: bool = False
    """Whether the query changes: rows that have expired by the old one are left out, even if they are still there."""


Built: TypeAlias = tuple[tuple[tuple[int, ...], ...], ...]
"""By stage and slot: the stores that are not shared, by their number there."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """How the state of a new plan is made from the state of an old one."""

    feeds: tuple[Feed, ...]
    built: Built
    joins: tuple[bool, ...]
    """By stage: whether its topmost node joins; in a stage of hops, whether its hops do."""
    carry: Carry | None = None
    """How state of another query becomes that of the new plan; None if the query is the same."""

    @property
    def is_free(self) -> bool:
        """Whether no row is read: all stores are shared."""
        return not any(numbers for stage in self.built for numbers in stage)


def rebuild(old: JoinPlan, new: JoinPlan, slots: int, carry: Carry | None = None) -> Rebuild:
    """How the stores of the new plan are made on every slot, with as many shared stores as possible. `carry` is given
    if the plans are of different queries."""
    known = [_names(old, slot) for slot in range(slots)]
    if carry is not None:
        known = [names & carry.kept for names in known]
    stages = range(len(new.stages))
    built = tuple(
        tuple(
            tuple(i for i, layout in enumerate(new.layouts(stage, slot)) if layout.name not in known[slot])
            for slot in range(slots)
        )
        for stage in stages
    )
    wanted = {place for stage in stages for place in _places(new, stage) if _is_missing(new, place, known)}
    joins = _joins(new, wanted)
    sources, tests = (leaf_stores(old), {}) if carry is None else (carry.sources, carry.tests)
    feeds = tuple(
        Feed(place, sources[stream], tests.get(stream, ()), carry is not None)
        for stream in sorted(sources)
        for place in new.places(stream)
        if place in wanted or (new.stages[place.stage].hops and joins[place.stage])
    )
    return Rebuild(feeds, built, tuple(joins), carry)


def shape_count(plan: JoinPlan) -> int:
    """The number of slots after which the stores of slots repeat."""
    counts = [lcm(len(stage.shapes), len(stage.successors) or 1) for stage in plan.stages]
    return lcm(*counts, 1 if plan.since is None else shape_count(plan.since))


def differs_by_slot(plan: JoinPlan) -> bool:
    """Whether slots have stores of their own, now or in the plan that they change from or to."""
    return len({frozenset(store_names(plan, slot)) for slot in range(shape_count(plan))}) > 1


def stores_by_slot(plan: JoinPlan, key: str) -> list[frozenset[StoreName]]:
    """The stores under a key, by slot; they repeat from then on."""
    slots = range(shape_count(plan))
    return [frozenset(name for name in store_names(plan, slot) if name.key == key) for slot in slots]


def store_names(plan: JoinPlan, slot: int) -> set[StoreName]:
    """The stores that a slot keeps, including those of the aggregation and those that a migration has pinned."""
    found = {layout.name for stage in range(plan.stage_count) for layout in plan.layouts(stage, slot)}
    return found | {layout.name for layout in pins(plan, slot)}


def pins(plan: JoinPlan, slot: int) -> list[StoreLayout]:
    """The stores of a slot that a migration reads, as they were when it began."""
    if plan.since is not None:
        return [layout for stage in range(len(plan.stages)) for layout in pinned(plan, stage, slot).values()]
    is_fed = plan.build_count and not plan.stages[-1].is_marked
    return list(pinned_stores(plan).values()) if is_fed else []


def pinned_stores(plan: JoinPlan) -> dict[int, StoreLayout]:
    """By stream, the store whose rows a migration feeds, as it was when the migration began."""
    return {stream: replace(layout, track=PINNED) for stream, layout in leaf_stores(plan).items()}


def _names(plan: JoinPlan, slot: int) -> set[StoreName]:
    return {layout.name for stage in range(len(plan.stages)) for layout in plan.layouts(stage, slot)}


def _places(plan: JoinPlan, stage: int) -> Iterator[Place]:
    return (Place(stage, number) for number in range(len(plan.stages[stage].inputs)))


def _is_missing(plan: JoinPlan, place: Place, known: list[set[StoreName]]) -> bool:
    """Whether an input of a stage is stored there, and some slot does not have that store."""
    stage = plan.stages[place.stage]
    stored = [stage.inputs[place.input].name]
    if stage.hops:
        kept = (index for index in stage.indexes if index.kept_in[0] == place.stage)
        stored = [index.layout.name for index in kept if index.arrivals == place.input]
    return any(name not in names for name in stored for names in known)


def _joins(plan: JoinPlan, wanted: set[Place]) -> list[bool]:
    """By stage: whether a stage that takes its results needs them. Such stages come later in the plan."""
    joins = [False] * len(plan.stages)
    for number in reversed(range(len(plan.stages))):
        stage = plan.stages[number]
        feeds = [*stage.feeds, *(place for hop in stage.hops for place in hop.feeds)]
        outside = [place for place in feeds if plan.stages[place.stage].node != stage.node]
        if any(place in wanted or (plan.stages[place.stage].hops and joins[place.stage]) for place in outside):
            for other, same in enumerate(plan.stages):
                if other == number or (stage.hops and same.node == stage.node):
                    joins[other] = True
    return joins


def leaf_stores(plan: JoinPlan) -> dict[int, StoreLayout]:
    """For every stream, one of its stores in the running plan; all its stores keep the same fields."""
    found: dict[int, StoreLayout] = {}
    for stage in range(plan.build_count, len(plan.stages)):
        for layout in plan.layouts(stage, 0):
            if isinstance(layout.tree, Leaf):
                found.setdefault(layout.tree.stream, layout)
    return found
