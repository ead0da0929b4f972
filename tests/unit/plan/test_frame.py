"""The frame is as wide as the widest need per type, and no two columns of a stream share a place."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.plan.frame import HASH, REPORT, RESULTS, STAGE, STREAM, TIME, frame_of, pool_name, source_frame
from watersmeet.plan.layout import KeyValue, StoreLayout, field_type
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import Leaf, parse_tree
from watersmeet.query.expressions import Column
from watersmeet.query.logical import Stream, build_query

READINGS = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])

TYPES = (pa.int64(), pa.string(), pa.float64(), pa.decimal128(6, 2), pa.decimal128(9, 3))


def store(*types: pa.DataType) -> StoreLayout:
    return StoreLayout(
        Leaf(0), "s", "s.k = t.k", None, (), pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)]), None
    )


@given(st.lists(st.lists(st.lists(st.sampled_from(TYPES), max_size=4), min_size=2, max_size=4), min_size=1, max_size=3))
def test_every_value_has_a_place_of_its_type_of_its_own(stages):
    """The first list of types of a stage is its key."""
    frame = frame_of([(tuple(key), [store(*types) for types in inputs]) for key, *inputs in stages], None)
    for (key, *inputs), places, payloads in zip(stages, frame.keys, frame.payloads, strict=True):
        assert [frame.pool[place] for place in places] == key
        for types, columns in zip(inputs, payloads, strict=True):
            assert [frame.pool[column] for column in columns] == types
            assert len({*places, *columns}) == len(key) + len(types)


@given(st.lists(st.lists(st.sampled_from(TYPES), max_size=5), min_size=2, max_size=4), st.sampled_from(TYPES))
def test_the_frame_is_as_wide_as_the_widest_need_per_type(payloads, key):
    frame = frame_of([((key,), [store(*types) for types in payloads])], None)
    for type_ in TYPES:
        assert frame.pool.count(type_) == max(types.count(type_) for types in payloads) + (type_ == key)


def test_stages_share_the_columns_of_the_pool():
    two = frame_of([((pa.int64(),), [store(pa.string())]), ((pa.string(),), [store(pa.int64())])], None)
    assert two.pool == (pa.int64(), pa.string())
    assert (two.keys, two.payloads) == (((0,), (1,)), (((1,),), ((0,),)))


def test_the_schema_names_input_hash_time_and_pool_in_this_order():
    time = pa.timestamp("us", tz="UTC")
    frame = frame_of([((pa.int32(), pa.date32()), [store(pa.int64()), store(pa.string())])], time)
    assert frame.schema.names == [STREAM, HASH, TIME, *map(pool_name, range(4))]
    assert frame.schema.types[1:] == [pa.int64(), time, pa.int32(), pa.date32(), pa.int64(), pa.string()]


def test_a_query_without_windows_carries_no_time():
    assert TIME not in frame_of([((pa.int32(),), [store(), store()])], None).schema.names


def test_only_where_rows_pass_several_stages_they_name_theirs_and_reports_travel_with_them():
    stage = ((pa.int32(),), [store(), store()])
    assert not {STAGE, REPORT, RESULTS} & set(frame_of([stage], None).schema.names)
    names = frame_of([stage, stage], None).schema.names
    assert (names[0], names[-2:]) == (STAGE, [REPORT, RESULTS])


def test_the_source_frame_has_all_that_any_plan_may_read():
    streams = [Stream(name, READINGS, "ts") for name in "abc"]
    query = build_query(
        streams, where=["a.k = b.k AND b.j = c.j", "a.v < c.v"], within="1 minute", windows={}, select=["a.ts", "c.k"]
    )
    source = source_frame(query)
    fields = [dict(columns).keys() for columns in source.columns]
    # event times travel as such; b.k and b.j are read as values of their classes only
    assert fields[0] == {Column("a", "v"), KeyValue(1)}
    assert fields[1] == {KeyValue(0), KeyValue(1)}
    assert fields[2] == {Column("c", "k"), Column("c", "v"), KeyValue(0)}
    for tree in ("(a b c)", "((a b) c)", "(a (b c))"):
        for stage in plan_join(query, (parse_tree(tree, "abc"),), 4).stages:
            for layout in stage.inputs:
                if isinstance(layout.tree, Leaf):
                    assert {f for f, where in layout.sources if where.kind == "payload"} <= fields[layout.tree.stream]
    for columns in source.columns:
        places = [place for _, place in columns]
        assert len(set(places)) == len(places)
        assert [source.pool[place] for place in places] == [field_type(query, field) for field, _ in columns]
