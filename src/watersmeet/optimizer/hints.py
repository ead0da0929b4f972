"""Hints of the user, matched to the query: `a.k = b.k` has selectivity 0.001."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.errors import OptionError, QueryError, WatersmeetError
from watersmeet.optimizer.assumptions import HOUR_US, Assumptions
from watersmeet.query.logical import JoinQuery
from watersmeet.query.sqltext import Condition, parse_condition

KINDS = ("key", "residual", "filter", "by Spark")


def hinted(
    query: JoinQuery,
    rates: Mapping[str, float],
    selectivities: Sequence[tuple[str, float]],
    *,
    running_us: int = HOUR_US,
    said_with: str = "hint",
) -> Assumptions:
    """The assumptions from rates by stream and selectivities by predicate text; `said_with` names the option in
    errors."""
    found: dict[str, dict[int, float]] = {kind: {} for kind in KINDS}
    for text, share in selectivities:
        kind, number = _named_predicate(query, text, said_with)
        found[kind][number] = share
    return Assumptions(
        rates=dict(rates),
        keys=found["key"],
        residuals=found["residual"],
        filters=found["filter"],
        by_spark=found["by Spark"],
        running_us=running_us,
    )


def completed(known: Assumptions, learned: Assumptions) -> Assumptions:
    """The known assumptions, completed by the learned ones."""
    return Assumptions(
        rates={**learned.rates, **known.rates},
        filters={**learned.filters, **known.filters},
        keys={**learned.keys, **known.keys},
        residuals={**learned.residuals, **known.residuals},
        by_spark={**learned.by_spark, **known.by_spark},
        running_us=known.running_us,
        batch_s=known.batch_s or learned.batch_s,
        costs={**learned.costs, **known.costs},
    )


def _named_predicate(query: JoinQuery, text: str, said_with: str) -> tuple[str, int]:
    """The predicate of the query that a text names: as `key 0` and so on, or as it was written."""
    for kind, number in _numbered(query):
        if " ".join(text.lower().split()) == f"{kind.lower()} {number}":
            return kind, number
    try:
        condition = parse_condition(text, query.streams)
    except WatersmeetError as error:
        if isinstance(error, QueryError) and error.error_class in ("UNKNOWN_COLUMN", "UNKNOWN_STREAM"):
            raise OptionError(f"{said_with} '{text}': {error.message}", hint=error.hint) from None
        raise _unknown(query, text, said_with) from None
    found = _found(query, condition)
    if found is None:
        raise _unknown(query, text, said_with)
    return found


def _numbered(query: JoinQuery) -> list[tuple[str, int]]:
    counts = [len(query.classes), len(query.residuals), len(query.filters), len(query.spark_residuals)]
    return [(kind, i) for kind, count in zip(KINDS, counts, strict=True) for i in range(count)]


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


def _unknown(query: JoinQuery, text: str, said_with: str) -> OptionError:
    names = [f"{kind} {i}" for kind, i in _numbered(query)]
    return OptionError(
        f"{said_with}: the query has no predicate '{text}'",
        hint=f"write one as the query does, or by its name in the output of explain: {', '.join(names) or 'none'}",
    )
