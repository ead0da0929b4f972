"""Checks that results fit an existing table: names and types of all columns, their order where files have no names
(CSV), the partition columns, and the format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import SinkError
from watersmeet.runtime.spark.sink_places import differences, different_columns
from watersmeet.runtime.spark.unlogged import unlogged


@dataclass(frozen=True, slots=True)
class Table:
    """A table's entry in the catalog."""

    name: str
    provider: str
    location: str
    partition_by: tuple[str, ...]
    schema: StructType


def find_table(spark: SparkSession, name: str) -> Table | None:
    """A table of the catalog; None if the name is free. SinkError for an invalid name, and for a view."""
    with table_errors(name):
        if not spark.catalog.tableExists(name):
            return None
        rows = [(row[0], row[1]) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
        schema = spark.table(name).schema
        # The session caches the file list of a table, and would not see the files of the results.
        spark.catalog.refreshTable(name)
    details = dict(rows)
    if "VIEW" in details.get("Type", "VIEW"):
        raise SinkError(
            f"{name} is a view, and results can only be written to a table",
            hint="name a table, or a new one",
            error_class="NOT_A_TABLE",
        )
    columns = [column for column, _ in rows]
    by: tuple[str, ...] = ()
    if "# Partition Information" in columns:
        start = columns.index("# col_name") + 1
        by = tuple(columns[start : columns.index("", start)])
    return Table(name, details.get("Provider", "").lower(), details.get("Location", ""), by, schema)


def place_of_new(spark: SparkSession, name: str) -> str:
    """Where the catalog will keep the files of a table that does not exist yet."""
    with table_errors(name):
        state = spark._jsparkSession.sessionState()
        return str(state.catalog().defaultTablePath(state.sqlParser().parseTableIdentifier(name)).toString())


@contextmanager
def table_errors(name: str) -> Iterator[None]:
    """Turn Spark's error about a table into a short SinkError."""
    try:
        with unlogged():
            yield
    except ParseException:
        raise SinkError(
            f"'{name}' cannot be the name of a table",
            hint="write it like 'results' or 'database.results'; other characters go between backticks",
            error_class="INVALID_TABLE",
        ) from None
    except PySparkException as error:
        said = re.sub(r"^\[[\w.]+\] |\. .*", "", str(error).strip().splitlines()[0]).rstrip(".")
        raise SinkError(
            f"cannot write to table '{name}': Spark says: {said}",
            hint="look at the spelling of its database and catalog",
            error_class="INVALID_TABLE",
        ) from None


def require_same_table(table: Table, format: str | None, schema: StructType, by: Sequence[str]) -> None:
    """SinkError unless the results fit an existing table; `format` is the requested one, if any."""
    if format is not None and format != table.provider:
        raise SinkError(
            f"table {table.name} is kept as {table.provider}, and the format is {format}",
            hint=f"leave the format out, or write format('{table.provider}')",
            error_class="DIFFERENT_SCHEMA",
        )
    found = differences(table.schema, schema)
    there, ours = _in_files(table.schema, table.partition_by), _in_files(schema, by)
    if not found and table.provider == "csv" and there != ours:
        found = [f"their order is {', '.join(table.schema.names)} there, {', '.join(schema.names)} in the results"]
    if found:
        raise different_columns(f"table {table.name} has", found, "choose another table")
    if [name.lower() for name in by] != [name.lower() for name in table.partition_by]:
        is_by = f"by {', '.join(table.partition_by)}" if table.partition_by else "by no column"
        call = f"partitionBy({', '.join(map(repr, table.partition_by))})"
        raise SinkError(
            f"table {table.name} is partitioned {is_by}, the results by {', '.join(by) or 'no column'}",
            hint=f"write {call}" if table.partition_by else "leave partitionBy out",
            error_class="DIFFERENT_SCHEMA",
        )


def _in_files(schema: StructType, by: Sequence[str]) -> list[str]:
    """The columns in the files, in lower case, without partition columns."""
    folders = {name.lower() for name in by}
    return [name.lower() for name in schema.names if name.lower() not in folders]
