"""The fields that a store keeps, and the source of each value.

A store holds the rows of one input of a join node: of a stream, or the results of another node. It keeps only fields
that are read above the node, and none twice:

| field                                           | source    | why                                            |
|-------------------------------------------------|-----------|------------------------------------------------|
| the value of a key class of the stage           | `key`     | runs hold each distinct key once               |
| a column that can be cast back from such a key  | `key`     |                                                |
| the event time of a stream in a windowed query  | `time`    | the run's codes hold it                        |
| anything else that is read                      | `payload` | one Arrow column of the run, in row order      |

Key values are cast to the type of their class and normalised (-0.0 to 0.0, one NaN), so a floating-point column that is
read is payload. In a windowed query the results of a node have *intervals* [latest, limit): `latest` is their greatest
event time, which the codes hold, and `limit` the least t_i + W_i, which is a payload column (the least 64-bit integer
if that is later than any time, see `state/moments.py`). Rows that were joined under other keys before also carry their
partition groups under those keys, two bytes each. So results can be traced to the groups that contributed to them.

While two plans run side by side (`plan/transition.py`), rows of the old one have a *mark*, the last payload column: 1
if all parts of the row have arrived since, otherwise 0. It is not part of a store's name. Rows stored before lack it,
or have the mark of an earlier migration, which has another number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa

from watersmeet.plan.keys import Key, key_name, key_text, trail
from watersmeet.plan.tree import Join, Leaf, Tree, streams_of
from watersmeet.plan.weights import Part, parts_of, summed_columns, weighted_streams
from watersmeet.query.expressions import Column, columns_of
from watersmeet.query.logical import JoinQuery
from watersmeet.query.types import recoverable

BUILD = "build"
"""The track of stores that are built beside those of the running plan."""
PINNED = "pinned"
"""The track of stores of the running plan as they were when a migration began."""
LIMIT = "_limit"
GROUP = "_group"
MARK = "#new"


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The value that all columns of a key class have in a row."""

    key_class: int


