"""Which types of results the outbox can hold: what Parquet carries and Spark reads back as it was."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from watersmeet.errors import SinkError


def require_storable(schema: StructType) -> None:
    """Refuse a result column of a type that a file of results cannot hold, by its name."""
    for field in schema.fields:
        if (kind := _not_storable(field.dataType)) is not None:
            raise SinkError(
                f"result column '{field.name}' is {field.dataType.simpleString()}, and {kind} cannot be written",
                hint=f"select it in another form, such as CAST(... AS STRING) AS {field.name}",
                error_class="UNSUPPORTED_RESULT_TYPE",
            )


def _not_storable(kind: DataType) -> str | None:
    match kind:
        case CalendarIntervalType() | YearMonthIntervalType() | NullType() | VariantType():
            return kind.simpleString()
        case StructType(fields=fields):
            if not fields:
                return "a struct without fields"
            return next((found for field in fields if (found := _not_storable(field.dataType)) is not None), None)
        case ArrayType(elementType=element):
            return _not_storable(element)
        case MapType(keyType=key, valueType=value):
            return _not_storable(key) or _not_storable(value)
        case _:
            return None
