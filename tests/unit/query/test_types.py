"""Common key types follow Spark's casts and lose nothing they say they keep."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.query.types import collation_of, common_key_type, recoverable, spark_name

UTC = pa.timestamp("us", "UTC")
NUMERIC = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2)]
ATOMIC = [
    *NUMERIC,
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    UTC,
    pa.timestamp("us"),
    pa.duration("us"),
    pa.time64("us"),
]
COMPLEX = [
    pa.list_(pa.int32()),
    pa.struct([("a", pa.int32())]),
    pa.map_(pa.string(), pa.int32()),
    pa.null(),
    pa.timestamp("ns"),
    pa.month_day_nano_interval(),
]


@pytest.mark.parametrize("type_", ATOMIC, ids=str)
def test_a_type_equals_itself(type_):
    assert common_key_type(type_, type_) == type_


@pytest.mark.parametrize("type_", COMPLEX, ids=str)
def test_other_types_are_no_keys(type_):
    assert common_key_type(type_, type_) is None


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (pa.int8(), pa.int32(), pa.int32()),
        (pa.int64(), pa.int16(), pa.int64()),
        (pa.int32(), pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.int8(), pa.decimal128(10, 2), pa.decimal128(10, 2)),
        (pa.int64(), pa.decimal128(5, 5), pa.decimal128(25, 5)),
        (pa.int64(), pa.decimal128(38, 30), None),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 1), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int8(), pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.float32(), pa.float64()),
        (pa.string(), pa.large_string(), pa.string()),
        (pa.large_string(), pa.large_string(), pa.string()),
        (pa.binary(), pa.large_binary(), pa.binary()),
        (UTC, pa.timestamp("us", "Europe/Oslo"), UTC),
        (UTC, pa.timestamp("us"), None),
        (UTC, pa.date32(), None),
        (pa.string(), pa.int32(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.string(), pa.binary(), None),
    ],
    ids=str,
)
def test_mixed_types(left, right, common):
    assert common_key_type(left, right) == common
    assert common_key_type(right, left) == common


@pytest.mark.parametrize(
    ("original", "common", "expected"),
    [
        (pa.int32(), pa.int32(), True),
        (pa.string(), pa.string(), True),
        (pa.large_string(), pa.string(), True),
        (pa.int8(), pa.int64(), True),
        (pa.int32(), pa.decimal128(12, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(12, 4), True),
        (UTC, UTC, True),
        (pa.int64(), pa.int8(), False),
        (pa.decimal128(5, 2), pa.decimal128(5, 1), False),
        (pa.float64(), pa.float64(), False),
        (pa.float32(), pa.float64(), False),
        (pa.int32(), pa.float64(), False),
        (pa.list_(pa.int32()), pa.list_(pa.int32()), False),
    ],
    ids=str,
)
def test_recoverable(original, common, expected):
    assert recoverable(original, common) is expected


@given(st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64()]), st.data())
def test_recoverable_keys_give_the_value_back(original, data):
    precision = data.draw(st.integers(1, 18))
    common = common_key_type(original, pa.decimal128(precision, data.draw(st.integers(0, precision))))
    if common is None:
        return
    bits = original.bit_width - 1
    value = pa.scalar(data.draw(st.integers(-(2**bits), 2**bits - 1)), original)
    assert recoverable(original, common)
    assert value.cast(common).cast(original) == value


def test_spark_names():
    names = [spark_name(type_) for type_ in (*ATOMIC, *COMPLEX[:4])]
    assert names == [
        *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "BOOLEAN", "STRING", "BINARY"),
        *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL DAY TO SECOND", "TIME", "ARRAY", "STRUCT", "MAP", "VOID"),
    ]
    assert spark_name(pa.month_day_nano_interval()) == "INTERVAL YEAR TO MONTH"


def test_collation_is_read_from_the_metadata():
    assert collation_of(pa.field("x", pa.string())) is None
    assert collation_of(pa.field("x", pa.string(), metadata={"collation": "UTF8_BINARY"})) is None
    assert collation_of(pa.field("x", pa.string(), metadata={"collation": "UTF8_LCASE"})) == "UTF8_LCASE"
