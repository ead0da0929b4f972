"""Layouts keep what is read above, once, where it can be found again with its own value."""

import pyarrow as pa
import pytest

from watersmeet.plan.layout import LIMIT, ColumnSource, KeyValue, StoreLayout, fields_above, lay_out
from watersmeet.plan.tree import Join, Leaf
from watersmeet.query.expressions import Column
from watersmeet.query.logical import JoinQuery, Stream, build_query

UTC = pa.timestamp("us", tz="UTC")
INTEGERS = (pa.int32(), pa.int64())


def query(key_types=INTEGERS, *, select, where=(), within="1 minute", windows=None):
    """a and b on k; c, if there is a third type, on k too unless `where` says more."""
    names = "abc"[: len(key_types)]
    streams = [
        Stream(name, pa.schema([("k", type_), ("ts", UTC), ("x", pa.string()), ("y", pa.int64())]), "ts")
        for name, type_ in zip(names, key_types, strict=True)
    ]
    where = ["a.k = b.k", *where]
    return build_query(streams, where=where, within=within, windows=windows or {}, select=select)


def leaves(asked: JoinQuery, key: tuple[int, ...] = (0,)) -> list[StoreLayout]:
    return [lay_out(asked, Leaf(i), key, stream.name) for i, stream in enumerate(asked.streams)]


def test_only_columns_that_are_read_are_kept():
    a, b = leaves(query(select=["b.x"], where=["a.y < b.y"]))
    assert a.payload.names == ["a.y"]
    assert b.payload.names == ["b.x", "b.y"]


def test_keys_and_event_times_are_not_kept_twice():
    a, b = leaves(query(select=["a.k", "a.ts", "b.k", "b.y"]))
    assert a.source(Column("a", "k")) == ColumnSource("key", 0, pa.int32())
    assert a.source(Column("a", "ts")) == ColumnSource("time", 0, UTC)
    assert b.source(Column("b", "k")) == ColumnSource("key", 0, pa.int64())
    assert a.payload.names == []
    assert b.payload.names == ["b.y"]


def test_the_event_time_of_a_query_without_windows_is_payload():
    a, _ = leaves(query(select=["a.ts"], within=None))
    assert a.source(Column("a", "ts")) == ColumnSource("payload", 0, UTC)


@pytest.mark.parametrize(
    "types", [(pa.float64(), pa.float64()), (pa.int64(), pa.float64()), (pa.float32(), pa.int32())]
)
def test_a_key_that_becomes_a_float_is_payload_when_it_is_read(types):
    a, b = (layout.source(Column(layout.label, "k")) for layout in leaves(query(types, select=["a.k", "b.k"])))
    assert [a.kind, b.kind] == ["payload", "payload"]
    assert [a.type, b.type] == list(types)


def test_a_decimal_key_is_recovered_from_the_common_type():
    layouts = leaves(query((pa.decimal128(6, 2), pa.int32()), select=["a.k", "b.k"]))
    assert [layout.source(Column(layout.label, "k")).kind for layout in layouts] == ["key", "key"]


def test_stores_of_streams_know_their_windows():
    asked = query(select=["a.k"], within=None, windows={"b": "5 seconds"})
    assert [layout.span_us for layout in leaves(asked)] == [None, 5_000_000]
    assert [layout.limit for layout in leaves(asked)] == [None, None]


# --- results of nodes, and several keys ------------------------------------------------------------------------------

AB = Join((Leaf(0), Leaf(1)))
BOTH = ["b.y = c.y"]
ON_Y, ON_K = 0, 1
"""The classes of `chain`, in their order."""


def chain(**options):
    """a and b on k, b and c on y."""
    return query((pa.int32(),) * 3, where=BOTH, **options)


def test_the_value_of_a_class_that_reaches_out_is_kept_once_whoever_has_it():
    asked = query((pa.int32(),) * 3, where=["b.k = c.k"], select=["c.x"])
    assert fields_above(asked, AB) == [KeyValue(0)]
    assert lay_out(asked, AB, (0,), "(a b)").source(KeyValue(0)) == ColumnSource("key", 0, pa.int32())


def test_a_class_bound_inside_is_not_kept():
    asked = chain(select=["c.x"])
    assert fields_above(asked, AB) == [KeyValue(ON_Y)]
    assert fields_above(asked, Leaf(1)) == [KeyValue(ON_Y), KeyValue(ON_K)]


def test_a_class_that_is_not_the_key_is_payload():
    asked = chain(select=["c.x"])
    b = lay_out(asked, Leaf(1), (ON_K,), "b")
    assert (b.source(KeyValue(ON_K)).kind, b.source(KeyValue(ON_Y)).kind) == ("key", "payload")
    assert b.payload.names == ["#0"]


def test_predicates_are_read_no_higher_than_where_they_are_bound():
    asked = query((pa.int32(),) * 3, where=[*BOTH, "a.x < b.x"], select=["c.x"])
    assert fields_above(asked, Leaf(0)) == [Column("a", "x"), KeyValue(ON_K)]
    assert fields_above(asked, AB) == [KeyValue(ON_Y)]


def test_the_whole_join_keeps_the_selected_columns():
    asked = query((pa.int32(),) * 3, where=[*BOTH, "a.x < c.x"], select=["c.x", "a.k"])
    assert fields_above(asked, Join((AB, Leaf(2)))) == [Column("c", "x"), Column("a", "k")]


def test_results_end_by_a_column_of_their_own_and_span_their_longest_window():
    asked = chain(select=["a.ts"], within=None, windows={"a": "5 seconds", "b": "9 seconds", "c": "1 second"})
    store = lay_out(asked, AB, (ON_Y,), "(a b)")
    assert store.payload.names == ["a.ts", LIMIT, "_group1"]
    assert (store.limit, store.span_us) == (1, 9_000_000)
    assert store.source(Column("a", "ts")).kind == "payload"


def test_results_with_an_unbounded_stream_span_everything():
    assert lay_out(chain(select=["a.x"], within=None, windows={"a": "5 seconds"}), AB, (ON_Y,), "(a b)").span_us is None


def test_results_of_a_query_without_windows_have_no_end():
    store = lay_out(chain(select=["a.x"], within=None), AB, (ON_Y,), "(a b)")
    assert (store.limit, store.payload.names) == (None, ["a.x", "_group1"])
