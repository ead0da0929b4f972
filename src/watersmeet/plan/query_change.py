"""What changes between two queries on one checkpoint, and how the state follows (M4; dissertation 13).

*A result is judged by the query in force when its last row arrives, over the rows kept then.* So no result is emitted
because the query changes, and none is taken back. Owed results are emitted first, by the old query.

| change                     | state                                                                                   |
|----------------------------|-----------------------------------------------------------------------------------------|
| predicate added            | of one stream: its stored rows are filtered; between streams: stored results are built  |
|                            | again                                                                                   |
| predicate dropped          | stored results are built again; rows that were filtered away stay gone                  |
| columns                    | stores are projected, or stuffed with NULL                                              |
| window                     | rows are stored again with their new expiry; stored results are built again             |
| stream added, dropped      | an empty store; its stores are dropped                                                  |
| aggregates                 | the same accumulators go on: results that were added to them were judged then           |

Refused is what would never become right: a column that was not kept, in a predicate, key or aggregate; rows of a stream
without a window that have expired or were filtered away; other groups or accumulators; another event time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from watersmeet.errors import CheckpointError
from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.plan.carrying import Carry, StoredStream
from watersmeet.plan.frame import time_type_of
from watersmeet.plan.layout import Field, KeyValue, StoreLayout, StoreName, fields_above
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import leaf_stores
from watersmeet.plan.tree import Leaf
from watersmeet.plan.weights import weighted_streams
from watersmeet.query.expressions import Column, Expression, columns_of, to_text
from watersmeet.query.filter_expressions import filter_expression
from watersmeet.query.logical import JoinQuery

_HOW = (
    ("streams", "a stream that is added starts empty; the state of one that is dropped is dropped"),
    ("window of the result time", "refused"),
    ("window of ", "stored rows get the new window, and stored results are built again"),
    ("columns read of ", "stored rows are projected, or stuffed with NULL"),
    ("schema of ", "columns that are kept stay as they are"),
    ("join key", "stored rows are sent to the slots of their new keys"),
    ("filters", "stored rows are filtered; rows that were filtered away stay gone"),
    ("residual predicates", "stored results are built again"),
    ("predicate ", "stored results are built again"),
    ("derived columns", "those that were kept stay as they are"),
    ("predicates on the results", "later results are tested"),
    ("aggregates", "the same accumulators go on"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A mark of the query that changes, and what follows for the state."""

    what: str
    before: str
    after: str
    how: str

    def __str__(self) -> str:
        return f"{self.what}: '{self.before}' becomes '{self.after}' ({self.how})"


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query, and the plan that it runs by."""

    query: JoinQuery
    plan: JoinPlan

    def ordinal(self, name: str) -> int | None:
        return self.plan.names.index(name) if name in self.plan.names else None


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """The differences of two queries, by their marks (`plan/fingerprint.py`)."""
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return tuple(Change(n, before.get(n, "none"), after.get(n, "none"), _how(n)) for n in names)


def _how(what: str) -> str:
    return next((how for prefix, how in _HOW if what.startswith(prefix)), "later results have it")


def carry(old: PlannedQuery, new: PlannedQuery, *, stuffs: bool = False) -> Carry:
    """How the state of the old query becomes that of the new one; CheckpointError with all reasons if it cannot.
    `stuffs`: selected columns that were not kept are NULL in stored rows."""
    if refused := list(_refused(old, new, stuffs=stuffs)):
        raise CheckpointError(
            f"the query cannot be changed: {'; '.join(refused)}",
            hint="use a new checkpointLocation, or leave this part of the query as it was",
            error_class="CANNOT_CHANGE_QUERY",
        )
    streams = tuple(old.ordinal(name) for name in new.plan.names)
    stored = _stored(old, new)
    tests = {stream: found for stream, store in stored.items() if (found := _tests(old, new, store.name))}
    kept = _kept(old, new, tests)
    sources = {}
    for stream, store in stored.items():
        columns: list[Field] = [column for test in tests.get(stream, ()) for column in columns_of(test)]
        layout = store.carried(list(dict.fromkeys([*fields_above(new.query, Leaf(stream)), *columns])))
        sources[stream] = layout if layout.name in kept else layout.pinned()
    return Carry(kept, sources, streams, tests)


def _stored(old: PlannedQuery, new: PlannedQuery) -> dict[int, StoredStream]:
    """By stream of the new query, a store of its rows; none for a new stream."""
    layouts = {old.plan.names[stream]: layout for stream, layout in leaf_stores(old.plan).items()}
    return {
        stream: StoredStream(old.query, new.query, layouts[name], name)
        for stream, name in enumerate(new.plan.names)
        if name in layouts
    }


def _kept(old: PlannedQuery, new: PlannedQuery, tests: Mapping[int, tuple[Expression, ...]]) -> frozenset[StoreName]:
    """The stores that both plans have, with the same rows and fields."""
    mine, others = _layouts(old.plan), _layouts(new.plan)
    tested = {new.plan.names[stream] for stream in tests}
    found = set()
    for name in mine.keys() & others.keys():
        before, after, streams = mine[name], others[name], frozenset(name.streams.split())
        is_leaf = isinstance(after.tree, Leaf)
        if name in _groups(new.plan):
            found.add(name)
        elif before.sources == after.sources and before.limit == after.limit and before.trail == after.trail:
            same = [_dependencies(posed.query, streams, is_leaf=is_leaf) for posed in (old, new)]
            if same[0] == same[1] and not tested & streams:
                found.add(name)
    return frozenset(found)


def _layouts(plan: JoinPlan) -> dict[StoreName, StoreLayout]:
    slots, stages = range(len(plan.trees)), range(plan.stage_count)
    return {layout.name: layout for slot in slots for stage in stages for layout in plan.layouts(stage, slot)}


def _groups(plan: JoinPlan) -> set[StoreName]:
    return set() if plan.aggregate is None else {plan.aggregate.layout.name}


def _dependencies(query: JoinQuery, streams: frozenset[str], *, is_leaf: bool) -> object:
    """What the rows of a store depend on besides its name: windows, key classes and predicates below it. (A filter that
    is dropped changes nothing about stored rows, nor about their results; one that is added is among the tests.)"""
    inside = [(i, stream) for i, stream in enumerate(query.streams) if stream.name in streams]
    residuals = sorted(to_text(e) for e in query.residuals if {c.stream for c in columns_of(e)} <= streams)
    return (
        [(s.name, query.windows_us[i], s.event_time, s.derived) for i, s in inside],
        [[(c.columns[i], str(c.type)) for i, _ in inside] for c in query.classes],
        [] if is_leaf else residuals,
    )


def _tests(old: PlannedQuery, new: PlannedQuery, name: str) -> tuple[Expression, ...]:
    """The predicates of a stream that its stored rows have not passed yet."""
    passed = {f for f in old.query.filters if f.stream == name}
    added = (f for f in new.query.filters if f.stream == name and f not in passed)
    found = (filter_expression(new.query, wanted) for wanted in added)
    return tuple(test for test in found if test is not None)


def _refused(old: PlannedQuery, new: PlannedQuery, *, stuffs: bool) -> Iterator[str]:
    """The reasons why the state cannot follow."""
    if old.plan.partitions != new.plan.partitions:
        yield f"option partitions was {old.plan.partitions}"
    if weighted := weighted_streams(old.plan.trees[0]):
        yield f"rows of {' and '.join(old.plan.names[i] for i in weighted)} have weights, made for the query before"
    if old.query.windowed != new.query.windowed:
        then = "has" if old.query.windowed else "has no"
        yield f"the query before {then} windows, and what is stored and dropped depends on that"
    elif time_type_of(old.query) != time_type_of(new.query):
        yield "event times have another type"
    yield from _refused_groups(old, new)
    for store in _stored(old, new).values():
        yield from _refused_rows(old, new, store.name)
        yield from _refused_fields(new, store, old, stuffs=stuffs)


def _refused_rows(old: PlannedQuery, new: PlannedQuery, name: str) -> Iterator[str]:
    """Rows that the old query has dropped, and the new one would need for ever."""
    i, j = old.plan.names.index(name), new.plan.names.index(name)
    before, after = old.query.windows_us[i], new.query.windows_us[j]
    if old.query.windowed and old.query.streams[i].event_time != new.query.streams[j].event_time:
        yield f"the event time of {name} was {old.query.streams[i].event_time}"
    if after is None and before is not None:
        yield f"rows of {name} have expired, and without a window they would be needed"
    wanted = set(new.query.filters)
    dropped = [f.sql for f in old.query.filters if f.stream == name and f not in wanted]
    if after is None and dropped:
        yield f"rows of {name} were filtered away ({'; '.join(dropped)}), and without a window they would be needed"


def _refused_fields(new: PlannedQuery, store: StoredStream, old: PlannedQuery, *, stuffs: bool) -> Iterator[str]:
    """Columns that were not kept."""
    ordinal = new.plan.names.index(store.name)
    for wanted in fields_above(new.query, Leaf(ordinal)):
        if store.source(wanted) is None and not (stuffs and _is_only_selected(new.query, wanted)):
            yield f"{_words(new.query, ordinal, wanted)} was not kept"
    passed = set(old.query.filters)
    for added in (f for f in new.query.filters if f.stream == store.name and f not in passed):
        test = filter_expression(new.query, added)
        if test is None:
            yield f"only Spark can evaluate {added.sql}, and stored rows of {store.name} must be tested by it"
            continue
        for column in columns_of(test):
            if store.source(column) is None:
                yield f"column {column.stream}.{column.name} was not kept, and {added.sql} needs it"


def _is_only_selected(query: JoinQuery, wanted: Field) -> bool:
    """Whether a field is a column that only the select list reads."""
    if isinstance(wanted, KeyValue) or query.aggregation is not None:
        return False
    tested = [column for residual in query.residuals for column in columns_of(residual)]
    tested += [column for predicate in query.spark_residuals for column in predicate.refs]
    return wanted not in tested


def _words(query: JoinQuery, ordinal: int, wanted: Field) -> str:
    stream = query.streams[ordinal]
    what, name = ("column", wanted.name) if isinstance(wanted, Column) else ("key column", None)
    if isinstance(wanted, KeyValue):
        name = query.classes[wanted.key_class].columns[ordinal]
    derived = next((column.sql for column in stream.derived if column.name == name), None)
    return f"{what} {stream.name}.{name}" if derived is None else f"{what} {derived} of {stream.name}"


def _refused_groups(old: PlannedQuery, new: PlannedQuery) -> Iterator[str]:
    before, after = old.plan.aggregate, new.plan.aggregate
    if before is None and after is None:
        return
    if before is None or after is None:
        yield "results so far were not aggregated" if before is None else "results so far were aggregated"
        return
    if [key.sql for key in before.keys] != [key.sql for key in after.keys] or before.window != after.window:
        yield "groups so far have other keys or windows"
    if before.mode != after.mode or before.confidence != after.confidence:
        yield "the output mode and intervals of aggregates may not change"
    if lost := [text for text in _accumulated(after) if text not in _accumulated(before)]:
        yield f"groups so far have not accumulated {', '.join(lost)}"
    elif _accumulated(before) != _accumulated(after):
        yield "groups so far have accumulated more than these aggregates need: keep them, and leave them unselected"


def _accumulated(plan: AggregatePlan) -> list[str]:
    arguments = [value.sql for value in plan.arguments]
    return [
        f"{a.combine} of {a.made if a.argument is None else f'{a.made} {arguments[a.argument]}'}"
        for a in plan.accumulators
    ]
