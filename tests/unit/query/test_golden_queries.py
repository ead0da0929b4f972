"""SQL text and builder ask the same; what is refused is refused in words. Cases in tests/golden/queries and errors."""

from pathlib import Path

import pytest

from tests.golden_queries import checked, from_builder, from_sql, logical_text, read_cases
from watersmeet.errors import WatersmeetError

GOLDEN = Path(__file__).parents[2] / "golden"


def cases(folder):
    return [
        pytest.param(path, title, case, id=f"{path.stem}: {title}")
        for path in sorted((GOLDEN / folder).glob("*.txt"))
        for title, case in read_cases(path).items()
    ]


@pytest.mark.parametrize(("path", "title", "case"), cases("queries"))
def test_sql_and_builder_ask_the_same(path, title, case):
    query = from_sql(case["sql"])
    assert query == from_builder(case["builder"])
    found = logical_text(query)
    assert found == checked(path, title, "logical", found)


@pytest.mark.parametrize(("path", "title", "case"), cases("errors"))
def test_what_is_refused_is_told_where_and_why(path, title, case):
    with pytest.raises(WatersmeetError) as caught:
        from_sql(case["sql"]) if "sql" in case else from_builder(case["builder"])
    found = str(caught.value)
    assert found == checked(path, title, "message", found)
