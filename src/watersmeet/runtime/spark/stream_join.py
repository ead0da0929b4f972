"""`StreamJoin`: the builder that users type, in the manner of `DataStreamReader` and `DataStreamWriter`.

A query is given piece by piece (`where`, `within`, `select`, ...) or as SQL text (`sql`); both give the same.
Every call checks what it can at once; the rest is checked by `writeStream...start()`, before anything runs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StringType, VariantType

from watersmeet.errors import OptionError, QueryError, unknown_name
from watersmeet.observe.explain import explain_text
from watersmeet.optimizer.dominating import MEMORY_MARGIN, Budget
from watersmeet.optimizer.hints import hinted
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.confidence import with_confidence
from watersmeet.query.cql import SqlQuery, read_sql
from watersmeet.query.from_sql import build_sql_query, sources_of
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.query.registered import RegisteredFunction, registered
from watersmeet.query.types import COLLATION, nullable_inside
from watersmeet.runtime.spark.analysis import spark_analysis
from watersmeet.runtime.spark.options import JoinOptions, OptionValue, option_name, option_text, resolve
from watersmeet.runtime.spark.planning import WAITING, Planner, explain_mode
from watersmeet.runtime.spark.storable import parts_of
from watersmeet.runtime.spark.writer import JoinStreamWriter
from watersmeet.units import parse_duration_us


class StreamJoin:
    """A multi-way join of streaming DataFrames.

    >>> query = (
    ...     StreamJoin(spark)
    ...     .stream("orders", orders, eventTime="ts", delay="5 seconds")
    ...     .stream("payments", payments, eventTime="ts", delay="5 seconds")
    ...     .where("orders.id = payments.order_id")
    ...     .within("10 minutes")
    ...     .writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
    ...     .start()
    ... )

    The same as text, over DataFrames that say their event time with `withWatermark`:

    >>> query = StreamJoin(spark).sql(
    ...     "SELECT * FROM orders JOIN payments ON orders.id = payments.order_id WITHIN 10 MINUTES",
    ...     orders=orders, payments=payments,
    ... ).writeStream.format("memory").queryName("paid").start()
    """

    def __init__(self, spark: SparkSession) -> None:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise QueryError(
                "Spark Connect sessions are not supported: the join runs in the driver's own process",
                hint="create the session with a master, such as SparkSession.builder.master('local[*]')",
                error_class="SPARK_CONNECT",
            )
        self._spark = spark
        self._streams: list[Stream] = []
        self._frames: dict[str, DataFrame] = {}
        self._where: list[str] = []
        self._within: str | None = None
        self._windows: dict[str, str] = {}
        self._select: list[str] = []
        self._group_by: list[str] = []
        self._agg: list[str] = []
        self._having: list[str] = []
        self._sql: SqlQuery | None = None
        self._plain: set[str] = set()
        self._options: dict[str, OptionValue] = {}
        self._functions: dict[str, RegisteredFunction] = {}
        self._rates: dict[str, float] = {}
        self._selectivities: list[tuple[str, float]] = []

    def stream(
        self,
        name: str,
        df: DataFrame,
        *,
        eventTime: str | None = None,
        delay: str | None = None,
        window: str | None = None,
    ) -> StreamJoin:
        """Add an input: any streaming DataFrame. `delay` says how late its rows may be; `window` bounds how long a row
        of this stream can wait for others, where streams differ (otherwise use `within`). Without `eventTime`, event
        time and delay are those of the DataFrame's own `withWatermark`, if it has one."""
        if not isinstance(df, DataFrame):
            raise QueryError(
                f"stream '{name}' must be a DataFrame, not {type(df).__name__}", error_class="NOT_A_DATAFRAME"
            )
        if not df.isStreaming:
            raise QueryError(
                f"stream '{name}' is a batch DataFrame",
                hint="read it with spark.readStream, or join it to a stream with DataFrame.join before",
                error_class="NOT_STREAMING",
            )
        delay_us = 0 if delay is None else parse_duration_us(delay, allow_zero=True)
        if eventTime is None and (watermark := _watermark(df)) is not None:
            eventTime = watermark[0]
            delay_us = watermark[1] if delay is None else delay_us
        self._streams.append(Stream(name, _arrow_schema(name, df), eventTime, delay_us))
        self._frames[name] = df
        if window is not None:
            self._windows[name] = window
        return self

    def where(self, condition: str) -> StreamJoin:
        """Add a condition, as SQL text; several are joined by AND."""
        self._where.append(condition)
        return self

    filter = where

    def register(self, name: str, function: Callable[..., Any], *, vectorized: bool = True) -> StreamJoin:
        """Make a Python predicate usable by name in conditions, as in `near(a.x, b.x)`.

        It is called with one `pyarrow.Array` per argument, all of one length, and returns a boolean array of that
        length (pyarrow or NumPy); a NULL in it means unknown. With `vectorized=False` it is called row by row with
        Python values (None for NULL) and returns True, False or None: much slower. It must be deterministic, and
        it wins over a function of Spark with the same name.
        """
        found = registered(name, function, vectorized=vectorized)
        if found.name in self._functions:
            raise QueryError(
                f"two predicates are named '{name}'",
                hint="names are compared without case, as in Spark: rename one",
                error_class="DUPLICATE_FUNCTION",
            )
        if not vectorized:
            warnings.warn(
                f"predicate '{name}' is called once for every pair of rows that the keys let meet: "
                "write it over pyarrow arrays if you can, and join on an equality too",
                UserWarning,
                stacklevel=2,
            )
        self._functions[found.name] = found
        return self

    def within(self, window: str) -> StreamJoin:
        """Join rows whose event times differ by less than this, pair by pair."""
        self._within = window
        return self

    def select(self, *columns: str) -> StreamJoin:
        """The result columns: `stream.column`, `stream.*`, or SQL expressions with an alias. Default: all."""
        self._select.extend(columns)
        return self

    def groupBy(self, *columns: str) -> StreamJoin:
        """Group the joined rows: `stream.column`, SQL expressions (with an alias, if `agg` follows), or
        `window(result_time, '10 minutes')`, where the result time is the latest event time in a joined row."""
        self._group_by.extend(columns)
        return self

    def agg(self, *aggregates: str) -> StreamJoin:
        """The result is the columns of `groupBy` and these: `count(*) AS n`, `sum(stream.column) AS total`, ..."""
        self._agg.extend(aggregates)
        return self

    def having(self, condition: str) -> StreamJoin:
        """Keep the groups for which a condition holds; several are joined by AND."""
        self._having.append(condition)
        return self

    def sql(self, text: str, /, **streams: DataFrame) -> StreamJoin:
        """The whole query as text, with streams by name; those added with `stream` can be used as well.

        A window follows its stream, `FROM a [RANGE 10 MINUTES], b [UNBOUNDED]`, or all have the same: `WITHIN 10
        MINUTES`. The event time of a stream given here is that of its `withWatermark`, else its only timestamp column.
        """
        if self._sql is not None:
            raise QueryError(
                "the join already has a query text",
                hint="start a StreamJoin of its own for each query",
                error_class="CONFLICTING_QUERY",
            )
        self._sql = read_sql(text)
        for name, df in streams.items():
            self.stream(name, df)
            self._plain.add(name)
        return self

    def hint(self, about: str, *, rowsPerSecond: float | None = None, selectivity: float | None = None) -> StreamJoin:
        """Say what you know of the data, so that option plan = auto need not wait for the first rows to choose a tree:
        of a stream by name, how many rows a second arrive (of event time, where there are windows); of a predicate as
        the query has it, or as `key 0` and so on in explain, which share of the pairs of rows it lets pass."""
        if (rowsPerSecond is None) == (selectivity is None):
            raise OptionError(
                f"hint '{about}' says nothing" if rowsPerSecond is None else f"hint '{about}' says two things",
                hint="hint('orders', rowsPerSecond=500), or hint('orders.id = payments.id', selectivity=0.001)",
            )
        if rowsPerSecond is not None:
            if not 0 <= rowsPerSecond < float("inf"):
                raise OptionError(f"hint '{about}': rowsPerSecond must be a number from 0, not {rowsPerSecond}")
            self._rates[about] = float(rowsPerSecond)
        elif selectivity is not None:
            if not 0 <= selectivity <= 1:
                raise OptionError(f"hint '{about}': selectivity must be a share from 0 to 1, not {selectivity}")
            self._selectivities.append((about, float(selectivity)))
        return self

    def option(self, name: str, value: Any) -> StreamJoin:
        """Set an option of the join (names are case-insensitive). `spill` may also be a policy of your own: a function
        of `GroupFigures` that gives every partition group a score; those with the lowest go first."""
        known = option_name(name)
        self._options[known] = value if known == "spill" and callable(value) else option_text(value)
        return self

    def options(self, **options: Any) -> StreamJoin:
        for name, value in options.items():
            self.option(name, value)
        return self

    @property
    def writeStream(self) -> JoinStreamWriter:
        """The writer that starts the query."""
        return JoinStreamWriter(self)

    def explain(self, mode: str | None = None) -> None:
        """Print the query and its plan without running it; `explain("cost")` also the candidates for the plan side by
        side, with what they cost by the hints there are."""
        planner, options = self.planner()
        print(explain_text(planner.query, planner.first_plan(), options.slots))
        if planner.waits_for_rows:
            print(WAITING)
        if explain_mode(mode) == "cost":
            print(f"\n{planner.costs_text()}")

    def build(self, mode: OutputMode | None = None) -> tuple[JoinQuery, JoinPlan, JoinOptions]:
        """Check everything; the query, its plan for an output mode (or the one that stands for it until the first rows
        are seen), and the options as values."""
        planner, options = self.planner(mode)
        return planner.query, planner.first_plan(), options

    def planner(self, mode: OutputMode | None = None) -> tuple[Planner, JoinOptions]:
        """The query with all that is known for its plan, and the options as values."""
        options = resolve(self._spark, self._options)
        query = self._query()
        if options.confidence is not None:
            query = with_confidence(query, options.confidence, options.expected_rows)
        planner = Planner(
            query,
            options.plan,
            hinted(query, self._rates_in(query), self._selectivities),
            options.slots,
            options.partitions,
            Budget(options.cpu_budget, options.memory_budget_bytes or math.inf, MEMORY_MARGIN),
            options.exploration_s,
            mode,
        )
        return planner, options

    def _rates_in(self, query: JoinQuery) -> dict[str, float]:
        """The hints on rates, by the names of the query."""
        by_lower = {stream.name.lower(): stream.name for stream in query.streams}
        for name in self._rates:
            if name.lower() not in by_lower:
                raise unknown_name("stream", "streams", name, by_lower.values(), "UNKNOWN_STREAM")
        return {by_lower[name.lower()]: rate for name, rate in self._rates.items()}

    def _query(self) -> JoinQuery:
        analyse = spark_analysis(self._spark)
        if self._sql is not None:
            self._refuse_pieces()
            guess = frozenset(self._plain)
            return build_sql_query(
                self._sql, self._streams, guess_event_time=guess, analyse=analyse, functions=self._functions
            )
        return build_query(
            self._streams,
            where=self._where,
            within=self._within,
            windows=self._windows,
            select=self._select,
            group_by=self._group_by,
            agg=self._agg,
            having=self._having,
            analyse=analyse,
            functions=self._functions,
        )

    def _refuse_pieces(self) -> None:
        pieces = {
            "where": self._where,
            "within": self._within,
            "stream(window=...)": self._windows,
            "select": self._select,
            "groupBy": self._group_by,
            "agg": self._agg,
            "having": self._having,
        }
        for name, given in pieces.items():
            if given:
                raise QueryError(
                    f"the query is given as text and also with {name}",
                    hint="say all of it in the text, or none",
                    error_class="CONFLICTING_QUERY",
                )

    @property
    def frames(self) -> dict[str, DataFrame]:
        """The DataFrame of each stream of the query."""
        if self._sql is None:
            return dict(self._frames)
        return {name: self._frames[source] for name, source in sources_of(self._sql, list(self._frames)).items()}

    @property
    def spark(self) -> SparkSession:
        return self._spark


