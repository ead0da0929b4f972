"""Key classes, filters and residuals together mean what the equalities said."""

import pyarrow as pa
import pytest

from watersmeet.errors import QueryError
from watersmeet.query.expressions import Column, Compare
from watersmeet.query.joingraph import join_keys
from watersmeet.query.relations import Equality, Filter, KeyClass, Stream

SCHEMA = pa.schema(
    [
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("i", pa.int32()),
        ("r", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(10, 2)),
        ("big", pa.decimal128(38, 30)),
        ("s", pa.string()),
        ("xs", pa.list_(pa.int32())),
        pa.field("c", pa.string(), metadata={"collation": "UTF8_LCASE"}),
    ]
)
THREE = tuple(Stream(name, SCHEMA) for name in "abc")


def equalities(*texts):
    return [Equality(*(Column(*side.split(".")) for side in text.split(" = "))) for text in texts]


def key(*texts, streams=THREE):
    return join_keys(streams, equalities(*texts))


def error(*texts, streams=THREE):
    with pytest.raises(QueryError) as caught:
        join_keys(streams, equalities(*texts))
    return str(caught.value)


def test_chain_is_one_class():
    assert key("c.x = b.x", "b.x = a.y").classes == (KeyClass(("y", "x", "x"), pa.int64()),)


def test_two_classes_are_a_composite_key_in_a_fixed_order():
    texts = ["a.x = b.x", "b.x = c.x", "a.s = b.s", "a.s = c.s"]
    expected = (KeyClass(("s", "s", "s"), pa.string()), KeyClass(("x", "x", "x"), pa.int64()))
    assert key(*texts).classes == key(*reversed(texts)).classes == expected
    assert key(*texts).residuals == key(*texts).filters == ()


def test_types_are_widened_over_the_whole_class():
    assert key("a.i = b.x", "b.x = c.m").classes == (KeyClass(("i", "x", "m"), pa.decimal128(22, 2)),)
    assert key("a.f = b.f", "b.f = c.f").classes[0].type == pa.float32()


def test_class_may_cover_some_streams_only():
    result = key("a.x = b.x", "b.x = c.x", "a.s = c.s")
    assert result.classes == (KeyClass(("s", None, "s"), pa.string()), KeyClass(("x", "x", "x"), pa.int64()))
    assert [c.streams for c in result.classes] == [{0, 2}, {0, 1, 2}]
    assert result.residuals == result.filters == ()


def test_streams_need_no_common_class():
    result = key("b.y = c.x", "a.x = b.x")
    assert result.classes == (KeyClass((None, "y", "x"), pa.int64()), KeyClass(("x", "x", None), pa.int64()))


def test_a_cycle_on_other_columns_has_a_class_per_edge():
    texts = ["a.x = b.y", "b.x = c.y", "c.x = a.y"]
    assert [c.columns for c in key(*texts).classes] == [(None, "x", "y"), ("x", "y", None), ("y", None, "x")]
    assert key(*texts) == key(*reversed(texts))


def test_another_predicate_links_a_stream_too():
    less = Compare("<", Column("b", "s"), Column("c", "s"))
    result = join_keys(THREE, equalities("a.x = b.x"), [less])
    assert result.classes == (KeyClass(("x", "x", None), pa.int64()),)
    assert result.residuals == ()


def test_other_predicates_alone_make_a_join_without_a_key():
    links = [Compare("<", Column("a", "x"), Column("b", "x")), Compare("<", Column("a", "x"), Column("c", "x"))]
    assert join_keys(THREE, [], links).classes == ()


def test_second_column_of_a_stream_is_a_filter():
    result = key("a.x = b.x", "a.y = b.x", "b.x = c.x")
    assert result.classes == (KeyClass(("x", "x", "x"), pa.int64()),)
    assert result.filters == (Filter("a", "`x` = `y`"),)
    assert result.residuals == ()


def test_second_column_is_compared_as_the_key_is():
    # a.x and a.y may differ as integers and still both equal the double b.r.
    result = key("a.x = b.r", "a.y = b.r", "b.r = c.r")
    assert result.filters == (Filter("a", "CAST(`x` AS DOUBLE) = CAST(`y` AS DOUBLE)"),)
    assert result.residuals == ()


def test_exact_equality_in_a_class_of_doubles_stays_exact():
    result = key("a.x = b.x", "b.x = c.r")
    assert result.classes == (KeyClass(("x", "x", "r"), pa.float64()),)
    assert result.residuals == (Compare("=", Column("a", "x"), Column("b", "x")),)


def test_float_equality_needs_no_residual_in_a_class_of_doubles():
    assert key("a.f = b.f", "b.f = c.r").residuals == ()


def test_equality_within_a_stream_connects():
    assert key("a.x = b.x", "b.x = b.y", "b.y = c.x").classes == (KeyClass(("x", "x", "x"), pa.int64()),)


def test_equality_within_a_stream_that_spark_must_judge_is_left_alone():
    assert key("a.x = b.x", "b.x = c.x", "a.s = a.x").classes == key("a.x = b.x", "b.x = c.x").classes


def test_a_double_makes_incompatible_decimals_meet():
    streams = (*THREE, Stream("d", SCHEMA))
    assert key("a.big = b.r", "b.r = c.x", "c.x = d.x", streams=streams).classes[0].type == pa.float64()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            [],
            "[NO_EQUALITY] the join has no predicate between streams. add one with where, like 'a.id = b.id'",
        ),
        (
            ["a.x = a.y"],
            "[NO_EQUALITY] the join has no predicate between streams. add one with where, like 'a.id = b.id'",
        ),
        (
            ["a.x = c.x"],
            "[UNCONNECTED_STREAM] stream 'b' is not connected to the others: no predicate links them. "
            "add one with where, or take the stream out",
        ),
        (
            ["a.x = b.s"],
            "[TYPE_MISMATCH] cannot compare a.x (BIGINT) with b.s (STRING): they have no common type. "
            "CAST one of them in the DataFrame, with withColumn",
        ),
        (
            ["a.x = b.big"],
            "[TYPE_MISMATCH] cannot compare a.x (BIGINT) with b.big (DECIMAL(38,30)): they have no common type. "
            "CAST one of them in the DataFrame, with withColumn",
        ),
        (
            ["a.xs = b.xs"],
            "[UNSUPPORTED_KEY_TYPE] column a.xs is ARRAY, which cannot be a join key. "
            "join on its parts, or on a string made of it, with withColumn",
        ),
        (
            ["a.s = b.c"],
            "[UNSUPPORTED_KEY_TYPE] column b.c has collation UTF8_LCASE, which cannot be a join key. "
            "join on a column with COLLATE UTF8_BINARY, say of lower() of it",
        ),
    ],
)
def test_graphs_that_cannot_be_joined(texts, message):
    assert error(*texts) == message


def test_two_islands_are_named():
    four = (*THREE, Stream("d", SCHEMA))
    assert "streams 'a', 'b' are not connected" in error("a.x = b.x", "c.x = d.x", streams=four)
