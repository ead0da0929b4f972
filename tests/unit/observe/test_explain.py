"""What explain() prints, as text files in tests/golden/explain; WATERSMEET_GOLDEN=write writes them anew."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.observe.explain import explain_text
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
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


@pytest.mark.parametrize("name", CASES)
def test_explain(name):
    query = five()
    trees = tuple(parse_tree(text, FIVE) for text in CASES[name]) or (default_tree(query),)
    found = explain_text(query, plan_join(query, trees, partitions=64), slots=4) + "\n"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        path.write_text(found)
    assert found == path.read_text()


def test_no_file_without_a_case():
    assert {path.stem for path in FOLDER.glob("*")} == CASES.keys()
