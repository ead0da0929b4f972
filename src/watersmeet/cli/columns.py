"""The columns of a stream from a text such as `k bigint, ts timestamp`, without Spark."""

from __future__ import annotations

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from watersmeet.cli.specs import StreamSpec
from watersmeet.errors import OptionError
from watersmeet.query.relations import Stream
from watersmeet.units import parse_duration_us

TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}


def stream_of(spec: StreamSpec) -> Stream:
    """The stream of a spec that says its columns; OptionError if it does not."""
    text = spec.location if spec.format == "schema" else spec.schema
    if text is None:
        raise OptionError(
            f"stream {spec.name} does not say its columns, and simulate reads no files",
            hint=f"write --stream '{spec.name}=schema:k bigint, ts timestamp'",
            error_class="MISSING_SCHEMA",
        )
    delay_us = 0 if spec.delay is None else parse_duration_us(spec.delay, allow_zero=True)
    return Stream(spec.name, _schema_of(spec.name, text), spec.event_time, delay_us)


def _schema_of(name: str, text: str) -> pa.Schema:
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect="spark")
    except SqlglotError:
        table = None
    columns = [] if table is None else list(table.find_all(exp.ColumnDef))
    if table is None or not columns or any(column.kind is None for column in columns):
        raise OptionError(
            f"stream {name}: '{text}' is no schema",
            hint="write columns and types, like 'k bigint, ts timestamp, v double'",
            error_class="INVALID_SCHEMA",
        )
    return pa.schema([(column.name, _type_of(name, column)) for column in columns])


def _type_of(name: str, column: exp.ColumnDef) -> pa.DataType:
    kind = column.kind
    assert isinstance(kind, exp.DataType)
    if kind.this == exp.DataType.Type.DECIMAL:
        sizes = [int(size.name) for size in kind.expressions]
        precision, scale = [*sizes, 10, 0][:2] if len(sizes) != 1 else (sizes[0], 0)
        return pa.decimal128(precision, scale)
    found = TYPES.get(str(getattr(kind.this, "value", kind.this)))
    if found is None:
        raise OptionError(
            f"stream {name}: column {column.name} has type {kind.sql('spark')}, which simulate does not know",
            hint="leave the column out if the query does not read it; atomic types are known",
            error_class="UNSUPPORTED_TYPE",
        )
    return found
