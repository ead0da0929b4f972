"""Which columns can be equal: Spark's implicit casts between key types, and which of them lose nothing.

Types are Arrow types, named as Spark names them in messages. A key is cast to the *common type* of its columns, then
hashed and compared there:

| columns                              | common type                                                      |
|--------------------------------------|------------------------------------------------------------------|
| the same atomic type                 | that type                                                        |
| integers                             | the wider                                                        |
| integer and decimal, two decimals    | a decimal that holds both exactly, none beyond 38 digits         |
| a float or double and another number | double (two floats: float)                                       |
| anything else                        | none: the user has to write CAST                                 |

Known limitation: Arrow has no collations. A field whose metadata has `collation` is a collated string.
"""

from __future__ import annotations

import pyarrow as pa

COLLATION = b"collation"
DECIMAL_DIGITS_MAX = 38

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_INTEGER_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 20), strict=True))
_SPARK_NAMES = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
}


def is_integer(type_: pa.DataType) -> bool:
    return type_ in _INTEGERS


def is_floating(type_: pa.DataType) -> bool:
    return type_ in (pa.float32(), pa.float64())


def is_decimal(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_))


def is_numeric(type_: pa.DataType) -> bool:
    return is_integer(type_) or is_floating(type_) or is_decimal(type_)


def is_timestamp(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "us")


def is_duration(type_: pa.DataType) -> bool:
    return bool(pa.types.is_duration(type_) and type_.unit == "us")


def is_atomic(type_: pa.DataType) -> bool:
    """Whether the engine compares values of this type as Spark does."""
    return (
        is_integer(type_)
        or is_floating(type_)
        or pa.types.is_decimal128(type_)
        or type_ in (pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32())
        or is_timestamp(type_)
        or is_duration(type_)
        or pa.types.is_time64(type_)
    )


def as_decimal(type_: pa.DataType) -> tuple[int, int]:
    """Precision and scale of the decimal that holds every value of an integer or decimal type."""
    return (_INTEGER_DIGITS[type_], 0) if is_integer(type_) else (type_.precision, type_.scale)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """Precision (possibly beyond 38) and scale that hold every value of two integer or decimal types."""
    (left_precision, left_scale), (right_precision, right_scale) = as_decimal(left), as_decimal(right)
    scale = max(left_scale, right_scale)
    return max(left_precision - left_scale, right_precision - right_scale) + scale, scale


def common_key_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that two columns are cast to before they are compared, or None if there is no such type."""
    left, right = _small_offsets(left), _small_offsets(right)
    if left == right:
        return left if is_atomic(left) else None
    if is_timestamp(left) and is_timestamp(right):
        # Instants are the same whatever zone they are shown in; a wall clock is not an instant.
        return pa.timestamp("us", "UTC") if left.tz is not None and right.tz is not None else None
    if not (is_numeric(left) and is_numeric(right)):
        return None
    if is_floating(left) or is_floating(right):
        return pa.float64()
    if is_integer(left) and is_integer(right):
        return max(left, right, key=_INTEGERS.index)
    precision, scale = wider_decimal(left, right)
    return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None


def recoverable(original: pa.DataType, common: pa.DataType) -> bool:
    """Whether casting a key back to its column's type always gives the column's own value.

    Never for floats: keys hold 0.0 for -0.0 and one NaN for all.
    """
    original, common = _small_offsets(original), _small_offsets(common)
    if is_floating(original) or is_floating(common):
        return False
    return bool(common_key_type(original, common) == common)


def spark_name(type_: pa.DataType) -> str:
    """The type as Spark SQL spells it."""
    if type_ in _SPARK_NAMES:
        return _SPARK_NAMES[type_]
    if is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP_NTZ" if type_.tz is None else "TIMESTAMP"
    for belongs, name in _FAMILIES:
        if belongs(type_):
            return name
    return str(type_).upper()


_FAMILIES = (
    (pa.types.is_duration, "INTERVAL DAY TO SECOND"),
    (pa.types.is_interval, "INTERVAL YEAR TO MONTH"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_list, "ARRAY"),
    (pa.types.is_large_list, "ARRAY"),
    (pa.types.is_map, "MAP"),
    (pa.types.is_struct, "STRUCT"),
)


def collation_of(field: pa.Field) -> str | None:
    """The collation of a string column, if it is not compared byte by byte."""
    name = (field.metadata or {}).get(COLLATION, b"UTF8_BINARY").decode()
    return None if name == "UTF8_BINARY" else name


def _small_offsets(type_: pa.DataType) -> pa.DataType:
    if type_ == pa.large_string():
        return pa.string()
    return pa.binary() if type_ == pa.large_binary() else type_


def nullable_inside(kind: pa.DataType) -> pa.DataType:
    """The same type with nullable nested fields: where a struct is NULL, so are its fields."""
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(nullable_inside(kind.key_type))
        return pa.map_(key, _nullable(kind.item_field), keys_sorted=kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    return kind


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(nullable_inside(field.type)).with_nullable(True)
