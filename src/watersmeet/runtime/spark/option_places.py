"""Options given in the wrong place are refused: there they would silently have no effect.

| given to   | belongs to                          | refused                                               |
|------------|-------------------------------------|-------------------------------------------------------|
| the join   | the writer, a call, a source        | always: the join knows all its options                |
| the writer | the join, a call, a source          | for formats whose options are known: others may have  |
|            |                                     | an option of that name                                |
| the writer | `checkpointLocation`, misspelt      | always                                                |
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from watersmeet.errors import OptionError

CHECKPOINT = "checkpointLocation"
_OF_WRITER = (
    CHECKPOINT,
    *("path", "compression", "header", "sep", "delimiter", "encoding", "nullValue", "dateFormat", "timestampFormat"),
    *("lineSep", "retention", "numRows", "truncate", "topic", "kafka.bootstrap.servers", "url", "dbtable"),
)
_OF_SOURCES = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger", "startingOffsets", "subscribe"),
    *("pathGlobFilter", "recursiveFileLookup", "latestFirst", "inferSchema", "rowsPerSecond", "includeTimestamp"),
)
_CALLS_OF_WRITER = {
    "format": "format('parquet')",
    "outputMode": "outputMode('append')",
    "partitionBy": "partitionBy('day')",
    "queryName": "queryName('paid')",
    "trigger": "trigger(processingTime='10 seconds')",
    "processingTime": "trigger(processingTime='10 seconds')",
    "availableNow": "trigger(availableNow=True)",
}
_CALLS_OF_JOIN = {
    "where": "where('a.k = b.k')",
    "select": "select('a.k', 'b.v')",
    "within": "within('10 minutes')",
    "window": "within('10 minutes'), or stream(name, df, window='10 minutes')",
    "eventTime": "stream(name, df, eventTime='ts')",
    "delay": "stream(name, df, eventTime='ts', delay='5 seconds')",
    "watermark": "stream(name, df, eventTime='ts', delay='5 seconds')",
}


def require_option_of_join(name: str) -> None:
    """OptionError for an option that belongs elsewhere."""
    if (spelled := _found(name, _OF_WRITER)) is not None:
        raise _misplaced(f"{spelled} is an option of the writer", f"join.writeStream.option('{spelled}', ...)")
    _require_no_call(name)


def require_options_of_writer(given: Iterable[str], of_join: Iterable[str], *, are_all_known: bool) -> None:
    """OptionError for a given option that belongs elsewhere; `of_join` are the options of the join."""
    for name in given:
        near = difflib.get_close_matches(name.lower(), [CHECKPOINT.lower()], n=1, cutoff=0.8)
        if near and name.lower() != near[0]:
            raise OptionError(
                f"unknown option '{name}'", hint=f"did you mean '{CHECKPOINT}'?", error_class="UNKNOWN_OPTION"
            )
        if not are_all_known:
            continue
        if (spelled := _found(name, of_join)) is not None:
            raise _misplaced(
                f"{spelled} is an option of the join", f"join.option('{spelled}', ...), before writeStream"
            )
        _require_no_call(name)


def _require_no_call(name: str) -> None:
    for calls, before in ((_CALLS_OF_WRITER, "join.writeStream."), (_CALLS_OF_JOIN, "join.")):
        if (spelled := _found(name, calls)) is not None:
            raise _misplaced(f"{spelled} is no option, but a call", f"{before}{calls[spelled]}")
    if (spelled := _found(name, _OF_SOURCES)) is not None:
        raise _misplaced(f"{spelled} is an option of a source", f"spark.readStream.option('{spelled}', ...)")


def _found(name: str, known: Iterable[str]) -> str | None:
    return next((spelled for spelled in known if spelled.lower() == name.lower()), None)


def _misplaced(message: str, instead: str) -> OptionError:
    return OptionError(message, hint=f"write {instead}", error_class="MISPLACED_OPTION")
