"""The marks of a query's output: the form of its results and their sink. A restart with other marks would make the
output unreadable, or split it over two places.

| mark of the output                         | may it change at a restart?                                          |
|--------------------------------------------|----------------------------------------------------------------------|
| names and types of the result columns      | no                                                                   |
| the select list, HAVING, the output mode   | no                                                                   |
| registered predicates, by name and code    | no (values that a function takes from outside of it are not seen)    |
| the sink: its kind, format, path or table  | no                                                                   |
| partitionBy                                | no                                                                   |
| options of the sink, such as compression   | yes                                                                  |
| the function of foreachBatch               | yes                                                                  |
| the name of the query, the trigger         | yes                                                                  |

The marks of the join itself: `plan/fingerprint.py`. The same table for users: docs/guide.md.
"""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructType

from watersmeet.plan.aggregate import OutputMode
from watersmeet.query.expressions import Call, walk
from watersmeet.query.logical import JoinQuery, SelectItem
from watersmeet.runtime.spark.file_sink import FILE_FORMATS
from watersmeet.runtime.spark.sinks import absolute

PLACES = ("path", "topic", "dbtable", "url")
"""Options of batch formats that name the target."""


def output_marks(
    query: JoinQuery, schema: StructType, mode: OutputMode, sink: str, partition_by: Sequence[str]
) -> dict[str, str]:
    """Names and values that must not change."""
    marks = {
        "result columns": ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields),
        "select list": ", ".join(map(_text, query.select)),
        "having": "none" if query.aggregation is None else query.aggregation.having or "none",
        "output mode": mode,
        "sink": sink,
        "partitioned by": ", ".join(partition_by) or "none",
    }
    calls = {node.name: node.function.function for e in query.residuals for node in walk(e) if isinstance(node, Call)}
    for name, function in sorted(calls.items()):
        marks[f"predicate {name}"] = f"code {_digest(function)}"
    return marks


def target_of(format: str, options: Mapping[str, str], query_name: str | None) -> str:
    """The kind of a sink, its format and its place, in words."""
    if format == "memory":
        return f"memory as {query_name}"
    places = {name.lower(): value for name, value in options.items() if name.lower() in PLACES}
    if format in FILE_FORMATS:
        return f"{format} files in {absolute(places.get('path', ''))}"
    return " ".join([format, *(places[name] for name in sorted(places))])


def _text(item: SelectItem) -> str:
    if item.column is not None:
        return f"{item.column.stream}.{item.column.name} AS {item.name}"
    return f"{item.sql} AS {item.name}"


def _digest(function: Callable[..., Any]) -> str:
    """A short hash of a function's source, or of its code if the source is not available."""
    try:
        text = textwrap.dedent(inspect.getsource(function)).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = repr(function).encode() if code is None else code.co_code + repr(code.co_consts).encode()
    return hashlib.sha256(text).hexdigest()[:12]
