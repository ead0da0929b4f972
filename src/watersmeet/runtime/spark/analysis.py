"""Spark's answer to what the query asks: the type of an expression."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from watersmeet.errors import QueryError
from watersmeet.query.analysis import Analyse
from watersmeet.runtime.spark.source import spark_type


def spark_analysis(spark: SparkSession) -> Analyse:
    """The analysis of a session: nothing runs, Spark only resolves the expression."""

    def analyse(sql: str, columns: Sequence[pa.Field]) -> pa.DataType:
        schema = StructType([StructField(column.name, spark_type(column.type)) for column in columns])
        try:
            kind = spark.createDataFrame([], schema).selectExpr(sql).schema[0].dataType
        except (AnalysisException, ParseException) as error:
            reason = str(error).split("\n", 1)[0]
            raise QueryError(f"Spark refuses '{sql}': {reason}", error_class="INVALID_EXPRESSION") from None
        try:
            return to_arrow_type(kind, timezone="UTC")
        except (PySparkException, ValueError):
            what = f"'{sql}' is {kind.simpleString()}: Arrow cannot carry that"
            raise QueryError(what, error_class="UNSUPPORTED_TYPE") from None

    return analyse
