"""The pieces of a join given so far: an immutable value, which the builder copies with every call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import QueryError, unknown_name
from watersmeet.optimizer.dominating import MEMORY_MARGIN, Budget
from watersmeet.optimizer.hints import hinted
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.stages import JoinPlan
from watersmeet.planning.planner import Planner
from watersmeet.query.confidence import with_confidence
from watersmeet.query.cql import SqlQuery, read_sql
from watersmeet.query.from_sql import build_sql_query, sources_of
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.query.registered import RegisteredFunction
from watersmeet.runtime.spark.analysis import spark_analysis
from watersmeet.runtime.spark.arrow_schemas import arrow_schema
from watersmeet.runtime.spark.options import JoinOptions, OptionValue, resolve
from watersmeet.runtime.spark.results import result_schema
from watersmeet.runtime.spark.storable import with_source_types


@dataclass(frozen=True, slots=True)
class JoinPieces:
    """The pieces of a join; a query text (`sql`) replaces all pieces that SQL can express."""

    spark: SparkSession
    streams: tuple[Stream, ...] = ()
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    """The DataFrame of each stream."""
    where: tuple[str, ...] = ()
    within: str | None = None
    windows: Mapping[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    group_by: tuple[str, ...] = ()
    agg: tuple[str, ...] = ()
    having: tuple[str, ...] = ()
    sql: SqlQuery | None = None
    plain: frozenset[str] = frozenset()
    """Streams that were given with the text, without an event time."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    functions: Mapping[str, RegisteredFunction] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    selectivities: tuple[tuple[str, float], ...] = ()

    def to_change(self) -> JoinPieces:
        """The join, allowed to change the query of its checkpoint."""
        if self.options.get("onChange", "refuse") != "refuse":
            return self
        return replace(self, options={**self.options, "onChange": "migrate"})

    def by_call(self) -> dict[str, object]:
        """The pieces of the query itself, by the call that gives them."""
        said: dict[str, object] = {
            "where": self.where,
            "within": self.within,
            "stream(window=...)": self.windows,
            "select": self.select,
            "groupBy": self.group_by,
            "agg": self.agg,
            "having": self.having,
        }
        return {name: given for name, given in said.items() if given}

    def require_no_pieces(self) -> None:
        """Refuse a query text if pieces were given too."""
        for name in self.by_call():
            raise QueryError(
                f"the query is given as text and also with {name}",
                hint="say all of it in the text, or none",
                error_class="CONFLICTING_QUERY",
            )

    def texts(self) -> dict[str, Any]:
        """The query as it was written, for a checkpoint; functions are known by name only."""
        streams = [
            {
                "name": stream.name,
                "schema": self.frames[stream.name].schema.jsonValue(),
                "eventTime": stream.event_time,
                "delayUs": stream.delay_us,
                "isDelayGiven": stream.is_delay_given,
            }
            for stream in self.streams
        ]
        pieces = {"where": self.where, "select": self.select, "groupBy": self.group_by, "agg": self.agg}
        written = {name: list(given) for name, given in {**pieces, "having": self.having}.items()}
        sql = None if self.sql is None else self.sql.text
        rest = {"within": self.within, "windows": dict(self.windows), "sql": sql, "plain": sorted(self.plain)}
        return {"streams": streams, **written, **rest}

    def as_written(self, texts: Mapping[str, Any]) -> JoinPieces:
        """The join that a checkpoint has written, with the session and the functions of this one."""
        streams = tuple(
            Stream(
                found["name"],
                arrow_schema(found["name"], StructType.fromJson(found["schema"])),
                found["eventTime"],
                found["delayUs"],
                is_delay_given=found["isDelayGiven"],
            )
            for found in texts["streams"]
        )
        return replace(
            self,
            streams=streams,
            where=tuple(texts["where"]),
            within=texts["within"],
            windows=texts["windows"],
            select=tuple(texts["select"]),
            group_by=tuple(texts["groupBy"]),
            agg=tuple(texts["agg"]),
            having=tuple(texts["having"]),
            sql=None if texts["sql"] is None else read_sql(texts["sql"]),
            plain=frozenset(texts["plain"]),
        )

    def build(self, mode: OutputMode | None = None) -> tuple[JoinQuery, JoinPlan, JoinOptions]:
        """Check everything. Returns the query, its plan for an output mode (or the fallback plan until the first rows
        are seen), and the options as values."""
        planner, options = self.planner(mode)
        return planner.query, planner.first_plan(), options

    def planner(self, mode: OutputMode | None = None) -> tuple[Planner, JoinOptions]:
        """The planner of the query, with hints and budgets, and the options as values."""
        options = resolve(self.spark, self.options)
        query = self.query()
        if options.confidence is not None:
            query = with_confidence(query, options.confidence, options.expected_rows)
        planner = Planner(
            query,
            options.plan,
            hinted(query, self._rates_in(query), list(self.selectivities)),
            options.slots,
            options.partitions,
            _budget(options),
            options.exploration_s,
            mode,
        )
        return planner, options

    def _rates_in(self, query: JoinQuery) -> dict[str, float]:
        """The rate hints, by stream name in the query."""
        by_lower = {stream.name.lower(): stream.name for stream in query.streams}
        for name in self.rates:
            if name.lower() not in by_lower:
                raise unknown_name("stream", "streams", name, by_lower.values(), "UNKNOWN_STREAM")
        return {by_lower[name.lower()]: rate for name, rate in self.rates.items()}

    def query(self) -> JoinQuery:
        """The checked query."""
        analyse = spark_analysis(self.spark)
        if self.sql is not None:
            self.require_no_pieces()
            return build_sql_query(
                self.sql, self.streams, guess_event_time=self.plain, analyse=analyse, functions=self.functions
            )
        return build_query(
            self.streams,
            where=self.where,
            within=self.within,
            windows=self.windows,
            select=self.select,
            group_by=self.group_by,
            agg=self.agg,
            having=self.having,
            analyse=analyse,
            functions=self.functions,
        )

    @property
    def frames_by_name(self) -> dict[str, DataFrame]:
        """The DataFrame of each stream of the query."""
        if self.sql is None:
            return dict(self.frames)
        return {name: self.frames[source] for name, source in sources_of(self.sql, list(self.frames)).items()}

    def schema(self, query: JoinQuery, plan: JoinPlan) -> StructType:
        """The columns of the results."""
        return with_source_types(result_schema(query, plan, self.spark), query, self.frames_by_name)

    def __str__(self) -> str:
        """The join in one line, even while pieces are missing."""
        names = ", ".join(stream.name for stream in self.streams) or "no streams yet"
        if self.sql is not None:
            return f"{names}: {' '.join(self.sql.text.split())}"
        texts = [
            f"{name} {_in_words(given)}" for name, given in self.by_call().items() if not name.startswith("stream")
        ]
        windows = [f"{name} {window}" for name, window in self.windows.items()]
        return "; ".join([names, *texts, *windows])


def _budget(options: JoinOptions) -> Budget:
    """The budget of a plan; without a tmpfs, memory is not limited."""
    bytes_max = math.inf if options.memory_budget_bytes is None else options.memory_budget_bytes
    return Budget(options.cpu_budget, bytes_max, MEMORY_MARGIN)


def _in_words(given: object) -> str:
    return ", ".join(map(str, given)) if isinstance(given, tuple) else str(given)
