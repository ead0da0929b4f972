"""Checks of a sink's path: it is or can become a folder, this Spark knows its storage, and existing files there have
the columns of the results.

| existing files                | compared with the results                                                          |
|-------------------------------|------------------------------------------------------------------------------------|
| Parquet or ORC files          | names and types; of columns that are folders, names only                           |
| JSON files                    | names: every existing column must be one of the results (a NULL leaves no trace)   |
| CSV files                     | names in their order, if there is a header; else the number of columns             |
| text files                    | nothing: they have one column                                                      |
| files of a streaming query    | nothing: their owner is checked elsewhere (`state/sink_owner.py`)                  |

Tables: `sink_tables.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import SinkError
from watersmeet.runtime.spark.sinks import jvm_class
from watersmeet.runtime.spark.unlogged import unlogged
from watersmeet.state.folder_checks import obstacle_to_folder
from watersmeet.state.sink_folder import LOG_FOLDER
from watersmeet.state.storage import is_local, local_path

SUFFIXES = {"parquet": "parquet", "orc": "orc", "json": "json", "jsonl": "json", "csv": "csv", "txt": "text"}
"""The format of a file, by the end of its name."""
STORES = {"s3a": "hadoop-aws", "s3": "hadoop-aws", "abfss": "hadoop-azure", "abfs": "hadoop-azure", "gs": "hadoop-gcp"}
"""Kinds of storage that need a package."""


def require_place(spark: SparkSession, path: str) -> None:
    """SinkError unless the path is a folder, or can become one, as far as can be checked without writing."""
    where = jvm_class(spark, "org.apache.hadoop.fs.Path")(path)
    try:
        files = where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        is_file = files.exists(where) and not files.getFileStatus(where).isDirectory()
    except Exception as error:  # PySpark's, or py4j's, which has no class of PySpark's
        raise _out_of_reach(spark, path, error) from None
    obstacle = "it is a file" if is_file else obstacle_to_folder(local_path(path)) if is_local(path) else None
    if obstacle is not None:
        raise not_writable(path, obstacle)


def not_writable(path: str | Path, obstacle: str) -> SinkError:
    return SinkError(
        f"cannot write results to {path}: {obstacle}",
        hint="name a folder that you may write to, or the path of a new one",
        error_class="SINK_NOT_WRITABLE",
    )


@contextmanager
def writing_results(path: Path) -> Iterator[None]:
    """Turn an error of the system at the first write to the folder of results into a SinkError."""
    try:
        yield
    except OSError as error:
        raise not_writable(path, error.strerror or str(error)) from error


def _out_of_reach(spark: SparkSession, path: str, error: Exception) -> SinkError:
    scheme = path.partition(":")[0]
    text = str(getattr(error, "java_exception", None) or error)
    if "No FileSystem for scheme" not in text and "ClassNotFoundException" not in text:
        said = text.strip().splitlines()[0].rpartition("Exception: ")[2]
        return SinkError(
            f"cannot reach {path}: {said}", hint="look at its spelling and at the network", error_class="SINK_NOT_FOUND"
        )
    hint = f"look at its spelling, or start Spark with the package that knows '{scheme}:'"
    if scheme in STORES:
        version = jvm_class(spark, "org.apache.hadoop.util.VersionInfo").getVersion()
        hint = f"start Spark with spark.jars.packages=org.apache.hadoop:{STORES[scheme]}:{version}"
        hint += "; its paths begin with s3a:" if scheme == "s3" else ""
    return SinkError(
        f"this Spark knows no storage '{scheme}:' ({path})", hint=hint, error_class="MISSING_SPARK_PACKAGE"
    )


def require_same_columns_in(
    spark: SparkSession, path: str, format: str, options: Mapping[str, str], schema: StructType, by: Sequence[str]
) -> None:
    """SinkError if the folder holds files with other columns than the results."""
    names = _files_at(spark, path)
    if format == "text" or not names or LOG_FOLDER in names:
        return
    for name in names:
        if SUFFIXES.get(name.lower().removesuffix(".gz").rpartition(".")[2], format) != format:
            raise _unreadable(path, f"the file {name}, which is not {format}")
    try:
        others = {name: value for name, value in options.items() if name.lower() != "path"}
        with unlogged():
            found = spark.read.format(format).options(**others).load(path).schema
    except AnalysisException as error:
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":  # no file that a reader would read
            return
        raise _unreadable(path, f"files that Spark cannot read as {format}") from None
    except Exception:  # py4j's, which has no class of PySpark's
        raise _unreadable(path, f"files that Spark cannot read as {format}") from None
    has_header = any(name.lower() == "header" and value == "true" for name, value in options.items())
    if differences := _differences_of_files(format, found, schema, by, has_header=has_header):
        raise different_columns(f"the files in {path} have", differences, "choose an empty folder")


def _files_at(spark: SparkSession, path: str) -> list[str]:
    """The names of files and folders in a folder, if there is one."""
    where: Any = jvm_class(spark, "org.apache.hadoop.fs.Path")(path)
    files = where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    found = files.listStatus(where) if files.exists(where) else ()
    return sorted(status.getPath().getName() for status in found)


def _unreadable(path: str, what: str) -> SinkError:
    return SinkError(
        f"{path} holds {what}",
        hint="choose an empty folder for the results",
        error_class="DIFFERENT_SCHEMA",
    )


def _differences_of_files(
    format: str, found: StructType, schema: StructType, by: Sequence[str], *, has_header: bool
) -> list[str]:
    match format:
        case "json":
            names = {name.lower() for name in schema.names}
            return [f"{name} is not in the results" for name in found.names if name.lower() not in names]
        case "csv" if has_header:
            expected = [name for name in schema.names if name not in by] + list(by)
            same = [name.lower() for name in found.names] == [name.lower() for name in expected]
            return [] if same else [f"{', '.join(found.names)} there, {', '.join(expected)} in the results"]
        case "csv":
            counts = len(found.names), len(schema.names)
            return [] if counts[0] == counts[1] else [f"{counts[0]} there, {counts[1]} in the results"]
        case _:
            return differences(found, schema, untyped=by)


def differences(found: StructType, schema: StructType, untyped: Sequence[str] = ()) -> list[str]:
    """The differences between existing columns and those of the results, column by column. Names are compared without
    case, types without nullability; for `untyped` columns only names are compared."""
    there = {field.name.lower(): field for field in found.fields}
    ours = {field.name.lower(): field for field in schema.fields}
    said = []
    for name, field in ours.items():
        if name not in there:
            said.append(f"{field.name} is only in the results")
        elif field.name not in untyped and (is_ := field.dataType.simpleString()) != (
            was := there[name].dataType.simpleString()
        ):
            said.append(f"{field.name} is {was} there and {is_} in the results")
    return said + [f"{field.name} is not in the results" for name, field in there.items() if name not in ours]


def different_columns(what: str, differences: Sequence[str], instead: str) -> SinkError:
    return SinkError(
        f"{what} other columns: {'; '.join(differences)}",
        hint=f"select the columns that are there, with their names and types, or {instead}",
        error_class="DIFFERENT_SCHEMA",
    )
