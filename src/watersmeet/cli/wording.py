"""Errors in the words of the command line: hints that name methods of the Python API name options instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from watersmeet.errors import QueryError, WatersmeetError
from watersmeet.query.cql import SqlQuery

ADVICE = {
    "MISSING_EVENT_TIME": "name its timestamp column: --stream 'NAME=...?eventTime=COLUMN&delay=5 seconds'",
    "INVALID_EVENT_TIME": "name another column with ?eventTime=COLUMN, or read it as a timestamp with "
    "?schema=ts timestamp, ...",
    "WRONG_STREAM_COUNT": "name 2 to 8 streams in FROM, and give each with --stream NAME=SPEC",
    "UNUSED_STREAM": "name it in FROM, or leave its --stream out",
    "UNSUPPORTED_OUTPUT_MODE": "without --mode the fitting one is taken; running aggregates go to --sink console; "
    "files take what stays as it is: group by window(result_time, '10 minutes') as well",
    "DIFFERENT_JOIN": "slots, budgets and delays may change, the join may not: name another --checkpoint, and another "
    "--sink if there are files of the old one",
    "MISSING_CHECKPOINT_LOCATION": "name a folder with --checkpoint PATH",
}
"""By error class: the hint on the command line, if the API's hint does not help. It must fit all errors of the
class."""


OPTIONS = {
    "option of the join": "--option {}=VALUE",
    "option of the writer": "--sink 'FORMAT:PATH?{}=VALUE'",
    "option of a source": "--stream 'NAME=FORMAT:PATH?{}=VALUE'",
    "checkpointLocation": "--checkpoint PATH",
    "path": "--sink FORMAT:PATH",
    "outputMode": "--mode MODE",
    "trigger": "--trigger '10 seconds'",
    "processingTime": "--trigger '10 seconds'",
    "availableNow": "--trigger available-now",
    "format": "--sink FORMAT:PATH",
    "partitionBy": "--sink 'FORMAT:PATH?partitionBy=COLUMN'",
    "eventTime": "--stream 'NAME=FORMAT:PATH?eventTime=COLUMN'",
    "delay": "--stream 'NAME=FORMAT:PATH?delay=5 seconds'",
    "watermark": "--stream 'NAME=FORMAT:PATH?delay=5 seconds'",
}
"""The right form on the command line of an option given in the wrong place: by option name, else by its owner."""


def cli_text(error: WatersmeetError) -> str:
    """The text of an error, with a hint that can be followed on the command line."""
    if error.error_class in ADVICE and "--" not in error.hint:
        error.hint = ADVICE[error.error_class]
    if error.error_class == "MISPLACED_OPTION":
        name, _, belongs = error.message.partition(" is ")
        way = OPTIONS.get(name) or OPTIONS.get(belongs.removeprefix("an "))
        error.hint = f"write {way.format(name)}" if way else "say it in the query"
    return f"watersmeet: {error}"


def with_missing_stream(error: QueryError, asked: SqlQuery, given: Sequence[str]) -> QueryError:
    """The error of an unknown stream: misspelled if another stream is given and not used, otherwise missing."""
    found = re.match(r"unknown stream '(.*?)'", error.message)
    if error.error_class != "UNKNOWN_STREAM" or found is None:
        return error
    used = {item.source.lower() for item in asked.streams}
    unused = [name for name in given if name.lower() not in used]
    if near := difflib.get_close_matches(found[1].lower(), [name.lower() for name in unused], n=1):
        error.hint = f"did you mean '{next(name for name in unused if name.lower() == near[0])}'?"
    else:
        have = f"; given: {', '.join(given)}" if given else ""
        error.hint = f"give it with --stream {found[1]}=FORMAT:LOCATION{have}"
    return error
