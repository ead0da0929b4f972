"""Which sink is meant by what the writer was told: format, options, partitions, function or table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import OptionError, SinkError
from watersmeet.runtime.spark.file_sink import FILE_FORMATS, FileSink
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
    """What the writer was told of the sink."""

    spark: SparkSession
    format: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...]
    function: Callable[[DataFrame, int], None] | None
    query_name: str | None
    is_complete: bool

    def get(self, option: str) -> str | None:
        """An option; names are compared without case."""
        return next((value for name, value in self.options.items() if name.lower() == option.lower()), None)


def sink_of(asked: AskedSink, schema: StructType) -> Sink:
    """The sink of a format; raises SinkError or OptionError where something is missing."""
    spark = asked.spark
    if asked.function is not None:
        return function_sink(asked.function)
    if asked.format == "console":
        rows = asked.get("numRows") or "20"
        if not rows.isdigit():
            raise OptionError(f"option numRows must be a whole number, not '{rows}'", hint="such as 20")
        return console_sink(int(rows), (asked.get("truncate") or "true").lower() == "true")
    if asked.format == "memory":
        if not asked.query_name:
            raise SinkError("the memory sink needs a queryName: it becomes the name of the view")
        return memory_sink(spark, asked.query_name, schema, is_complete=asked.is_complete)
    unknown = [column for column in asked.partition_by if column not in schema.names]
    if unknown:
        raise SinkError(f"partitionBy names {unknown}, the result has {schema.names}")
    if asked.format in FILE_FORMATS:
        path = asked.get("path")
        if not path:
            raise SinkError(f"the {asked.format} sink needs a path", hint=".option('path', folder) or start(folder)")
        return FileSink(absolute(path), asked.format, file_options(asked.options), asked.partition_by)
    return batch_sink(asked.format, file_options(asked.options), asked.partition_by, is_complete=asked.is_complete)


def table_sink(asked: AskedSink, table: str, schema: StructType) -> Sink:
    """A table of a file format, which is made if it does not exist."""
    spark = asked.spark
    if not spark.catalog.tableExists(table):
        empty = spark.createDataFrame([], schema).write.format(asked.format)
        if asked.partition_by:
            empty = empty.partitionBy(*asked.partition_by)
        if path := asked.get("path"):
            empty = empty.option("path", path)
        empty.saveAsTable(table)
    details = {
        row[0]: row[1]
        for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").select("col_name", "data_type").collect()
    }
    provider = details.get("Provider", "").lower()
    if provider not in FILE_FORMATS:
        raise SinkError(
            f"table {table} is kept as {provider or 'a view'}",
            hint="use foreachBatch to write to tables of other kinds",
        )
    return FileSink(details["Location"], provider, file_options(asked.options), asked.partition_by)
