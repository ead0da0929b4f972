"""Two plans side by side."""

from tests.unit.adaptation.plans import chain
from watersmeet.observe.diff_text import diff_text


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


def test_a_plan_differs_from_itself_in_nothing():
    plan = chain()
    assert set(words(diff_text(plan, plan)).values()) == {"shared"}
    assert "why" in diff_text(plan, plan, "why")
