"""Checks that a sink can take the results: its format, required options, partition columns, and column types. They run
before the query starts: a later refusal by the sink would come after the commit of the epoch.

| format                                     | looked up                                                              |
|--------------------------------------------|------------------------------------------------------------------------|
| files, `memory`, `console`, `foreachBatch` | not at all: they are ours                                              |
| all others                                 | among Spark's data sources, as Spark itself does, and those in Python  |
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, MapType, StringType, StructType, VariantType

from watersmeet.errors import OptionError, SinkError
from watersmeet.runtime.spark.sinks import jvm_class

COMMON_FORMATS = ("parquet", "orc", "json", "csv", "text", "memory", "console", "noop", "kafka", "delta", "jdbc")
"""Suggestions for misspelt names."""
READ_ONLY = ("rate", "rate-micro-batch", "socket", "binaryfile", "image", "statestore", "state-metadata")
PACKAGES = {
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    "avro": f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}",
    "delta": "io.delta:delta-spark_2.13:<version for your Spark>",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-<your Spark>_2.13:<version>",
    "hudi": "org.apache.hudi:hudi-spark<your Spark>-bundle_2.13:<version>",
}
NEEDED_OPTIONS = {"jdbc": ("url", "dbtable"), "kafka": ("kafka.bootstrap.servers",)}
UNPARTITIONED = ("memory", "console", "foreachbatch")
_FILE_FORMAT = "org.apache.spark.sql.execution.datasources.FileFormat"


def require_format(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    """SinkError unless Spark has a data source of this name that can be written to, with the options it needs."""
    if name in READ_ONLY:
        raise _unknown(f"format '{name}' can only be read", _hint_for(name))
    source = None
    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name):
        source = _looked_up(spark, name)
    given = {option.lower() for option in options}
    needed = list(NEEDED_OPTIONS.get(name, ()))
    if source is not None and spark._jvm.java.lang.Class.forName(_FILE_FORMAT).isAssignableFrom(source):
        needed.append("path")
    for option in needed:
        if option.lower() not in given:
            raise missing_option(name, option)


def missing_option(format: str, option: str) -> SinkError:
    """The error of a format without a required option."""
    if option == "path":
        return SinkError(
            f"the {format} sink needs a path",
            hint="write start('folder'), or .option('path', 'folder')",
            error_class="MISSING_PATH",
        )
    return SinkError(
        f"the {format} sink needs the option {option}",
        hint=f"write .option('{option}', ...)",
        error_class="MISSING_OPTION",
    )


def _looked_up(spark: SparkSession, name: str) -> object:
    sources = jvm_class(spark, "org.apache.spark.sql.execution.datasources.DataSource")
    try:
        return sources.lookupDataSource(name, spark._jsparkSession.sessionState().conf())
    except Exception:  # PySpark's, or py4j's, which has no class of PySpark's
        pass
    if name in PACKAGES:
        raise SinkError(
            f"this Spark has no format '{name}': it comes in a package of its own",
            hint=f"start Spark with spark.jars.packages={PACKAGES[name]}",
            error_class="MISSING_SPARK_PACKAGE",
        )
    raise _unknown(f"unknown format '{name}'", _hint_for(name))


def _hint_for(name: str) -> str:
    if name == "foreachbatch":
        return "write .foreachBatch(function)"
    near = difflib.get_close_matches(name, COMMON_FORMATS, n=1)
    return f"did you mean '{near[0]}'?" if near else f"common formats: {', '.join(COMMON_FORMATS)}"


def _unknown(message: str, hint: str) -> SinkError:
    return SinkError(message, hint=hint, error_class="UNKNOWN_FORMAT")


def require_partitions(format: str, partition_by: Sequence[str], schema: StructType) -> None:
    """OptionError unless the columns of `partitionBy` can become folders, and at least one other column is left."""
    if not partition_by:
        return
    if format in UNPARTITIONED:
        raise _partitions(f"partitionBy has no effect on {format}", "leave it out, or write to files")
    for name in partition_by:
        if name not in schema.names:
            raise _partitions(f"partitionBy: the results have no column '{name}'", _nearest(name, schema.names))
        if isinstance(kind := schema[name].dataType, StructType | ArrayType | MapType | VariantType):
            raise _partitions(
                f"partitionBy: column '{name}' is {kind.simpleString()}, which cannot be the name of a folder",
                "choose a column of a plain type",
            )
        if list(partition_by).count(name) > 1:
            raise _partitions(f"partitionBy names column '{name}' twice", "name it once")
    if len(partition_by) == len(schema.names):
        raise _partitions("partitionBy names all columns: none is left for the files", "leave one out")


def _nearest(name: str, columns: Collection[str]) -> str:
    near = difflib.get_close_matches(name.replace(".", "_"), columns, n=1)
    return f"did you mean '{near[0]}'?" if near else f"they have {', '.join(columns)}"


def _partitions(message: str, hint: str) -> OptionError:
    return OptionError(message, hint=hint, error_class="INVALID_PARTITIONING")


def require_one_text(format: str, partition_by: Collection[str], schema: StructType) -> None:
    """SinkError if the format is text and results do not have exactly one string column, besides partition columns."""
    left = [field for field in schema.fields if field.name not in partition_by]
    if format == "text" and (len(left) != 1 or not isinstance(left[0].dataType, StringType)):
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in left)
        raise SinkError(
            f"text files hold one column of strings, and the results have {columns}",
            hint="select one, such as concat_ws(',', a.k, b.v) AS line, or choose csv",
            error_class="UNSUPPORTED_RESULT_TYPE",
        )
