"""Layouts keep what is read, once, where it can be found again with its own value."""

import pyarrow as pa
import pytest

from watersmeet.plan.layout import ColumnSource, lay_out, read_columns
from watersmeet.query.logical import Stream, build_query

UTC = pa.timestamp("us", tz="UTC")
INTEGERS = (pa.int32(), pa.int64())


def query(key_types=INTEGERS, *, select, where=(), within="1 minute"):
    streams = [
        Stream(name, pa.schema([("k", type_), ("ts", UTC), ("x", pa.string()), ("y", pa.int64())]), "ts")
        for name, type_ in zip("ab", key_types, strict=True)
    ]
    return build_query(streams, where=["a.k = b.k", *where], within=within, windows={}, select=select)


def test_only_columns_that_are_read_are_kept():
    asked = query(select=["b.x"], where=["a.y < b.y"])
    assert read_columns(asked) == {"a": ["y"], "b": ["x", "y"]}
    a, b = lay_out(asked)
    assert a.payload.names == ["y"]
    assert b.payload.names == ["x", "y"]


def test_keys_and_event_times_are_not_kept_twice():
    a, b = lay_out(query(select=["a.k", "a.ts", "b.k", "b.y"]))
    assert a.source("k") == ColumnSource("key", 0, pa.int32())
    assert a.source("ts") == ColumnSource("time", 0, UTC)
    assert b.source("k") == ColumnSource("key", 0, pa.int64())
    assert a.payload.names == []
    assert b.payload.names == ["y"]


def test_the_event_time_of_a_query_without_windows_is_payload():
    a, _ = lay_out(query(select=["a.ts"], within=None))
    assert a.source("ts") == ColumnSource("payload", 0, UTC)


@pytest.mark.parametrize(
    "types", [(pa.float64(), pa.float64()), (pa.int64(), pa.float64()), (pa.float32(), pa.int32())]
)
def test_a_key_that_becomes_a_float_is_payload_when_it_is_read(types):
    a, b = lay_out(query(types, select=["a.k", "b.k"]))
    assert [a.source("k").kind, b.source("k").kind] == ["payload", "payload"]
    assert [a.source("k").type, b.source("k").type] == list(types)


def test_a_decimal_key_is_recovered_from_the_common_type():
    a, b = lay_out(query((pa.decimal128(6, 2), pa.int32()), select=["a.k", "b.k"]))
    assert [a.source("k").kind, b.source("k").kind] == ["key", "key"]


def test_stores_know_their_windows():
    streams = [Stream(n, pa.schema([("k", pa.int32()), ("ts", UTC)]), "ts") for n in "ab"]
    asked = build_query(streams, where=["a.k = b.k"], within=None, windows={"b": "5 seconds"}, select=["a.k"])
    assert [store.window_us for store in lay_out(asked)] == [None, 5_000_000]
