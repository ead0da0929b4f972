"""Which columns of combined rows are parts, which plans are refused, and how a plan with weights is left."""

from dataclasses import replace

import pyarrow as pa
import pytest

from watersmeet.adaptation.migration import AUTO, MOVING_STATE, PARALLEL_TRACK, require_fit, unfit_because
from watersmeet.errors import OptionError
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.plan.weights import parts_of
from watersmeet.query.aggregates import Confidence
from watersmeet.query.logical import JoinQuery, Stream, build_query

KINDS = {"k": pa.int64(), "ts": pa.timestamp("us"), "x": pa.int64(), "y": pa.float64(), "price": pa.decimal128(38, 2)}
SCHEMA = pa.schema(list(KINDS.items()))


def asked(*select: str, where: str = "a.k = b.k", within: str | None = "9 seconds", groups: str = "b.x") -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts" if within else None) for name in "ab"]
    group_by = [groups] if any("(" in item for item in select) else []
    return build_query(streams, where=[where], within=within, windows={}, select=list(select), group_by=group_by)


def planned(query: JoinQuery, text: str) -> JoinPlan:
    return plan_join(query, (parse_tree(text, "ab"),), partitions=8)


@pytest.mark.parametrize(
    ("select", "where", "parts"),
    [
        (["count(*) AS n"], "a.k = b.k", ["#rows a"]),
        (["avg(a.y) AS m"], "a.k = b.k", ["#rows a", "#known a.y", "#value a.y"]),
        (["sum(a.x) AS s"], "a.k = b.k", ["#rows a", "#known a.x", "#high a.x", "#low a.x"]),
        (["sum(a.x) AS s", "max(a.x) AS m"], "a.k = b.k", ["#rows a"]),
        (["sum(a.x) AS s"], "a.k = b.k AND a.x < b.x", ["#rows a"]),
        (["sum(a.x * b.x) AS s"], "a.k = b.k", ["#rows a"]),
        (["sum(a.price) AS s"], "a.k = b.k", ["#rows a"]),
    ],
)
def test_columns_that_are_only_summed_are_parts(select, where, parts):
    assert [part.name for part in parts_of(asked(*select, where=where), 0)] == parts


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (asked("a.x"), "the query has no aggregates"),
        (replace(asked("count(*) AS n"), confidence=Confidence(0.95, (9, 9), (0,), ())), "intervals of aggregates"),
    ],
)
def test_what_cannot_be_combined_is_refused(query, reason):
    with pytest.raises(OptionError, match=rf"rows of a cannot be combined: .*{reason}"):
        planned(query, "(group(a) b)")


def test_combined_rows_are_not_taken_apart():
    query = asked("count(*) AS n")
    old, new = planned(query, "(group(a) b)"), planned(query, "(a b)")
    assert unfit_because(old, new, AUTO, 1) is None
    assert unfit_because(old, new, PARALLEL_TRACK, 1) is None
    with pytest.raises(OptionError, match="stored rows of a are combined") as refused:
        require_fit(old, new, MOVING_STATE, 1)
    assert refused.value.hint == "use parallel-track"
    assert unfit_because(new, old, MOVING_STATE, 1) is None


def test_rows_that_never_expire_keep_their_weights():
    query = asked("count(*) AS n", within=None)
    old, new = planned(query, "(group(a) b)"), planned(query, "(a b)")
    with pytest.raises(OptionError, match="stored rows of a are combined") as refused:
        require_fit(old, new, AUTO, 1)
    assert "weighted(a)" in refused.value.hint
    assert unfit_because(old, planned(query, "(weighted(a) b)"), MOVING_STATE, 1) is None
