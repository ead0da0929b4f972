"""Rows that follow from rates, windows and selectivities."""

import pyarrow as pa
import pytest

from watersmeet.errors import OptionError
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, as_streams, bits, pairwise_graph
from watersmeet.query.logical import Stream, build_query

A, B, C = 1, 2, 4


def graph(*, classes=(), others=(), windows=(10.0, 10.0, 10.0)):
    streams = tuple(StreamFigures(n, r, w) for n, r, w in zip("abc", (1.0, 2.0, 3.0), windows, strict=True))
    return JoinGraph(streams, classes, others)


def test_sets_of_streams_are_bits():
    assert as_streams([0, 2]) == 0b101
    assert list(bits(0b101)) == [0, 2]


def test_each_further_stream_of_a_class_costs_its_selectivity_once():
    found = graph(classes=(Predicate(A | B | C, 0.1),))
    assert found.selectivity(A | B) == pytest.approx(0.1)
    assert found.selectivity(A | B | C) == pytest.approx(0.01)
    # three independent edges would have let pass a thousandth
    independent = graph(classes=tuple(Predicate(pair, 0.1) for pair in (A | B, B | C, A | C)))
    assert independent.selectivity(A | B | C) == pytest.approx(0.001)


def test_other_predicates_need_all_their_streams():
    found = graph(others=(Predicate(A | B | C, 0.5), Predicate(A | B, 0.2), Predicate(C, 0.3)))
    assert found.selectivity(A | B) == pytest.approx(0.2)
    assert found.selectivity(A | C) == pytest.approx(0.3)
    assert found.selectivity(A | B | C) == pytest.approx(0.03)
    assert found.found(C) == 3.0


def test_live_and_found():
    found = graph(classes=(Predicate(A | B, 0.5),), windows=(10.0, 20.0, 30.0))
    assert found.live(A | B) == pytest.approx(0.5 * 10 * 40)
    # a row of a meets 40 rows of b, one of b meets 10 of a
    assert found.found(A | B, A) == pytest.approx(1 * 40 * 0.5)
    assert found.found(A | B, B) == pytest.approx(2 * 10 * 0.5)
    assert found.found(A | B) == pytest.approx(20 + 10)
    assert found.kept_seconds(A | B) == 10


def test_linked_means_that_a_predicate_applies():
    found = graph(classes=(Predicate(A | B, 0.5),), others=(Predicate(A | B | C, 0.5),))
    assert found.linked(A, B)
    assert not found.linked(A, C)
    assert found.linked(A | B, C)


@pytest.mark.parametrize(("rate", "window_s"), [(-1, 1), (1, 0), (1, float("inf")), (float("nan"), 1), (1e13, 1)])
def test_impossible_figures_are_refused(rate, window_s):
    with pytest.raises(OptionError, match=r"cannot plan with .* for stream 'a'"):
        JoinGraph((StreamFigures("a", rate, window_s),))


def test_impossible_selectivities_are_refused():
    with pytest.raises(OptionError, match=r"share from 0 to 1, not 1\.5"):
        pairwise_graph({"A": 1, "B": 1}, {"AB": 1.5})


def test_the_graph_of_a_query():
    schema = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])
    query = build_query(
        [Stream(name, schema, "ts", 5_000_000) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k", "b.j = c.j", "a.v < c.v", "a.v > 3"],
        within=None,
        windows={"a": "10 seconds", "b": "2 hours"},
        select=["a.v"],
    )
    given = Assumptions({"a": 10, "b": 20, "c": 30}, filters={0: 0.5}, keys={0: 0.1, 1: 0.2}, residuals={0: 0.25})
    found = graph_of(query, given)
    # the filter halves a; c, without a window, counts for as long as the longest one; the residual reads a.v and c.v
    assert [(s.name, s.rate, s.window_s, s.row_bytes) for s in found.streams] == [
        ("a", 5.0, 10.0, 8 + 8),
        ("b", 20.0, 7200.0, 8 + 8),
        ("c", 30.0, 7200.0, 8 + 8 + 8),
    ]
    assert {each.streams: each.selectivity for each in found.classes} == {
        A | B | C: given.keys[[c.streams for c in query.classes].index(frozenset({0, 1, 2}))],
        B | C: given.keys[[c.streams for c in query.classes].index(frozenset({1, 2}))],
    }
    assert found.others == (Predicate(A | C, 0.25, 8),)  # nothing else reads c.v
    assert (found.kept_seconds(A), found.kept_seconds(B), found.endless) == (15.0, 7205.0, C)
