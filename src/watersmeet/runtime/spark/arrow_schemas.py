"""The columns of streams as Arrow types."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructType, VariantType

from watersmeet.errors import QueryError
from watersmeet.query.types import COLLATION, nullable_inside
from watersmeet.runtime.spark.storable import parts_of


def arrow_schema(name: str, schema: StructType) -> pa.Schema:
    """The columns of a stream as Arrow types."""
    fields = []
    for field in schema.fields:
        try:
            if _has_variant(field.dataType):  # Arrow has it as a struct whose fields are never NULL, even if it is
                raise TypeError
            converted = to_arrow_schema(StructType([field]), timezone="UTC")
        except Exception as error:  # PySpark raises one of several classes here
            raise QueryError(
                f"column '{field.name}' of stream '{name}' is {field.dataType.simpleString()}: Arrow cannot carry that",
                hint="drop or cast the column before the join",
                error_class="UNSUPPORTED_TYPE",
            ) from error
        kept = converted.field(0)
        fields.append(_with_collation(kept.with_type(nullable_inside(kept.type)), field.dataType))
    return pa.schema(fields)


def _has_variant(kind: DataType) -> bool:
    return "variant" in kind.simpleString() and any(isinstance(part, VariantType) for part in parts_of(kind))


def _with_collation(field: pa.Field, kind: DataType) -> pa.Field:
    """Arrow has no collations: note any collation that does not compare bytes, so that joining on it can be refused."""
    if isinstance(kind, StringType) and kind != StringType():
        return field.with_metadata({COLLATION: kind.collation.encode()})
    return field
