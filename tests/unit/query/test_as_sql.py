"""Expressions as people would write them."""

import pytest

from tests.unit.query.test_sqltext import residual
from watersmeet.query.as_sql import canonical_as_sql, to_sql
from watersmeet.query.expressions import to_text


@pytest.mark.parametrize(
    "text",
    [
        "a.n < b.n + 1",
        "a.n - (b.n - 1) > 1",
        "a.n - b.n - 1 > -1",
        "(a.n + 1) * b.n >= a.n % 2",
        "- (a.n + b.n) < - a.n",
        "abs(a.price - b.price) <= 2.50",
        "a.n = 1 OR a.n = 2 AND b.n = 3",
        "(a.n = 1 OR a.n = 2) AND (b.n = 3 OR a.flag)",
        "NOT (a.n < b.n AND a.flag) OR b.flag",
        "(a.n < b.n) = a.flag OR b.flag",
        "a.n + b.n IS NOT NULL OR a.name IS NULL",
        "a.name IN ('o\\'clock', 'back\\\\slash', b.name)",
        "a.ts - b.ts < INTERVAL 10 MINUTES",
        "a.ts < b.ts - INTERVAL 1 HOUR 30 MINUTES",
        "a.ts - b.ts > INTERVAL -5 SECONDS",
        "a.d > DATE '2024-01-31' OR b.flag <=> true",
        "a.ts > TIMESTAMP '2024-01-31 12:00:00+00:00' OR b.ntz < TIMESTAMP_NTZ '2024-01-31 12:00:00.500000'",
        "a.`odd name` < b.onlyB",
        "a.n <> b.n OR a.name = NULL",
    ],
)
def test_what_is_said_is_what_was_asked(text):
    """Read back, it is the same expression."""
    asked = residual(text)
    assert to_text(residual(to_sql(asked))) == to_text(asked)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("((A.N) < (b.`n` + (1)))", "a.n < b.n + 1"),
        ("a.n < b.n * 2 + 1", "a.n < b.n * 2 + 1"),
        ("a.ts BETWEEN b.ts - INTERVAL '600 seconds' AND b.ts", "a.ts >= b.ts - INTERVAL 10 MINUTES AND a.ts <= b.ts"),
        ('a.name < b.name OR a.name = "it\'s"', "a.name < b.name OR a.name = 'it\\'s'"),
        ("a.`odd name` < b.n OR a.n IN (1, 2)", "a.`odd name` < b.n OR a.n IN (1, 2)"),
    ],
)
def test_no_more_parentheses_and_quotes_than_needed(text, said):
    assert to_sql(residual(text)) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.n < b.n + 1", "a.n < (b.n + 1)"),
        ("abs(a.price - b.price) <= 2.50", "abs((a.price - b.price)) <= 2.50"),
        ("a.name IN ('; :x `y`', b.name)", "a.name IN ('; :x `y`', b.name)"),
        ("a.ts - b.ts < INTERVAL 10 MINUTES", "(a.ts - b.ts) < INTERVAL 10 MINUTES"),
        ("a.d > DATE '2024-01-31' OR b.flag <=> true", "(a.d > DATE '2024-01-31') OR (b.flag <=> true)"),
        (
            "a.ntz < TIMESTAMP_NTZ '2024-01-31 12:00:00.500000' OR b.flag",
            "(a.ntz < TIMESTAMP_NTZ '2024-01-31 12:00:00.500000') OR b.flag",
        ),
        ("a.`odd name` < b.onlyB", "a.`odd name` < b.onlyB"),
    ],
)
def test_canonical_text_is_said_in_sql(text, said):
    canonical = to_text(residual(text))
    assert canonical_as_sql(f"{canonical}; {canonical}") == f"{said}; {said}"
