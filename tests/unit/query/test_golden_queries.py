"""SQL text and builder ask the same; what is refused is refused in words. Cases in tests/golden/queries and errors."""

import random
from pathlib import Path

import pytest
import sqlglot
from sqlglot.errors import SqlglotError

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


def words_of(text):
    try:
        return [text[token.start : token.end + 1] for token in sqlglot.tokenize(text, dialect="spark")]
    except SqlglotError:
        return text.split()


@pytest.mark.parametrize("seed", range(4))
def test_mutilated_queries_are_refused_in_words(seed):
    texts = [words_of(case.values[2]["sql"]) for case in cases("queries") + cases("errors") if "sql" in case.values[2]]
    pool = [word for words in texts for word in words]
    rng = random.Random(seed)
    placeless = []
    for _ in range(300):
        words = list(rng.choice(texts))
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(words) + 1)
            words[place : place + rng.randint(0, 1)] = rng.sample(pool, rng.randint(0, 1))
        try:
            from_sql(" ".join(words))
        except WatersmeetError as error:
            placeless += [] if "^" in str(error) else [" ".join(words)]
    assert not placeless


def test_a_comment_behind_a_condition_hides_nothing():
    query = from_builder(
        "stream: bank1\nstream: bank2\nwhere: bank1.lot = bank2.lot -- the lot\nagg: count(*) AS n -- how many\n"
        "having: n > 1 -- not one\nhaving: n < 9 -- not many"
    )
    assert query.aggregation.having == "((`_a0`) > 1) AND ((`_a0`) < 9)"
