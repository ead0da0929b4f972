"""The frame is as wide as the widest need per type, and no two columns of a stream share a place."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.plan.frame import HASH, STREAM, TIME, frame_of, key_name, pool_name
from watersmeet.plan.layout import StoreLayout

TYPES = (pa.int64(), pa.string(), pa.float64(), pa.decimal128(6, 2), pa.decimal128(9, 3))


def store(*types: pa.DataType) -> StoreLayout:
    return StoreLayout("s", None, (), pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)]))


@given(st.lists(st.lists(st.sampled_from(TYPES), max_size=5), min_size=2, max_size=4))
def test_every_payload_column_has_a_place_of_its_type(payloads):
    frame = frame_of(tuple(store(*types) for types in payloads), (pa.int64(),), None)
    for types, places in zip(payloads, frame.columns, strict=True):
        assert [frame.pool[place] for place in places] == types
        assert len(set(places)) == len(places)
    for type_ in TYPES:
        assert frame.pool.count(type_) == max(types.count(type_) for types in payloads)


def test_the_schema_names_stream_hash_time_keys_and_pool_in_this_order():
    time = pa.timestamp("us", tz="UTC")
    frame = frame_of((store(pa.int64()), store(pa.string())), (pa.int32(), pa.date32()), time)
    assert frame.schema.names == [STREAM, HASH, TIME, key_name(0), key_name(1), pool_name(0), pool_name(1)]
    assert frame.schema.types == [pa.int8(), pa.int64(), time, pa.int32(), pa.date32(), pa.int64(), pa.string()]


def test_a_query_without_windows_carries_no_time():
    assert TIME not in frame_of((store(), store()), (pa.int32(),), None).schema.names