def sql(spark: SparkSession, text: str, streams: Mapping[str, DataFrame]) -> StreamJoin:
    """A join of streaming DataFrames as SQL text; see `StreamJoin.sql`."""
    return StreamJoin(spark).sql(text, **streams)


def _watermark(df: DataFrame) -> tuple[str, int] | None:
    """The column and the delay, in microseconds, that `withWatermark` gave to a DataFrame, if it was called once."""
    key = "spark.watermarkDelayMs"
    found = [(f.name, int(f.metadata[key]) * 1000) for f in df.schema.fields if key in (f.metadata or {})]
    return found[0] if len(found) == 1 else None


def _arrow_schema(name: str, df: DataFrame) -> pa.Schema:
    """The columns of a stream as Arrow types."""
    fields = []
    for field in df.schema.fields:
        try:
            if _has_variant(field.dataType):  # as a struct whose fields are never NULL, even if it is
                raise TypeError
            converted = to_arrow_schema(type(df.schema)([field]), timezone="UTC")
        except Exception as error:  # PySpark raises one of several classes here
            raise QueryError(
                f"column '{field.name}' of stream '{name}' is {field.dataType.simpleString()}: Arrow cannot carry that",
                hint="drop or cast the column before the join",
                error_class="UNSUPPORTED_TYPE",
            ) from error
        kept = converted.field(0)
        fields.append(_with_collation(kept.with_type(nullable_inside(kept.type)), field.dataType))
    return pa.schema(fields)


def _has_variant(kind: DataType) -> bool:
    return "variant" in kind.simpleString() and any(isinstance(part, VariantType) for part in parts_of(kind))


def _with_collation(field: pa.Field, kind: DataType) -> pa.Field:
    """Arrow has no collations: note one that is not by bytes, so that joining on it can be refused."""
    if isinstance(kind, StringType) and kind != StringType():
        return field.with_metadata({COLLATION: kind.collation.encode()})
    return field
