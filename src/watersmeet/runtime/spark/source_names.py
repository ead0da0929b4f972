"""The names of sources: with them Spark finds its offsets again when streams are added or dropped.

A source is named where it is read, `spark.readStream.name("orders")`, and Spark allows that only while its setting
`spark.sql.streaming.queryEvolution.enableSourceEvolution` is true. Its log then has offsets by name instead of by
position, from the first start on. Tried with Spark 4.3:

| restart with                              | Spark                                                               |
|-------------------------------------------|---------------------------------------------------------------------|
| a source more                             | reads it from its beginning, after a batch that has to be run again |
| a source less                             | forgets its offset, after one more batch                            |
| a source that was dropped                 | reads it from its beginning again, unless it went one batch ago     |
| another name for a source                 | reads it from its beginning again                                   |
| names where there were none, or none now  | fails after the start                                               |

So a name is used once, and the last three are refused: rows would come twice. The names that a checkpoint knows are
among the texts of its query. A batch that was planned for other sources is planned again (`state/spark_log_sync.py`).

Known limitation: if the setting is off when the query is started, it is on until Spark has the query; a source without
a name that another thread reads in that moment is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import CheckpointError, QueryError
from watersmeet.query.logical import JoinQuery
from watersmeet.state.spark_log import EVOLUTION, SparkLog

Names = Mapping[str, tuple[str, ...]]
"""By stream, the names of the sources that it reads."""
HOW_TO_NAME = (
    f"use a new checkpointLocation, and name the sources from its first start on: set {EVOLUTION} to true, and read "
    "every stream with spark.readStream.name('orders')"
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a checkpoint knows of its sources."""

    is_by_name: bool | None
    """Whether Spark's log knows sources by name; None while it has no offsets."""
    names: Names | None = None
    """None if sources have no names, or an earlier version has not kept them."""
    former: tuple[str, ...] = ()
    """The names of sources that were dropped."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a checkpoint, and those of a query."""

    known: Known
    asked: Names | None
    """None unless all have names."""

    @property
    def names(self) -> Names | None:
        """The names by which Spark is to know the sources of the query; None if it is to know them by position."""
        return None if self.known.is_by_name is False else self.asked

    def texts(self) -> dict[str, Any]:
        """The sources of the query, for the texts of the checkpoint."""
        if self.asked is None:
            return {}
        gone = sorted({*self.known.former, *all_names(self.known.names)} - all_names(self.asked))
        found: dict[str, Any] = {"sources": {stream: list(names) for stream, names in self.asked.items()}}
        return {**found, "formerSources": gone} if gone else found


def known_by(log: SparkLog, texts: Mapping[str, Any] | None) -> Known:
    """The sources of a checkpoint, by Spark's log and the texts of its query."""
    texts = texts or {}
    kept = texts.get("sources")
    names = None if kept is None else {stream: tuple(found) for stream, found in kept.items()}
    return Known(log.names_sources(), names, tuple(texts.get("formerSources", ())))


def names_of(frames: Mapping[str, DataFrame]) -> Names | None:
    """The names of all sources; None unless every source has one. A source that two streams read is refused."""
    found = {stream: _names_in(df) for stream, df in frames.items()}
    counted = Counter(name for names in found.values() for name in names if name is not None)
    for name in (name for name, count in counted.items() if count > 1):
        raise QueryError(
            f"the source named '{name}' is read by more than one stream, and Spark keeps one offset for each name",
            hint="read it once more with spark.readStream, under another name",
            error_class="SOURCE_READ_TWICE",
        )
    known = {stream: tuple(n for n in names if n is not None) for stream, names in found.items()}
    return known if all(known.values()) and known == found else None


def _names_in(df: DataFrame) -> tuple[str | None, ...]:
    """The names of the streaming sources of a DataFrame; None for one without a name."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    nodes = (leaves.apply(i) for i in range(leaves.size()))
    return tuple(_name_of(node) for node in nodes if node.isStreaming())


def _name_of(node: Any) -> str | None:
    try:
        given = node.sourceIdentifyingName()
        return str(given.name()) if given.getClass().getSimpleName() == "UserProvided" else None
    except Py4JError:  # a source that cannot have a name
        return None


def require_same_sources(sources: Sources, spark: SparkSession, location: Path) -> None:
    """Refuse streams whose sources are not those of the checkpoint, as far as it knows them."""
    if found := list(_differences(sources.known, sources.asked, is_enforced=_is_on(spark))):
        raise CheckpointError(
            f"checkpoint {location} has read other sources ({'; '.join(found)})",
            hint="name every source as it was when the query was first started, or use a new checkpointLocation",
            error_class="DIFFERENT_SOURCES",
        )


def _differences(known: Known, asked: Names | None, *, is_enforced: bool) -> Iterator[str]:
    if known.is_by_name is None:
        return
    if asked is None:
        if known.is_by_name:
            yield "its sources have names, and those of the query have none"
    elif not known.is_by_name:
        if is_enforced:
            yield "its sources have no names, and Spark cannot give them names later"
    else:
        for stream, names in (known.names or {}).items():
            if asked.get(stream, names) != names:
                then, now = ", ".join(names), ", ".join(asked[stream])
                yield f"stream {stream} has read {then}, and Spark would read {now} from the beginning"


def refused_streams(sources: Sources, new: JoinQuery, old: JoinQuery) -> tuple[str, str] | None:
    """Why the streams of an old query may not become those of a new one, and a hint; None if they may."""
    known, asked = sources.known, sources.asked
    streams, before = ({stream.name for stream in query.streams} for query in (new, old))
    if streams == before:
        return None
    if asked is None or known.is_by_name is False:
        return "streams may not be added or dropped: Spark keeps the offsets of sources by their position", HOW_TO_NAME
    if known.names is None:
        return "an earlier version has not kept the names of its sources", "start it once as it was, and change it then"
    used = {*known.former, *all_names(known.names)}
    for stream in sorted(streams - before):
        for name in sorted(used & set(asked[stream])):
            return (
                f"stream {stream} reads source {name}, which this checkpoint has read before: rows could come twice",
                "give the source of an added stream a new name; Spark reads it from where it starts",
            )
    return None


def start_by_name(spark: SparkSession, start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query whose log is to know sources by name; the session's own setting is put back."""
    before = spark.conf.get(EVOLUTION)
    spark.conf.set(EVOLUTION, "true")
    try:
        return start()
    finally:
        assert before is not None
        spark.conf.set(EVOLUTION, before)


def _is_on(spark: SparkSession) -> bool:
    return str(spark.conf.get(EVOLUTION)).lower() == "true"


def all_names(names: Names | None) -> set[str]:
    return set() if names is None else {name for found in names.values() for name in found}
