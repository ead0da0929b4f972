"""`StreamJoin`: the builder that users type, in the manner of `DataStreamReader` and `DataStreamWriter`.

A query is given piece by piece (`where`, `within`, `select`, ...) or as SQL text (`sql`); both give the same.
Every call checks what it can at once; the rest is checked by `writeStream...start()`, before anything runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import OptionError, QueryError
from watersmeet.observe.explain import explain_text
from watersmeet.optimizer.join_graph import RATE_MAX
from watersmeet.planning.planner import FALLBACK, explain_mode
from watersmeet.query.cql import read_sql
from watersmeet.query.logical import Stream, check_stream_name
from watersmeet.query.registered import registered
from watersmeet.runtime.spark import arguments
from watersmeet.runtime.spark.arrow_schemas import arrow_schema
from watersmeet.runtime.spark.join_pieces import JoinPieces
from watersmeet.runtime.spark.option_places import require_option_of_join
from watersmeet.runtime.spark.options import KNOWN, option_name
from watersmeet.runtime.spark.writer import JoinStreamWriter


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
        if not isinstance(spark, SparkSession):
            raise QueryError(
                f"StreamJoin takes a SparkSession, not {type(spark).__name__}",
                hint="write StreamJoin(spark), where spark = SparkSession.builder.getOrCreate()",
                error_class="INVALID_ARGUMENT",
            )
        self._pieces = JoinPieces(spark)

    def _with(self, **changes: Any) -> StreamJoin:
        """A copy of the join with these pieces; this one does not change."""
        other = StreamJoin.__new__(StreamJoin)
        other._pieces = replace(self._pieces, **changes)
        return other

    def stream(
        self,
        name: str,
        df: DataFrame,
        *,
        eventTime: str | None = None,
        delay: str | timedelta | None = None,
        window: str | timedelta | None = None,
    ) -> StreamJoin:
        """Add an input: any streaming DataFrame. `delay` says how late its rows may be; `window` bounds how long a row
        of this stream can wait for others, where streams differ (otherwise use `within`). The defaults of event time
        and delay are those of the DataFrame's `withWatermark`, if it was called.

        >>> join = join.stream("orders", orders, eventTime="ts", delay="5 seconds")
        """
        arguments.text("the name of a stream", name, "write the name first: stream('orders', df)")
        check_stream_name(name)
        if not isinstance(df, DataFrame):
            raise QueryError(
                f"stream '{name}' must be a DataFrame, not {type(df).__name__}",
                hint="read it with spark.readStream, such as spark.readStream.table('orders')",
                error_class="NOT_A_DATAFRAME",
            )
        if eventTime is not None:
            arguments.text("eventTime", eventTime, "name a column, such as eventTime='ts'")
        if not df.isStreaming:
            raise QueryError(
                f"stream '{name}' is a batch DataFrame",
                hint="read it with spark.readStream, or join it to a stream with DataFrame.join before",
                error_class="NOT_STREAMING",
            )
        eventTime, delay_us = _event_time(name, df, eventTime, delay)
        stream = Stream(
            name, arrow_schema(name, df.schema), eventTime, delay_us or 0, is_delay_given=delay_us is not None
        )
        pieces = self._pieces
        return self._with(
            streams=(*pieces.streams, stream),
            frames={**pieces.frames, name: df},
            windows=pieces.windows
            if window is None
            else {**pieces.windows, name: arguments.duration("window", window)},
        )

    def where(self, condition: str) -> StreamJoin:
        """Add a condition, as SQL text; several are joined by AND.

        >>> join = join.where("orders.id = payments.order_id")
        """
        return self._with(where=(*self._pieces.where, arguments.condition("where", condition)))

    filter = where

    def register(self, name: str, function: Callable[..., Any], *, vectorized: bool = True) -> StreamJoin:
        """Make a Python predicate usable by name in conditions, as in `near(a.x, b.x)`.

        It is called with one `pyarrow.Array` per argument, all of one length, and returns a boolean array of that
        length (pyarrow or NumPy); a NULL in it means unknown. With `vectorized=False` it is called row by row with
        Python values (None for NULL) and returns True, False or None: much slower. It must be deterministic, and
        it wins over a function of Spark with the same name.

        >>> join = join.register("near", lambda x, y: pc.less(pc.abs(pc.subtract(x, y)), 0.5))
        """
        found = registered(name, function, vectorized=vectorized)
        if found.name in self._pieces.functions:
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
        return self._with(functions={**self._pieces.functions, found.name: found})

    def within(self, window: str | timedelta) -> StreamJoin:
        """Join rows whose event times differ by less than this, pair by pair.

        >>> join = join.within("10 minutes")
        """
        return self._with(within=arguments.duration("within", window))

    def select(self, *columns: str | Sequence[str]) -> StreamJoin:
        """The result columns: `stream.column`, `stream.*`, or SQL expressions with an alias. Default: all.

        >>> join = join.select("orders.*", "payments.amount * 100 AS cents")
        """
        return self._with(select=arguments.columns("select", columns))

    def groupBy(self, *columns: str | Sequence[str]) -> StreamJoin:
        """Group the joined rows: `stream.column`, SQL expressions (with an alias, if `agg` follows), or
        `window(result_time, '10 minutes')`, where the result time is the latest event time in a joined row.

        >>> join = join.groupBy("orders.customer")
        """
        return self._with(group_by=arguments.columns("groupBy", columns))

    def agg(self, *aggregates: str | Sequence[str]) -> StreamJoin:
        """The aggregates; results have the columns of `groupBy` and these.

        >>> join = join.agg("count(*) AS n", "sum(payments.amount) AS total")
        """
        return self._with(agg=arguments.columns("agg", aggregates))

    def having(self, condition: str) -> StreamJoin:
        """Keep the groups for which a condition holds; several are joined by AND.

        >>> join = join.having("count(*) > 10")
        """
        return self._with(having=(*self._pieces.having, arguments.condition("having", condition)))

    def sql(self, text: str, /, *unnamed: Any, **streams: DataFrame) -> StreamJoin:
        """The whole query as text, with streams by name; the text can also use streams added with `stream`.

        A window follows its stream, `FROM a [RANGE 10 MINUTES], b [UNBOUNDED]`, or all have the same: `WITHIN 10
        MINUTES`. The event time of a stream given here is that of its `withWatermark`, else its only timestamp column.

        >>> join = StreamJoin(spark).sql("SELECT * FROM a JOIN b ON a.k = b.k WITHIN 10 MINUTES", a=a, b=b)
        """
        if self._pieces.sql is not None:
            raise QueryError(
                "the join already has a query text",
                hint="start a StreamJoin of its own for each query",
                error_class="CONFLICTING_QUERY",
            )
        if unnamed:
            raise QueryError(
                "sql takes streams by name",
                hint="write sql('SELECT ... FROM a JOIN b ON a.k = b.k', a=df, b=other)",
                error_class="INVALID_ARGUMENT",
            )
        arguments.text("the query of sql", text, "write sql('SELECT ... FROM a JOIN b ON a.k = b.k', a=df, b=other)")
        join = self._with(sql=read_sql(text), plain=frozenset(streams))
        for name, df in streams.items():
            join = join.stream(name, df)
        return join

    def hint(self, about: str, *, rowsPerSecond: float | None = None, selectivity: float | None = None) -> StreamJoin:
        """Give known figures of the data, so that option plan = auto need not wait for the first rows to choose a tree.
        For a stream, by name: rows per second (of event time, where there are windows). For a predicate, as written in
        the query or as `key 0` and so on in explain: the share of row pairs that it lets pass.

        >>> join = join.hint("orders", rowsPerSecond=1000).hint("orders.id = payments.order_id", selectivity=0.001)
        """
        arguments.text("the first argument of hint", about, "name a stream, or write a predicate as the query has it")
        if (rowsPerSecond is None) == (selectivity is None):
            raise OptionError(
                f"hint '{about}' says nothing" if rowsPerSecond is None else f"hint '{about}' says two things",
                hint="write hint('orders', rowsPerSecond=500), or hint('orders.id = payments.id', selectivity=0.001)",
            )
        if rowsPerSecond is not None:
            if not isinstance(rowsPerSecond, int | float) or not 0 <= rowsPerSecond <= RATE_MAX:
                raise OptionError(
                    f"hint '{about}': rowsPerSecond must be a number from 0 to {RATE_MAX:g}, not {rowsPerSecond!r}",
                    hint="such as rowsPerSecond=500",
                )
            return self._with(rates={**self._pieces.rates, about: float(rowsPerSecond)})
        assert selectivity is not None
        if not isinstance(selectivity, int | float) or not 0 <= selectivity <= 1:
            raise OptionError(
                f"hint '{about}': selectivity must be a share from 0 to 1, not {selectivity!r}",
                hint="such as selectivity=0.001",
            )
        return self._with(selectivities=(*self._pieces.selectivities, (about, float(selectivity))))

    def option(self, name: str, value: Any) -> StreamJoin:
        """Set an option of the join (names are case-insensitive). `spill` may also be a policy of your own: a function
        of `GroupFigures` that gives every partition group a score; groups with the lowest scores are spilled first.

        >>> join = join.option("memoryBudget", "1g")
        """
        require_option_of_join(arguments.text("the name of an option", name, "write option('name', value)"))
        known = option_name(name)
        takes = KNOWN[known].takes_function and callable(value)
        text = value if takes else arguments.option_value(known, value)
        return self._with(options={**self._pieces.options, known: text})

    def options(self, **options: Any) -> StreamJoin:
        """Set several options of the join.

        >>> join = join.options(slots=8, plan="mjoin")
        """
        join = self
        for name, value in options.items():
            join = join.option(name, value)
        return join

    @property
    def schema(self) -> StructType:
        """The schema of the results. The query is checked, and nothing runs.

        >>> join.schema.simpleString()
        'struct<broker:string,ask:double>'
        """
        query, plan, _ = self._pieces.build()
        return self._pieces.schema(query, plan)

    @property
    def columns(self) -> list[str]:
        """The names of the result columns.

        >>> join.columns
        ['broker', 'ask']
        """
        return self.schema.names

    def __repr__(self) -> str:
        return f"StreamJoin[{self._pieces}]"

    @property
    def writeStream(self) -> JoinStreamWriter:
        """The writer that starts the query.

        >>> query = join.writeStream.format("console").start()
        """
        return JoinStreamWriter(self._pieces)

    def explain(self, mode: str | None = None) -> None:
        """Print the query and its plan without running it. "cost": also the candidate plans side by side, with their
        costs estimated from the hints.

        >>> join.explain("cost")
        """
        shown = explain_mode(mode)
        planner, options = self._pieces.planner()
        print(explain_text(planner.query, planner.first_plan(), options.slots))
        if planner.waits_for_rows:
            print(FALLBACK)
        if shown == "cost":
            print(f"\n{planner.costs_text()}")
        if shown == "diff":
            print(f"\n{planner.diff_text()}")


def pieces_of(join: StreamJoin) -> JoinPieces:
    """The pieces of a join: for the command line, the demo and tests."""
    return join._pieces


def sql(spark: SparkSession, text: str, streams: Mapping[str, DataFrame]) -> StreamJoin:
    """A join of streaming DataFrames as SQL text; see `StreamJoin.sql`."""
    return StreamJoin(spark).sql(text, **streams)


def _event_time(name: str, df: DataFrame, given: str | None, delay: Any) -> tuple[str | None, int | None]:
    """The event time of a stream and its delay in microseconds: as given, else as in `withWatermark`, else None."""
    delay_us = None if delay is None else arguments.duration_us("delay", delay)
    marked = _watermark(df)
    if marked is None:
        return given, delay_us
    if given is not None and given.lower() != marked[0].lower():
        if delay_us is None:
            raise QueryError(
                f"stream '{name}' has its watermark on '{marked[0]}', and '{given}' was given as its event time",
                hint=f"leave eventTime out, call withWatermark('{given}', ...) instead, or say the delay as well: "
                f"stream('{name}', df, eventTime='{given}', delay='5 seconds')",
                error_class="ANOTHER_EVENT_TIME",
            )
        return given, delay_us
    return given or marked[0], marked[1] if delay_us is None else delay_us


def _watermark(df: DataFrame) -> tuple[str, int] | None:
    """The column and the delay, in microseconds, that `withWatermark` gave to a DataFrame, if it was called once."""
    key = "spark.watermarkDelayMs"
    found = [(f.name, int(f.metadata[key]) * 1000) for f in df.schema.fields if key in (f.metadata or {})]
    return found[0] if len(found) == 1 else None
