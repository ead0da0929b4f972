"""What a user knows of the data, for estimates: arrival rates by stream, and the share that a predicate lets pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.errors import OptionError, QueryError, WatersmeetError
from watersmeet.observe.estimates import HOUR_US, Assumptions
from watersmeet.query.logical import JoinQuery
from watersmeet.query.sqltext import Condition, parse_condition
from watersmeet.units import parse_duration_us

KINDS = ("key", "residual", "filter", "by Spark")


def read_rate(text: str) -> tuple[str | None, float]:
    """`stream=1000`, or `1000` for all streams."""
    name, _, number = text.rpartition("=")
    try:
        rate = float(number.replace(",", "").replace("_", ""))
    except ValueError:
        rate = -1.0
    if not 0 < rate < float("inf"):
        raise OptionError(f"'{text}' is no arrival rate", hint="write --rate stream=1000, in rows a second")
    return name.strip() or None, rate


def read_selectivity(text: str) -> tuple[str, float]:
    """`a.k = b.k=0.001`: a predicate, and the share of pairs that it lets pass."""
    predicate, _, number = text.rpartition("=")
    try:
        share = float(number)
    except ValueError:
        share = -1.0
    if not predicate.strip() or not 0 <= share <= 1:
        raise OptionError(
            f"'{text}' is no selectivity", hint="write --selectivity 'a.k = b.k=0.001', with a share from 0 to 1"
        )
    return predicate.strip(), share


def assumptions(
    query: JoinQuery,
    sources: Mapping[str, str],
    rates: Sequence[tuple[str | None, float]],
    selectivities: Sequence[tuple[str, float]],
    after: str | None,
) -> Assumptions:
    """The hints, tied to the query; `sources` are the names under which its streams were given."""
    found: dict[str, dict[int, float]] = {kind: {} for kind in KINDS}
    for text, share in selectivities:
        kind, number = _meant(query, text)
        found[kind][number] = share
    return Assumptions(
        rates=_rates(sources, rates),
        keys=found["key"],
        residuals=found["residual"],
        filters=found["filter"],
        by_spark=found["by Spark"],
        running_us=HOUR_US if after is None else parse_duration_us(after),
    )


def _rates(sources: Mapping[str, str], rates: Sequence[tuple[str | None, float]]) -> dict[str, float]:
    """By name in the query; a rate that names no stream is for all that have none of their own."""
    found: dict[str, float] = {}
    for name, rate in sorted(rates, key=lambda item: item[0] is not None):
        named = [
            stream
            for stream, source in sources.items()
            if name is None or name.lower() in (stream.lower(), source.lower())
        ]
        if not named:
            raise OptionError(f"--rate names no stream '{name}'", hint=f"there are {', '.join(sources)}")
        found |= dict.fromkeys(named, rate)
    return found


def _meant(query: JoinQuery, text: str) -> tuple[str, int]:
    """The predicate of the query that a text names: as `key 0` and so on, or as it was written."""
    counts = [len(query.classes), len(query.residuals), len(query.filters), len(query.spark_residuals)]
    for kind, count in zip(KINDS, counts, strict=True):
        for number in range(count):
            if " ".join(text.lower().split()) == f"{kind.lower()} {number}":
                return kind, number
    try:
        condition = parse_condition(text, query.streams)
    except WatersmeetError as error:
        if isinstance(error, QueryError) and error.error_class in ("UNKNOWN_COLUMN", "UNKNOWN_STREAM"):
            raise OptionError(f"--selectivity '{text}': {error.message}", hint=error.hint) from None
        raise _unknown(query, text) from None
    found = _found(query, condition)
    if found is None:
        raise _unknown(query, text)
    return found


def _found(query: JoinQuery, condition: Condition) -> tuple[str, int] | None:
    ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
    for number, key_class in enumerate(query.classes):
        for e in condition.equalities:
            if all(key_class.columns[ordinal[side.stream]] == side.name for side in (e.left, e.right)):
                return "key", number
    for number, residual in enumerate(query.residuals):
        if residual in condition.residuals:
            return "residual", number
    for number, item in enumerate(query.filters):
        if item in condition.filters:
            return "filter", number
    return None


def _unknown(query: JoinQuery, text: str) -> OptionError:
    counts = [len(query.classes), len(query.residuals), len(query.filters), len(query.spark_residuals)]
    names = [f"{kind} {i}" for kind, count in zip(KINDS, counts, strict=True) for i in range(count)]
    return OptionError(
        f"--selectivity: the query has no predicate '{text}'",
        hint=f"write one as the query does, or by its name in the output of explain: {', '.join(names) or 'none'}",
    )
