"""Where the fields of a changed query are in stores of the query before (M4; dissertation 13).

A store of a stream was laid out for one query. Another query may read other fields, under other keys:

| field of the new query                        | carried over from                                                |
|-----------------------------------------------|------------------------------------------------------------------|
| a column that was kept                        | that column (*project*: the others are left out)                 |
| the event time                                | the time in the codes                                            |
| a column that was a key                       | the value of the key, if it can be cast back                     |
| the value of a key class                      | the value of an old class, or the column, of the same type       |
| a selected column that was not kept           | nowhere: NULL, if the user allows it (*stuff*)                   |
| any other field                               | nowhere: the change is refused                                   |

Derived columns are compared by their expressions: their names are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from watersmeet.plan.layout import PINNED, ColumnSource, Field, KeyValue, StoreLayout, StoreName, field_type
from watersmeet.plan.tree import Leaf
from watersmeet.query.expressions import Column, Expression
from watersmeet.query.logical import JoinQuery
from watersmeet.query.types import is_floating, recoverable


@dataclass(frozen=True, slots=True)
class Carry:
    """How the state of one query becomes the state of another."""

    kept: frozenset[StoreName]
    """The stores of the old plan that the new one shares."""
    sources: Mapping[int, StoreLayout]
    """By stream of the new query: the old store of its rows, with the places of the new query's fields."""
    streams: tuple[int | None, ...]
    """For each stream of the new query, its number in the old one; None if it is new."""
    tests: Mapping[int, tuple[Expression, ...]] = field(default_factory=dict)
    """By stream of the new query: predicates that stored rows must satisfy to be carried over."""

    def renamed(self, name: StoreName) -> StoreName:
        """The name of an old store while the new ones are built: those that are not shared are only read."""
        return name if name in self.kept else name._replace(track=PINNED)


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A store of a stream that both queries have."""

    old: JoinQuery
    new: JoinQuery
    layout: StoreLayout
    name: str

    def source(self, wanted: Field) -> ColumnSource | None:
        """The place of a field of the new query in the store; None if it was not kept."""
        if isinstance(wanted, KeyValue):
            return self._key(wanted.key_class)
        return self._column(wanted) if isinstance(wanted, Column) else None

    def carried(self, fields: list[Field]) -> StoreLayout:
        """The store as a source of these fields. Those that it lacks are NULL."""
        found = []
        for wanted in fields:
            kind = field_type(self.new, wanted)
            found.append((wanted, self.source(wanted) or ColumnSource("null", 0, kind)))
        return replace(self.layout, tree=Leaf(_ordinal(self.new, self.name)), sources=tuple(found))

    def _column(self, wanted: Column) -> ColumnSource | None:
        kind = field_type(self.new, wanted)
        before = self._old_name(wanted)
        if before is None:
            return None
        known = dict(self.layout.sources)
        if (found := known.get(Column(self.name, before))) is not None:
            return found if found.type.equals(kind) else None
        stream = self.old.streams[_ordinal(self.old, self.name)]
        index = stream.schema.get_field_index(before)
        if index < 0 or not stream.schema.field(index).type.equals(kind):
            return None
        if self.old.windowed and stream.event_time == before:
            return ColumnSource("time", 0, kind)
        for of, source in known.items():
            if isinstance(of, KeyValue) and self._old_column(of) == before and recoverable(kind, source.type):
                return replace(source, type=kind)
        return None

    def _key(self, number: int) -> ColumnSource | None:
        key_class = self.new.classes[number]
        column = key_class.columns[_ordinal(self.new, self.name)]
        assert column is not None
        before = self._old_name(Column(self.name, column))
        for of, source in self.layout.sources:
            if isinstance(of, KeyValue) and self._old_column(of) == before and source.type.equals(key_class.type):
                return source
        found = self._column(Column(self.name, column))
        if found is None or is_floating(key_class.type) or not found.type.equals(key_class.type):
            return None
        return found

    def _old_column(self, of: KeyValue) -> str | None:
        return self.old.classes[of.key_class].columns[_ordinal(self.old, self.name)]

    def _old_name(self, wanted: Column) -> str | None:
        """The name in the old query of a column; None if it was not there."""
        old, new = (query.streams[_ordinal(query, self.name)] for query in (self.old, self.new))
        derived = {column.name: column.sql for column in new.derived}
        if wanted.name not in derived:
            return wanted.name
        return next((column.name for column in old.derived if column.sql == derived[wanted.name]), None)


def _ordinal(query: JoinQuery, name: str) -> int:
    return [stream.name for stream in query.streams].index(name)
