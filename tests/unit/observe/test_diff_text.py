"""Two plans side by side."""

from itertools import pairwise

from tests.unit.adaptation.plans import SCHEMA, chain
from watersmeet.observe.diff_text import diff_text
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query


def words(text: str) -> dict[str, str]:
    """What becomes of each store."""
    return {line.split("  ")[0]: line.split()[-1] for line in text.splitlines()[2:]}


def test_stores_are_shared_built_and_dropped():
    found = words(diff_text(chain("((a b) c)", fused=True), chain("(a (b c))", fused=True)))
    assert {what for store, what in found.items() if len(store.split(" by ")[0]) == 1} == {"shared"}
    assert [what for store, what in found.items() if store.startswith("a b by")] == ["dropped"]
    assert [what for store, what in found.items() if store.startswith("b c by")] == ["built"]


def test_the_same_rows_in_other_columns_are_reordered():
    found = words(diff_text(chain("(((a b) c) d)"), chain("((a (b c)) d)")))
    assert "reordered" in found.values()


def test_every_line_fits_80_columns():
    names = ["a_stream_with_a_long_name", "another_with_a_long_name", "one_more_with_a_long_name"]
    query = build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in names],
        where=[f"{left}.x = {right}.x" for left, right in pairwise(names)],
        within="1 second",
        windows={},
        select=[f"{name}.x" for name in names],
    )
    first, *rest = names
    plans = [
        plan_join(query, (parse_tree(text, names),), 8)
        for text in (f"(({names[0]} {names[1]}) {names[2]})", f"({first} ({' '.join(rest)}))")
    ]
    found = diff_text(
        *plans, "the best plan saves a third of the CPU time and fits into the memory of every slot"
    ).splitlines()
    assert max(map(len, found)) <= 80
    assert found[0].startswith("== Difference: ((a_stream")


def test_a_plan_differs_from_itself_in_nothing():
    plan = chain()
    assert set(words(diff_text(plan, plan)).values()) == {"shared"}
    assert "why" in diff_text(plan, plan, "why")
