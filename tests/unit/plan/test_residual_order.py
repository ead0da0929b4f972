"""Cheap predicates come first, unless one that may raise would then see rows that an earlier one keeps from it."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.predicates import FUNCTIONS
from watersmeet.plan.layout import field_type
from watersmeet.plan.nodes import plan_node
from watersmeet.plan.residual_order import Cost, cannot_raise, cost_of, evaluation_order
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(6, 2)),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
KINDS = {
    "a.n < b.n": (Cost.NUMBERS, True),
    "a.n < b.f AND a.n IS NULL OR b.n IN (1, a.n)": (Cost.NUMBERS, True),
    "a.ts < b.ts": (Cost.NUMBERS, True),
    "a.f * 2 - b.f > abs(-b.f)": (Cost.NUMBERS, True),
    "a.n + b.n > 1": (Cost.NUMBERS, False),
    "a.ts - b.ts < INTERVAL 2 SECONDS": (Cost.NUMBERS, False),
    "10 / b.f > a.f": (Cost.NUMBERS, False),
    "a.f % b.f > 0": (Cost.NUMBERS, False),
    "abs(a.n) < b.n": (Cost.NUMBERS, False),
    "a.s < b.s": (Cost.STRINGS, True),
    "NOT (a.s = 'x' OR b.s IS NULL)": (Cost.STRINGS, True),
    "a.d < b.n": (Cost.STRINGS, True),
    "near(a.n, b.n)": (Cost.ARRAY_CALL, False),
    "a.n < b.n OR alike(a.n, b.n)": (Cost.ROW_CALL, False),
}


def asked(where):
    return build_query(
        [Stream(name, SCHEMA) for name in "ab"],
        where=["a.k = b.k", *where],
        within=None,
        windows={},
        select=["a.n"],
        functions=FUNCTIONS,
    )


def order(*where):
    """The texts in the order in which a node applies them; statistics know them by their numbers."""
    query = asked([f"({text})" for text in where])
    node = plan_node(
        query, parse_tree("(a b)", "ab"), (0,), children=[None] * 2, stage_inputs=[None] * 2, first_store=0
    )
    assert [residual.predicate for residual in node.residuals] == [query.residuals[r.number] for r in node.residuals]
    return [where[residual.number] for residual in node.residuals]


@pytest.mark.parametrize("text", KINDS)
def test_every_kind_of_expression_is_judged(text):
    query = asked([f"({text})"])
    (predicate,) = query.residuals
    assert (
        cost_of(predicate, lambda c: field_type(query, c)),
        cannot_raise(predicate, lambda c: field_type(query, c)),
    ) == KINDS[text]


def test_cheap_before_dear():
    assert order("alike(a.n, b.n)", "a.s < b.s", "a.n < b.n") == ["a.n < b.n", "a.s < b.s", "alike(a.n, b.n)"]
    assert order("a.n < b.n", "a.f < b.f") == ["a.n < b.n", "a.f < b.f"]


def test_what_may_raise_stays_behind_all_that_stood_before_it():
    guarded = ["b.n <> a.n", "10 / (b.n - a.n) > 1"]
    assert order(*guarded) == guarded
    assert order("a.s <> b.s", *guarded) == ["b.n <> a.n", "a.s <> b.s", "10 / (b.n - a.n) > 1"]
    # A guard that may itself raise, and is dearer than what it guards.
    assert order("NOT alike(a.n, b.n)", "10 / (b.n - a.n) > 1", "a.n < b.n") == [
        "a.n < b.n",
        "NOT alike(a.n, b.n)",
        "10 / (b.n - a.n) > 1",
    ]
    # What follows and cannot raise moves; what follows and may raise does not.
    assert order("near(a.n, b.n)", "a.n + b.n > 1", "a.f < b.f") == ["a.f < b.f", "near(a.n, b.n)", "a.n + b.n > 1"]
    # Cheap though it may raise, and nothing before it: it stays before what is dearer.
    assert order("a.n + b.n > 1", "a.s < b.s") == ["a.n + b.n > 1", "a.s < b.s"]


@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=7))
def test_nothing_that_may_raise_overtakes(texts):
    query = asked([])

    def column_type(column):
        return field_type(query, column)

    predicates = [asked([f"({text})"]).residuals[0] for text in texts]
    found = evaluation_order(predicates, column_type)
    assert sorted(found) == list(range(len(texts)))
    for place, i in enumerate(found):
        if not KINDS[texts[i]][1]:
            assert set(range(i)) <= set(found[:place])
    safe = [KINDS[texts[i]][0] for i in found if KINDS[texts[i]][1]]
    assert safe == sorted(safe)
