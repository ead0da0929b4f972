"""Which types of results the outbox can hold: those that Parquet stores and Spark reads back unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from watersmeet.errors import SinkError
from watersmeet.query.logical import JoinQuery

NOT_AS_THEY_WERE = ("geometry", "geography", "time")
"""Names of types that not every Spark has, and that Arrow and Parquet do not return unchanged."""


def require_storable(schema: StructType) -> None:
    """Refuse, by name, a result column of a type that a result file cannot hold."""
    for field in schema.fields:
        if (kind := _not_storable(field.dataType)) is not None:
            raise unsupported_type(field, f"{kind} cannot be written")


def unsupported_type(field: StructField, why: str) -> SinkError:
    return SinkError(
        f"result column '{field.name}' is {field.dataType.simpleString()}, and {why}",
        hint=f"select it in another form, such as CAST(... AS STRING) AS {field.name}",
        error_class="UNSUPPORTED_RESULT_TYPE",
    )


def with_source_types(schema: StructType, query: JoinQuery, frames: Mapping[str, DataFrame]) -> StructType:
    """The schema of results, where plain columns have their types in the streams: Arrow does not know collations, nor
    the fields of an interval."""
    if query.aggregation is not None:
        return schema
    fields = []
    for field, item in zip(schema.fields, query.select, strict=True):
        kind = field.dataType
        if item.column is not None and item.column.name in frames[item.column.stream].columns:
            kind = frames[item.column.stream].schema[item.column.name].dataType
        fields.append(StructField(field.name, kind))
    return StructType(fields)


def parts_of(kind: DataType) -> Iterator[DataType]:
    """A type and all types nested in it."""
    yield kind
    match kind:
        case StructType(fields=fields):
            for field in fields:
                yield from parts_of(field.dataType)
        case ArrayType(elementType=element):
            yield from parts_of(element)
        case MapType(keyType=key, valueType=value):
            yield from parts_of(key)
            yield from parts_of(value)


def _not_storable(kind: DataType) -> str | None:
    if isinstance(kind, NullType):
        return None
    for part in parts_of(kind):
        match part:
            case StructType(fields=[]):
                return "a struct without fields"
            case StructType(names=names) if len({name.lower() for name in names}) < len(names):
                return "a struct with two fields of one name"
            case CalendarIntervalType() | YearMonthIntervalType() | NullType():
                return part.simpleString()
            case _ if part.typeName().partition("(")[0] in NOT_AS_THEY_WERE:
                return part.simpleString()
    return None
