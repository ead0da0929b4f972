"""Queries and refusals as text files: cases of named sections, and what they are read into.

    == a window for all
    --- sql
    SELECT ... FROM bank1 JOIN bank2 ON ... WITHIN 10 MINUTES
    --- builder
    stream: bank1
    stream: bank2
    where: bank1.currency = bank2.currency
    within: 10 minutes
    --- logical
    ...

`stream: x = bank1` is an alias. `--- logical` and `--- message` are what the code makes of the rest; with
WATERSMEET_GOLDEN=write they are written anew.
"""

import os
import re
from pathlib import Path

import pyarrow as pa

from watersmeet.query.aggregates import Value, aggregate_column, key_column
from watersmeet.query.cql import read_sql
from watersmeet.query.expressions import to_text
from watersmeet.query.from_sql import build_sql_query
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.query.types import spark_name
from watersmeet.units import format_duration

UTC = pa.timestamp("us", "UTC")
OFFER = pa.schema(
    [
        ("currency", pa.string()),
        ("lot", pa.int32()),
        ("price", pa.float64()),
        ("amount", pa.decimal128(10, 2)),
        ("broker", pa.string()),
        ("ts", UTC),
        ("info", pa.struct([("city", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)
STREAMS = {
    "bank1": Stream("bank1", OFFER, "ts"),
    "bank2": Stream("bank2", OFFER, "ts"),
    "Bank3": Stream("Bank3", OFFER, "ts", delay_us=5_000_000),
    "orders": Stream("orders", pa.schema([("id", pa.int64()), ("qty", pa.int32()), ("day", pa.date32())])),
    "rates": Stream("rates", pa.schema([("currency", pa.string()), ("rate", pa.float32()), ("at", UTC)])),
    "words": Stream(
        "words", pa.schema([(w, pa.int32()) for w in ("on", "inner", "where", "using")] + [("ts", UTC)]), "ts"
    ),
    "clocks": Stream("clocks", pa.schema([("lot", pa.int32()), ("ts", pa.timestamp("us"))]), "ts"),
}

Case = dict[str, str]


def read_cases(path: Path) -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for block in re.split(r"^== ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, body = block.split("\n", 1)
        parts = re.split(r"^--- (\w+)\n", body, flags=re.MULTILINE)[1:]
        assert title not in cases, f"two cases are named '{title}'"
        cases[title] = {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return cases


def write_cases(path: Path, cases: dict[str, Case]) -> None:
    blocks = []
    for title, case in cases.items():
        blocks.append(f"== {title}\n" + "".join(f"--- {name}\n{text}\n" for name, text in case.items()))
    path.write_text("\n".join(blocks))


def checked(path: Path, title: str, section: str, found: str) -> str:
    """What the file says; first made to say what was found, if files are written."""
    cases = read_cases(path)
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        cases[title][section] = found
        write_cases(path, cases)
    return cases[title][section]


def fake_spark(sql: str, columns: list[pa.Field]) -> pa.DataType:
    """Types as Spark would give them, for the few expressions of the cases."""
    types = {column.name: column.type for column in columns}
    if sql.strip("`") in types:
        return types[sql.strip("`")]
    if re.search(r" LIKE '", sql):
        return pa.bool_()
    if re.match(r"(upper|lower|concat|CASE)\b", sql) or sql.endswith(".city"):
        return pa.string()
    if re.search(r"[<>=]| LIKE | IS | AND ", sql):
        return pa.bool_()
    if sql.startswith("`window`."):
        return UTC
    if "decimal" in {str(t)[:7] for t in types.values()}:
        return pa.decimal128(23, 2)
    return pa.int32() if set(types.values()) <= {pa.int32()} else pa.float64()


def from_sql(text: str) -> JoinQuery:
    """The query of a text; it is given the streams that it uses, as far as they are known."""
    asked = read_sql(text)
    used = {item.source.lower() for item in asked.streams}
    given = [stream for name, stream in STREAMS.items() if name.lower() in used]
    return build_sql_query(asked, given, guess_event_time=frozenset({"rates", "orders"}), analyse=fake_spark)


def from_builder(lines: str) -> JoinQuery:
    """The query of the calls of a builder, one to a line."""
    calls: dict[str, list[str]] = {}
    for line in re.split(r"\n(?=\w+: )", lines):
        name, argument = line.split(": ", 1)
        calls.setdefault(name, []).append(argument)
    streams = [_stream(argument) for argument in calls.pop("stream")]
    windows = dict(argument.split(" = ") for argument in calls.pop("window", []))
    (within,) = calls.pop("within", [None])
    return build_query(
        streams,
        where=calls.pop("where", []),
        within=within,
        windows=windows,
        select=calls.pop("select", []),
        group_by=calls.pop("groupBy", []),
        agg=calls.pop("agg", []),
        having=calls.pop("having", []),
        analyse=fake_spark,
        **calls,
    )


def _stream(text: str) -> Stream:
    name, _, source = text.partition(" = ")
    stream = STREAMS[source or name]
    time = "at" if stream.name == "rates" else stream.event_time
    return Stream(name, stream.schema, time, stream.delay_us)


def logical_text(query: JoinQuery) -> str:
    """All that a query says, one line for each thing."""
    lines = []
    for stream, window in zip(query.streams, query.windows_us, strict=True):
        bound = "unbounded" if window is None else f"within {format_duration(window)}"
        delay = f", delay {format_duration(stream.delay_us)}" if stream.delay_us else ""
        lines.append(f"stream    {stream.name}: {bound}, event time {stream.event_time}{delay}")
    for key_class in query.classes:
        columns = zip(query.streams, key_class.columns, strict=True)
        equal = " = ".join(f"{stream.name}.{column}" for stream, column in columns if column)
        lines.append(f"key       {equal} ({spark_name(key_class.type)})")
    lines += [f"filter    {item.stream}: {item.sql}" for item in query.filters]
    lines += [f"residual  {to_text(residual)}" for residual in query.residuals]
    if query.aggregation is not None:
        for i, key in enumerate(query.aggregation.keys):
            lines.append(f"group by  {key_column(i)} = {_value(key)}")
        if (window := query.aggregation.window) is not None:
            lines.append(
                f"group by  window of {format_duration(window.length_us)} each {format_duration(window.slide_us)}"
            )
        for i, item in enumerate(query.aggregation.aggregates):
            of = "" if item.argument is None else f" of {_value(item.argument)}"
            lines.append(f"compute   {aggregate_column(i)} = {item.function}{of} ({spark_name(item.type)})")
        if query.aggregation.having is not None:
            lines.append(f"having    {query.aggregation.having}")
    for item in query.select:
        what = item.sql if item.column is None else f"{item.column.stream}.{item.column.name}"
        lines.append(f"select    {item.name}: {what}")
    return "\n".join(lines)


def _value(value: Value) -> str:
    who = "by Spark" if value.expression is None else "by the engine"
    return f"{value.sql} [{spark_name(value.type)}, {who}]"
