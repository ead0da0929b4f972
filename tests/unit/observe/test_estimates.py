"""Estimated costs: figures that can be checked by hand, and the same totals for every shape of a join."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.cli.hints import assumptions
from watersmeet.errors import OptionError
from watersmeet.observe.estimates import estimate
from watersmeet.observe.estimates_text import (
    IN_CODE,
    ON_THE_COMMAND_LINE,
    estimates_text,
    join_graph_text,
    rates_wanted,
)
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("j", pa.int64()),
        ("v", pa.float64()),
        ("name", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)


def query_of(streams: str, where: list[str], *, within: str | None = "10 seconds", delay_us: int = 0) -> JoinQuery:
    given = [Stream(name, SCHEMA, "ts", delay_us) for name in streams]
    return build_query(given, where=where, within=within, windows={}, select=[f"{streams[0]}.v"])


def plan_of(query: JoinQuery, tree: str) -> JoinPlan:
    return plan_join(query, (parse_tree(tree, [stream.name for stream in query.streams]),), partitions=8)


def test_two_streams_by_hand():
    query = query_of("ab", ["a.k = b.k", "a.v < b.v"], delay_us=5_000_000)
    given = Assumptions({"a": 100, "b": 20}, keys={0: 0.01}, residuals={0: 0.5})
    found = estimate(query, plan_of(query, "(a b)"), given)
    # a holds its rows for 10 + 5 seconds, and an eighth of its window until their time bucket ends; each of its 100
    # rows a second meets 20 x 10 rows of b, and the other way round
    assert [(store.label, store.rows) for store in found.stores] == [("a", 1625), ("b", 325)]
    assert found.results_per_second == pytest.approx((100 * 200 + 20 * 1000) * 0.01 * 0.5)
    assert [(node.label, node.results_per_second) for node in found.nodes] == [("(a b)", found.results_per_second)]
    assert found.state_bytes == 1625 * 24 + 325 * 24  # key, event time, v


def test_every_shape_finds_the_same_results():
    query = query_of("abc", ["a.k = b.k AND b.k = c.k"])
    given = Assumptions({"a": 10, "b": 20, "c": 30}, keys={0: 0.1})
    expected = 0.1**2 * (10 * 200 * 300 + 20 * 100 * 300 + 30 * 100 * 200)
    for tree in ("(a b c)", "((a b) c)", "(a (b c))"):
        found = estimate(query, plan_of(query, tree), given)
        assert found.results_per_second == pytest.approx(expected)
        assert found.nodes[-1].results_per_second == pytest.approx(expected)
    tree = estimate(query, plan_of(query, "((a b) c)"), given)
    inner = 0.1 * (10 * 200 + 20 * 100)
    kept = {store.label: store.rows for store in tree.stores}["(a b)"]
    assert inner * 5 < kept < inner * 11.25  # many end before their time bucket does
    # a binary tree keeps what one node does not have to
    assert tree.state_bytes > estimate(query, plan_of(query, "(a b c)"), given).state_bytes


def test_estimates_are_those_of_counting():
    """Uniform rows of 1000 seconds, with windows that differ, every combination looked at; the mean of a few draws."""
    rates, windows, distinct = {"a": 0.2, "b": 0.3, "c": 0.25}, {"a": 20, "b": 35, "c": 50}, 4
    counted = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        times = {name: rng.uniform(0, 1000, round(rate * 1000)) for name, rate in rates.items()}
        a, b, c = np.ix_(*times.values())
        ka, kb, kc = np.ix_(*(rng.integers(0, distinct, len(times[name])) for name in rates))
        latest = np.maximum(np.maximum(a, b), c)
        near = (latest - a < windows["a"]) & (latest - b < windows["b"]) & (latest - c < windows["c"])
        counted.append(np.count_nonzero(near & (ka == kb) & (kb == kc)))
    query = build_query(
        [Stream(name, SCHEMA, "ts") for name in rates],
        where=["a.k = b.k AND b.k = c.k"],
        within=None,
        windows={name: f"{window} seconds" for name, window in windows.items()},
        select=["a.v"],
    )
    found = estimate(query, plan_of(query, "(a b c)"), Assumptions(rates, keys={0: 1 / distinct}))
    assert found.results_per_second * 1000 == pytest.approx(np.mean(counted), rel=0.05)


def test_hops_find_what_the_tree_finds():
    query = query_of("abc", ["a.k = b.k AND b.j = c.j"])
    given = Assumptions({"a": 10, "b": 20, "c": 30}, keys={0: 0.1, 1: 0.05})
    hops, tree = (estimate(query, plan_of(query, text), given) for text in ("(a b c)", "((a b) c)"))
    assert len({node.stage for node in hops.nodes}) == 3
    assert sum(node.results_per_second for node in hops.nodes) == pytest.approx(tree.results_per_second)
    # b is indexed under two keys
    assert [store.label for store in hops.stores].count("b") == 2


def test_filters_and_streams_without_a_window():
    query = query_of("ab", ["a.k = b.k", "a.v > 3"], within=None)
    given = Assumptions({"a": 10, "b": 20}, filters={0: 0.5}, running_us=100_000_000)
    found = estimate(query, plan_of(query, "(a b)"), given)
    assert [(store.label, store.rows) for store in found.stores] == [("a", 500), ("b", 2000)]


def test_a_window_is_counted_in_full_however_long_it_is():
    """A day and an eighth of it, at 100 rows a second."""
    query = query_of("ab", ["a.k = b.k"], within="24 hours")
    found = estimate(query, plan_of(query, "(a b)"), Assumptions({"a": 100, "b": 100}))
    day = 24 * 3600
    assert [store.rows for store in found.stores] == [
        pytest.approx(100 * (day * 9 / 8 + query.streams[0].delay_us / 1e6))
    ] * 2


def test_where_nothing_is_said_of_a_key_a_row_finds_one_of_the_largest_stream():
    """However fast the streams are and however long their windows."""
    for rate, within in ((1, "10 seconds"), (1000, "10 minutes"), (1000, "24 hours")):
        query = query_of("abc", ["a.k = b.k AND b.k = c.k"], within=within)
        found = estimate(query, plan_of(query, "(a b c)"), Assumptions({"a": rate, "b": rate, "c": rate}))
        assert found.results_per_second == pytest.approx(3 * rate)
    uneven = query_of("ab", ["a.k = b.k"])
    found = estimate(uneven, plan_of(uneven, "(a b)"), Assumptions({"a": 1000, "b": 10}))
    assert found.results_per_second == pytest.approx(2 * 10)


def test_streams_without_a_window_hold_what_came_while_all_windows_filled():
    query = build_query(
        [Stream(name, SCHEMA, "ts") for name in "ab"],
        where=["a.k = b.k"],
        within=None,
        windows={"a": "24 hours"},
        select=["a.v"],
    )
    given = Assumptions({"a": 100, "b": 10}, running_us=60_000_000)
    found = estimate(query, plan_of(query, "(a b)"), given)
    assert [(store.label, store.rows) for store in found.stores] == [("a", 100 * 27 * 3600), ("b", 10 * 24 * 3600)]
    assert "streams without a window: what they hold after 1 day (--after)" in estimates_text(
        query, plan_of(query, "(a b)"), given, 2
    )


def test_results_of_streams_without_a_window_are_all_that_were_found():
    """Over 100 seconds, every pair of the 1,000 rows of a and the 2,000 of b that the key lets pass, once."""
    query = query_of("abc", ["a.k = b.k AND b.k = c.k"], within=None)
    given = Assumptions({"a": 10, "b": 20, "c": 1}, keys={0: 0.1}, running_us=100_000_000)
    found = estimate(query, plan_of(query, "((a b) c)"), given)
    assert {store.label: store.rows for store in found.stores}["(a b)"] == pytest.approx(1000 * 2000 * 0.1)


def test_bytes_of_a_row():
    query = query_of("ab", ["a.k = b.k", "a.v < b.v", "a.name <> b.name"])
    found = estimate(query, plan_of(query, "(a b)"), Assumptions({"a": 10, "b": 20}))
    assert [store.row_bytes for store in found.stores] == [8 + 8 + 8 + 20] * 2  # key, event time, v, name


def test_text_names_what_is_assumed():
    query = query_of("ab", ["a.k = b.k", "a.v < b.v", "b.v > 1"])
    text = estimates_text(query, plan_of(query, "(a b)"), Assumptions({"a": 100, "b": 20}, residuals={0: 0.25}), 2)
    assert "assumed: key 0 lets pass 0.001 of the pairs (--selectivity 'key 0=...')" in text  # a finds one of 1,000
    assert "known: residual 0 lets pass 0.25 of what it tests\n" in text
    assert "assumed: filter 0 lets pass 1 of the rows (b: `v` > 1) (--selectivity\n    'filter 0=...')" in text
    assert "known: steady a 100 rows/s, b 20 rows/s\nassumed: a micro-batch a second\n" in text
    assert "nothing was run" in text


def test_text_asks_for_rates():
    query = query_of("ab", ["a.k = b.k"])
    text = estimates_text(query, plan_of(query, "(a b)"), Assumptions({"a": 100}), 2)
    assert text.splitlines()[1:] == ["no figures without arrival rates in rows a second: give --rate b=1000"]


def test_hints_for_rates_fit_80_columns():
    assert rates_wanted(["orders", "payments", "parcels"], IN_CODE).splitlines() == [
        "no figures without arrival rates in rows a second: give",
        "    hint('orders', rowsPerSecond=1000)",
        "    hint('payments', rowsPerSecond=1000)",
        "    hint('parcels', rowsPerSecond=1000)",
    ]
    assert rates_wanted(["orders", "payments"], ON_THE_COMMAND_LINE).splitlines() == [
        "no figures without arrival rates in rows a second:",
        "    give --rate orders=1000 --rate payments=1000",
    ]


def test_join_graph():
    query = query_of("abc", ["a.k = b.k AND b.j = c.j", "a.v < c.v", "a.v + b.v > c.v"])
    assert join_graph_text(query).splitlines() == [
        "== Join graph ==",
        "a ── b: a.k = b.k (key 1)",
        "a ── c: a.v < c.v (residual 0)",
        "b ── c: b.j = c.j (key 0)",
        "a, b, c: a.v + b.v > c.v (residual 1)",
    ]


def test_hints_find_their_predicates():
    query = query_of("ab", ["a.k = b.k", "a.v < b.v", "b.v > 1"])
    texts = [("B.k=A.k", 0.1), ("a.v < b.v", 0.2), ("b.v > 1", 0.3)]
    found = assumptions(query, {"a": "s", "b": "s"}, [(None, 5.0), ("b", 7.0)], texts, "2 hours")
    assert found == Assumptions({"a": 5, "b": 7}, {0: 0.3}, {0: 0.1}, {0: 0.2}, running_us=7_200_000_000)
    assert assumptions(query, {"a": "s", "b": "s"}, [("s", 5.0)], [("residual 0", 0.2)], None) == Assumptions(
        {"a": 5, "b": 5}, residuals={0: 0.2}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.v = b.v", "the query has no predicate 'a.v = b.v'.* key 0, residual 0"),
        ("key 1", "the query has no predicate 'key 1'"),
        ("a.x = b.k", "unknown column 'x' in stream 'a'"),
        ("like this", "the query has no predicate"),
    ],
)
def test_hints_that_fit_nothing(text, message):
    query = query_of("ab", ["a.k = b.k", "a.v < b.v"])
    with pytest.raises(OptionError, match=message):
        assumptions(query, {"a": "a", "b": "b"}, [], [(text, 0.5)], None)