Field: TypeAlias = Column | KeyValue | Part


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where the values of one field are: a key component, the event time, or a payload column."""

    kind: Literal["key", "time", "payload", "null"]
    """`null`: a field that was not kept, and is NULL in every row (`plan/carrying.py`)."""
    index: int
    type: pa.DataType


class StoreName(NamedTuple):
    """The name of a store by its contents, not by its place in a plan: a checkpoint outlives its plan.

    No two stores of a plan have the same streams and key. Every tree is an input of one node, and hop stages keep one
    index of an input per key.
    """

    streams: str
    key: str
    layout: str
    track: str = ""
    """Empty in the running plan; `BUILD` or `PINNED` for stores of the current migration."""


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """One input of a join node: its tree, how long its rows live, and its fields."""

    tree: Tree
    label: str
    key: str
    """The key it is indexed under, as text."""
    span_us: int | None
    sources: tuple[tuple[Field, ColumnSource], ...]
    payload: pa.Schema
    limit: int | None
    """The payload column that holds `limit`, in stores of results of a windowed query."""
    trail: tuple[Key, ...] = ()
    """Earlier keys of the rows; the last payload columns hold their groups under these."""
    track: str = ""
    """The track of its plan: empty, or `BUILD`."""
    name: StoreName = dataclasses.field(init=False, repr=False, compare=False)
    """The name of the store in a checkpoint."""

    def __post_init__(self) -> None:
        streams = self.label.replace("(", "").replace(")", "").split()
        fields = ", ".join(f"{column.name} {column.type}" for column in self.payload if not is_mark(column.name))
        object.__setattr__(self, "name", StoreName(" ".join(sorted(streams)), self.key, fields, self.track))

    def group_column(self, key: Key) -> int:
        """The payload column that holds the groups under an earlier key."""
        return len(self.payload) - self.is_marked - len(self.trail) + self.trail.index(key)

    @property
    def is_marked(self) -> bool:
        return len(self.payload) > 0 and is_mark(self.payload[-1].name)

    @property
    def sent(self) -> list[pa.DataType]:
        """The types of the payload columns that travel in frames. The rows of streams get their mark on arrival."""
        columns = list(self.payload.types)
        return columns[:-1] if self.is_marked and isinstance(self.tree, Leaf) else columns

    def source(self, field: Field) -> ColumnSource:
        return dict(self.sources)[field]

    def pinned(self) -> StoreLayout:
        """The same store on the track of stores that are only read."""
        return dataclasses.replace(self, track=PINNED)


def is_mark(column: str) -> bool:
    """Whether a payload column holds marks. The names of all other columns have no such number."""
    return column.startswith(MARK) and column.removeprefix(MARK).isdecimal()


def with_mark(layout: StoreLayout, number: int) -> StoreLayout:
    return dataclasses.replace(layout, payload=layout.payload.append(pa.field(f"{MARK}{number}", pa.int8())))


def without_mark(layout: StoreLayout) -> StoreLayout:
    return dataclasses.replace(layout, payload=layout.payload.remove(len(layout.payload) - 1))


def fields_above(query: JoinQuery, tree: Tree) -> list[Field]:
    """The fields of a tree's rows that are read outside of it: selected columns, columns of residual predicates that
    the tree does not bind (a stream binds none), and values of key classes that other streams share. For the whole
    join: the selected columns. In the place of columns that are only summed: the parts, if rows have weights."""
    inside = streams_of(tree)
    ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
    columns = list(query.read_columns)
    for residual in query.residuals:
        if isinstance(tree, Leaf) or not {ordinal[column.stream] for column in columns_of(residual)} <= inside:
            columns += columns_of(residual)
    fields: list[Field] = [column for column in columns if ordinal[column.stream] in inside]
    for stream in weighted_streams(tree):
        summed = summed_columns(query, stream)
        fields = [field for field in fields if field not in summed] + [*parts_of(query, stream)]
    for i, key_class in enumerate(query.classes):
        if key_class.streams & inside and key_class.streams - inside:
            fields.append(KeyValue(i))
    return list(dict.fromkeys(fields))


def field_type(query: JoinQuery, field: Field) -> pa.DataType:
    match field:
        case KeyValue(key_class):
            return query.classes[key_class].type
        case Part():
            return field.type
        case Column(stream, name):
            return next(s for s in query.streams if s.name == stream).schema.field(name).type


def field_name(field: Field) -> str:
    match field:
        case KeyValue(key_class):
            return f"#{key_class}"
        case Part():
            return field.name
        case Column(stream, name):
            return f"{stream}.{name}"


def lay_out(query: JoinQuery, tree: Tree, key: Key, label: str) -> StoreLayout:
    """The store of an input of a node whose stage is keyed by the classes `key`."""
    sources: list[tuple[Field, ColumnSource]] = []
    payload: list[pa.Field] = []
    for read in fields_above(query, tree):
        kind = field_type(query, read)
        component = _component(query, read, key)
        if component is not None:
            source = ColumnSource("key", component, kind)
        elif is_event_time(query, tree, read):
            source = ColumnSource("time", 0, kind)
        else:
            source = ColumnSource("payload", len(payload), kind)
            payload.append(pa.field(field_name(read), kind))
        sources.append((read, source))
    limit = None
    if query.windowed and isinstance(tree, Join):
        limit = len(payload)
        payload.append(pa.field(LIMIT, pa.int64()))
    earlier = tuple(k for k in trail(query, tree) if k != key)
    payload += [pa.field(f"{GROUP}{key_name(k)}", pa.int16()) for k in earlier]
    span = _span(query, streams_of(tree))
    return StoreLayout(tree, label, key_text(query, key), span, tuple(sources), pa.schema(payload), limit, earlier)


def _component(query: JoinQuery, field: Field, key: Key) -> int | None:
    """The component of the stage's key that has the value of the field, or None."""
    if isinstance(field, KeyValue):
        return key.index(field.key_class) if field.key_class in key else None
    if isinstance(field, Part):
        return None
    ordinal = [stream.name for stream in query.streams].index(field.stream)
    for component, number in enumerate(key):
        key_class = query.classes[number]
        if key_class.columns[ordinal] == field.name and recoverable(field_type(query, field), key_class.type):
            return component
    return None


def is_event_time(query: JoinQuery, tree: Tree, field: Field) -> bool:
    if not query.windowed or not isinstance(tree, Leaf) or not isinstance(field, Column):
        return False
    return query.streams[tree.stream].event_time == field.name


def _span(query: JoinQuery, streams: Iterable[int]) -> int | None:
    """The longest window among the streams; None if one is unbounded."""
    windows = [query.windows_us[stream] for stream in streams]
    bounded = [window for window in windows if window is not None]
    return max(bounded) if len(bounded) == len(windows) else None
