"""The guide's table of restarts names every mark that a checkpoint keeps of its query and its output."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.fingerprint import query_marks
from watersmeet.plan.stages import plan_join
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.query.registered import registered
from watersmeet.runtime.spark.output_marks import output_marks

GUIDE = Path(__file__).parents[3] / "docs" / "guide.md"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
IN_THE_GUIDE = {
    "streams": "streams",
    "schema of a": "their columns",
    "schema of b": "their columns",
    "window of a": "windows",
    "window of b": "windows",
    "event time of a": "event times",
    "event time of b": "event times",
    "columns read of a": "the columns that are read",
    "columns read of b": "the columns that are read",
    "join key": "condition",
    "filters": "condition",
    "residual predicates": "condition",
    "partitions": "`partitions`",
    "result columns": "names and types of the result columns",
    "select list": "the select list",
    "having": "`HAVING`",
    "output mode": "output mode",
    "sink": "the sink with its format, place",
    "partitioned by": "`partitionBy`",
    "predicate near": "registered predicates (by name and code)",
}
"""Every mark, and the words for it."""


def near(x, y):
    return x == y


def query() -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in "ab"],
        where=["a.k = b.k", "near(a.v, b.v)", "a.v > 1"],
        within="1 hour",
        windows={},
        select=["a.k"],
        functions={"near": registered("near", near)},
    )


def test_every_mark_is_in_the_table_of_the_guide():
    made = query()
    plan = plan_join(made, (default_tree(made),), 8)
    output = output_marks(
        made, StructType([StructField("a_k", LongType())]), "append", "parquet files in /out", ["a_k"]
    )
    marks = query_marks(made, plan) | output
    assert marks.keys() - {"hash"} == IN_THE_GUIDE.keys()
    table = GUIDE.read_text().split("| may change | must stay |")[1].split("\n\n")[0]
    must_stay = " ".join(row.split("|")[2] for row in table.splitlines()[2:])
    assert [words for words in IN_THE_GUIDE.values() if words not in must_stay] == []
