"""The type of an expression, by Spark's analyser."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from watersmeet.errors import QueryError
from watersmeet.query.analysis import Analyse
from watersmeet.runtime.spark.sinks import jvm_class
from watersmeet.runtime.spark.source import spark_type
from watersmeet.runtime.spark.unlogged import unlogged

FUNCTIONS = "org.apache.spark.sql.catalyst.analysis.FunctionRegistry"


def spark_analysis(spark: SparkSession) -> Analyse:
    """The analysis of a session: nothing runs, Spark only resolves the expression."""

    def analyse(sql: str, columns: Sequence[pa.Field]) -> pa.DataType:
        schema = StructType([StructField(column.name, spark_type(column.type)) for column in columns])
        try:
            with unlogged():
                kind = spark.createDataFrame([], schema).selectExpr(sql).schema[0].dataType
        except (AnalysisException, ParseException) as error:
            raise _refused(spark, sql, error) from None
        try:
            return to_arrow_type(kind, timezone="UTC")
        except (PySparkException, ValueError):
            what = f"'{sql}' is {kind.simpleString()}: Arrow cannot carry that"
            raise QueryError(what, error_class="UNSUPPORTED_TYPE") from None

    return analyse


def _refused(spark: SparkSession, sql: str, error: PySparkException) -> QueryError:
    """Spark's error about an expression, without codes and positions: they refer to a text that the user did not
    type."""
    if error.getCondition() == "UNRESOLVED_ROUTINE":
        name = error.getMessageParameters()["routineName"].strip("`")
        listed = jvm_class(spark, FUNCTIONS).functionSet().mkString(" ").split()
        known = [each.rpartition(".")[2].strip("`") for each in listed]
        near = difflib.get_close_matches(name.lower(), known, n=1)
        meant = f"did you mean '{near[0]}'? or" if near else "functions are those of Spark SQL; or"
        hint = f"{meant} is it a Python predicate? make it known with register('{name}', function)"
        return QueryError(f"Spark has no function '{name}'", hint=hint, error_class="INVALID_EXPRESSION")
    reason = re.sub(r"^\[[\w.]+\] | SQLSTATE: .*", "", str(error).strip().split("\n", 1)[0]).rstrip(".")
    return QueryError(
        f"Spark refuses '{sql}': {reason}",
        hint="expressions are those of Spark SQL, as in df.selectExpr",
        error_class="INVALID_EXPRESSION",
    )
