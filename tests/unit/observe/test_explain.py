"""What explain() prints, as text files in tests/golden/explain; WATERSMEET_GOLDEN=write writes them anew."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.observe.explain import explain_text
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import Join, parse_tree
from watersmeet.query.confidence import with_confidence
from watersmeet.query.logical import JoinQuery, Stream, build_query

FOLDER = Path(__file__).parents[2] / "golden" / "explain"
FIVE = "ABCDE"
CASES = {
    "default": (),
    "mjoin": ("(A B C D E)",),
    "hybrid": ("(((A B C) D) E)",),
    "bjtree": ("((((A B) C) D) E)",),
    "bushy": ("((A B C) (D E))",),
    "shapes_by_slot": ("(((A B C) D) E)", "((((A B) C) D) E)"),
}


def five() -> JoinQuery:
    """A, B and C on their first columns, D on C's second, E on D's second."""
    time = pa.timestamp("us", tz="UTC")
    schema = pa.schema([("first", pa.int64()), ("second", pa.int64()), ("ts", time), ("v", pa.float64())])
    return build_query(
        [Stream(name, schema, "ts", delay_us=5_000_000 if name == "A" else 0) for name in FIVE],
        where=[
            "A.first = B.first AND B.first = C.first",
            "C.second = D.first AND D.second = E.first",
            "A.v < E.v AND B.v > 0",
        ],
        within=None,
        windows={"A": "10 minutes", "B": "90 seconds", "C": "10 minutes", "D": "1 hour"},
        select=["A.v", "B.first", "C.ts AS seen", "E.second"],
    )


def banks(*group_by: str, within: str | None = "10 minutes") -> JoinQuery:
    """The papers' motivating query (R5): three banks, the least price by broker."""
    schema = pa.schema(
        [("currency", pa.string()), ("broker", pa.string()), ("price", pa.float64()), ("ts", pa.timestamp("us"))]
    )
    return build_query(
        [Stream(f"bank{i}", schema, "ts") for i in (1, 2, 3)],
        where=["bank1.currency = bank2.currency AND bank2.currency = bank3.currency"],
        within=within,
        windows={},
        select=["bank1.broker AS broker", "min(bank1.price) AS best", "avg(bank2.price) AS ask", "count(*) AS n"],
        group_by=["bank1.broker", *group_by],
        having=["count(*) > 3"],
    )


AGGREGATES = {
    "running_aggregate": lambda: banks(),
    "aggregate_of_windows": lambda: banks("window(result_time, '1 hour', '5 minutes')"),
    "aggregate_with_intervals": lambda: with_confidence(
        banks(within=None), 0.95, {"bank1": 1000, "bank2": 2000, "bank3": 3000}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_explain(name):
    query = five()
    trees = tuple(parse_tree(text, FIVE) for text in CASES[name]) or (default_tree(query),)
    check(name, query, trees)


@pytest.mark.parametrize("name", AGGREGATES)
def test_explain_aggregates(name):
    query = AGGREGATES[name]()
    check(name, query, (default_tree(query),))


def check(name: str, query: JoinQuery, trees: tuple[Join, ...]) -> None:
    found = explain_text(query, plan_join(query, trees, partitions=64), slots=4) + "\n"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        path.write_text(found)
    assert found == path.read_text()
    assert max(map(len, found.splitlines())) <= 80


def test_no_file_without_a_case():
    assert {path.stem for path in FOLDER.glob("*")} == CASES.keys() | AGGREGATES.keys()
