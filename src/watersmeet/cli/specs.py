"""Specs of streams and sinks on the command line: `format:location?option=value&option=value`.

    bank1=parquet:data/bank1?eventTime=ts&delay=5 seconds&maxFilesPerTrigger=1
    ticks=rate:rowsPerSecond=10
    lines=socket:localhost:9999
    orders=kafka:host:9092/topic?schema=id bigint, ts timestamp&eventTime=ts
    s1=schema:k bigint, ts timestamp?eventTime=ts           (to explain only)

`eventTime`, `delay` and `schema` are ours, `partitionBy` is the writer's, all others are Spark's and go to the reader
or writer of the format. In values, %26 is an ampersand. Nothing here touches a file or Spark, so a valid spec may name
files that do not exist.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from watersmeet.errors import OptionError, QueryError
from watersmeet.query.logical import check_stream_name
from watersmeet.units import parse_duration_us

FILES = ("parquet", "json", "csv", "orc", "text")
LIVE = ("rate", "socket")
"""Endless sources, for which available-now makes no sense."""
SOURCES = (*FILES, *LIVE, "kafka", "schema")
SINKS = ("console", *FILES, "kafka", "noop")
OWN_OPTIONS = ("eventTime", "delay", "schema")
COMMON_OPTIONS = (*OWN_OPTIONS, "maxFilesPerTrigger", "header", "rowsPerSecond", "inferSchema", "pathGlobFilter")
"""Common options. A name that resembles one of them is refused with a suggestion."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream to read. If `format` is empty, it follows from the files."""

    name: str
    format: str
    location: str
    event_time: str | None = None
    delay: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        return self.format in LIVE


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Where the results go."""

    format: str
    location: str = ""
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def default_checkpoint(self) -> str | None:
        """The folder beside the output, for files on this machine."""
        if self.format in FILES and not _URL.match(self.location):
            return f"{self.location.rstrip('/')}.checkpoint"
        return None

    @property
    def forgets(self) -> bool:
        """Whether results are lost when the command ends, so that a temporary checkpoint is enough."""
        return self.format in ("console", "noop")


def read_stream_spec(text: str) -> StreamSpec:
    """`name=format:location?options`; OptionError says what is wrong with it."""
    name, equals, rest = text.partition("=")
    name = name.strip()
    if not equals or not rest.strip():
        raise _bad(f"'{text}' is no stream", "write name=format:location, such as bank1=parquet:data/bank1")
    try:
        check_stream_name(name)
    except QueryError as error:
        raise _bad(error.message, error.hint) from None
    format_, location, given = _taken_apart(rest.strip(), SOURCES, bare=(*LIVE,))
    options = _options(given, what=f"stream {name}")
    if format_ == "rate":
        options = {**_options(location, what=f"stream {name}"), **options}
        location = ""
    if format_ == "schema" and "schema" in options:
        raise _bad(f"stream {name} has two schemas", "leave the option schema out")
    if not location and format_ != "rate":
        example = {"socket": "localhost:9999", "kafka": "localhost:9092/topic", "schema": "k bigint, ts timestamp"}
        raise _bad(
            f"stream {name} does not say where its rows are", f"write {format_}:{example.get(format_, 'data/folder')}"
        )
    spec = StreamSpec(
        name,
        format_,
        location,
        options.pop("eventTime", None),
        options.pop("delay", None),
        options.pop("schema", None),
        options,
    )
    _check_location(spec)
    if spec.delay is not None:
        parse_duration_us(spec.delay, allow_zero=True)
    return spec


def read_sink_spec(text: str) -> SinkSpec:
    """`format:location?options`; OptionError says what is wrong with it."""
    format_, location, given = _taken_apart(text.strip(), SINKS, bare=("console", "noop"))
    if not format_ and location.lower() in SINKS:
        format_, location = location.lower(), ""
    if not format_:
        hint = f"write its format too: parquet:{location}; there are {', '.join(SINKS)}"
        raise _bad(f"unknown sink '{text}'", _near(location, SINKS) or hint)
    options = _options(given, what="the sink")
    by = options.pop(next((name for name in options if name.lower() == "partitionby"), ""), "")
    if format_ in FILES and not location:
        raise _bad(f"sink {format_} does not say where to write", f"write {format_}:folder")
    if format_ == "kafka":
        broker_and_topic("the sink", location)
    if format_ == "console":
        _check_console(options)
    return SinkSpec(format_, location, tuple(column.strip() for column in by.split(",") if column.strip()), options)


def broker_and_topic(what: str, location: str) -> tuple[str, str]:
    """The parts of `host:9092/topic`."""
    brokers, _, topic = location.partition("/")
    if not brokers or not topic:
        raise _bad(f"{what} names no broker and topic in 'kafka:{location}'", "write kafka:host:9092/topic")
    return brokers, topic


def host_and_port(what: str, location: str) -> tuple[str, str]:
    """The parts of `host:9999`."""
    host, _, port = location.rpartition(":")
    if not host or not port.isdigit():
        raise _bad(f"{what} names no host and port in 'socket:{location}'", "write socket:localhost:9999")
    return host, port


def read_pair(text: str, example: str) -> tuple[str, str]:
    """`name=value`, such as an option of the join."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise _bad(f"'{text}' is no name=value", f"write it like {example}")
    return name.strip(), value.strip()


def _taken_apart(text: str, formats: Sequence[str], *, bare: Sequence[str]) -> tuple[str, str, str]:
    """The parts of a spec: format, location and options. Without a format it is only a path."""
    body, _, options = text.partition("?")
    if body.lower() in bare:
        return body.lower(), "", options
    word, colon, location = body.partition(":")
    if colon and word.lower() in formats:
        return word.lower(), location.strip(), options
    if not colon or _URL.match(body) or not _WORD.fullmatch(word):
        return "", body, options
    known = f"there are {', '.join(formats)}; a path with a colon in it is written with its format before it"
    raise _bad(f"unknown format '{word}' in '{text}'", _near(word, formats) or known)


def _options(text: str, *, what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split("&") if text else ():
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or not name:
            raise _bad(f"'{item}' of {what} is no option", "write options as ?name=value&name=value")
        spelled = next((known for known in COMMON_OPTIONS if known.lower() == name.lower()), name)
        if spelled not in COMMON_OPTIONS and (hint := _near(name, COMMON_OPTIONS)):
            raise _bad(f"unknown option '{name}' of {what}", hint)
        if spelled.lower() in (known.lower() for known in found):
            raise _bad(f"option '{name}' of {what} is given twice", "leave one out")
        found[spelled] = unquote(value.strip())
    return found


def _check_location(spec: StreamSpec) -> None:
    if spec.format == "socket":
        host_and_port(f"stream {spec.name}", spec.location)
    if spec.format == "kafka":
        broker_and_topic(f"stream {spec.name}", spec.location)


def _check_console(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        match name.lower():
            case "numrows" if not value.isdigit():
                raise _bad(f"option numRows of the console is '{value}'", "write a whole number, such as numRows=100")
            case "truncate" if value.lower() not in ("true", "false"):
                raise _bad(f"option truncate of the console is '{value}'", "write truncate=true or truncate=false")
            case "numrows" | "truncate":
                pass
            case _:
                raise _bad(f"unknown option '{name}' of the console", "it has numRows and truncate")


def _near(word: str, known: Sequence[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return f"did you mean '{by_lower[near[0]]}'?" if near else ""


def _bad(message: str, hint: str) -> OptionError:
    return OptionError(message, hint=hint)
