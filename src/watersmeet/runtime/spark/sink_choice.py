"""The sink for the settings of the writer: format, options, partitions, function or table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import OptionError, SinkError
from watersmeet.runtime.spark.file_sink import FILE_FORMATS, FileSink
from watersmeet.runtime.spark.sink_formats import (
    missing_option,
    require_format,
    require_one_text,
    require_partitions,
)
from watersmeet.runtime.spark.sink_places import require_place, require_same_columns_in
from watersmeet.runtime.spark.sink_tables import find_table, place_of_new, require_same_table, table_errors
from watersmeet.runtime.spark.sinks import (
    Sink,
    absolute,
    batch_sink,
    console_sink,
    file_options,
    function_sink,
    memory_sink,
)


@dataclass(frozen=True, slots=True)
class AskedSink:
    """The writer's settings for the sink."""

    spark: SparkSession
    format: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...]
    function: Callable[[DataFrame, int], None] | None
    query_name: str | None
    is_complete: bool
    is_format_given: bool = True

    def get(self, option: str) -> str | None:
        """An option; names are compared without case."""
        return next((value for name, value in self.options.items() if name.lower() == option.lower()), None)


def sink_of(asked: AskedSink, schema: StructType) -> Sink:
    """The sink of a format; raises SinkError or OptionError if a setting is missing."""
    spark = asked.spark
    require_partitions(asked.format, asked.partition_by, schema)
    if asked.function is not None:
        return function_sink(asked.function)
    if asked.format == "console":
        rows = asked.get("numRows") or "20"
        if not rows.isdigit():
            raise OptionError(f"option numRows must be a whole number, not '{rows}'", hint="such as 20")
        return console_sink(int(rows), (asked.get("truncate") or "true").lower() == "true")
    if asked.format == "memory":
        if not asked.query_name:
            raise SinkError(
                "the memory sink needs a queryName, which becomes the name of the view",
                hint="write .queryName('results')",
                error_class="MISSING_QUERY_NAME",
            )
        return memory_sink(spark, asked.query_name, schema, is_complete=asked.is_complete)
    if asked.format in FILE_FORMATS:
        return _file_sink(asked, schema)
    require_format(spark, asked.format, asked.options)
    return batch_sink(asked.format, file_options(asked.options), asked.partition_by, is_complete=asked.is_complete)


def _file_sink(asked: AskedSink, schema: StructType) -> FileSink:
    if not (path := asked.get("path")):
        raise missing_option(asked.format, "path")
    path, options = absolute(path), file_options(asked.options)
    require_one_text(asked.format, asked.partition_by, schema)
    require_place(asked.spark, path)
    require_same_columns_in(asked.spark, path, asked.format, options, schema, asked.partition_by)
    return FileSink(path, asked.format, options, asked.partition_by)


def table_sink(asked: AskedSink, table: str, schema: StructType) -> Sink:
    """A table of a file format; if it does not exist, it is made when the sink is claimed, after all checks."""
    require_partitions(asked.format, asked.partition_by, schema)
    found = find_table(asked.spark, table)
    provider = asked.format if found is None else found.provider
    if provider not in FILE_FORMATS:
        raise SinkError(
            f"table {table} {'would be' if found is None else 'is'} kept as {provider}, which is no format of files",
            hint=f"choose one of {', '.join(FILE_FORMATS)}, or write to the table with foreachBatch",
            error_class="UNKNOWN_FORMAT",
        )
    require_one_text(provider, asked.partition_by, schema)
    options = file_options(asked.options)
    if found is None:
        place = absolute(path) if (path := asked.get("path")) else place_of_new(asked.spark, table)
        make = partial(_make_table, asked, table, schema, place)
        return FileSink(place, provider, options, asked.partition_by, make_table=make)
    given = asked.format if asked.is_format_given else None
    require_same_table(found, given, schema, asked.partition_by)
    return FileSink(found.location, provider, options, asked.partition_by)


def _make_table(asked: AskedSink, table: str, schema: StructType, place: str) -> None:
    """Make an empty table, whose files must be in the expected place."""
    empty = asked.spark.createDataFrame([], schema).write.format(asked.format)
    if asked.partition_by:
        empty = empty.partitionBy(*asked.partition_by)
    if path := asked.get("path"):
        empty = empty.option("path", path)
    with table_errors(table):
        empty.saveAsTable(table)
    made = find_table(asked.spark, table)
    if made is None or _path_in(made.location) != _path_in(place):
        raise SinkError(
            f"the catalog keeps the files of table {table} elsewhere than in {place}",
            hint="make the table first, with CREATE TABLE, and start the query then",
            error_class="INVALID_TABLE",
        )


def _path_in(location: str) -> str:
    """The path of a location, without scheme and host, which Spark may write in several ways."""
    return unquote(urlparse(location).path).rstrip("/")
