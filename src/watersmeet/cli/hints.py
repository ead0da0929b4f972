"""Hints from the command line: arrival rates, and the share that a predicate lets pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.errors import OptionError
from watersmeet.optimizer.assumptions import HOUR_US, Assumptions
from watersmeet.optimizer.hints import hinted
from watersmeet.optimizer.join_graph import RATE_MAX
from watersmeet.query.logical import JoinQuery
from watersmeet.units import parse_duration_us


def read_rate(text: str) -> tuple[str | None, float]:
    """`stream=1000`, or `1000` for all streams."""
    name, _, number = text.rpartition("=")
    try:
        rate = float(number.replace(",", "").replace("_", ""))
    except ValueError:
        rate = -1.0
    if not 0 < rate <= RATE_MAX:
        raise OptionError(
            f"'{text}' is no arrival rate", hint=f"write --rate stream=1000, in rows a second, at most {RATE_MAX:g}"
        )
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
    running_us = HOUR_US if after is None else parse_duration_us(after)
    return hinted(query, _rates(sources, rates), selectivities, running_us=running_us, said_with="--selectivity")


def _rates(sources: Mapping[str, str], rates: Sequence[tuple[str | None, float]]) -> dict[str, float]:
    """Rates by stream name in the query. A rate without a stream is for all streams without a rate."""
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
