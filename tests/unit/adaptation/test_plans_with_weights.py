"""How a query comes to a plan with weights and leaves it: what is refused changes nothing, and is recorded."""

import pyarrow as pa
import pytest

from watersmeet.adaptation.rehearsal import parse_script
from watersmeet.adaptation.wishes import Wishes
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.observe.diff_text import diff_text
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.dominating import Budget
from watersmeet.plan.query_change import PlannedQuery, carry
from watersmeet.plan.tree import parse_tree
from watersmeet.planning.planner import Planner
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.int64())])
SAME = [{"k": 1, "ts": 5, "x": 3}, {"k": 1, "ts": 5, "x": 4}]


def asked(within: str | None = None, where: str = "a.k = b.k") -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts" if within else None) for name in "ab"]
    select = ["count(*) AS n", "sum(a.x) AS s"]
    return build_query(streams, where=[where], within=within, windows={}, select=select, group_by=["b.k"])


def planner(query: JoinQuery, plan: str) -> Planner:
    return Planner(query, plan, Assumptions({}), 1, 8, Budget())


@pytest.fixture
def engine(tmp_path):
    found = InProcessQuery(asked(), tmp_path, partitions=8, memory=None, trees=[parse_tree("(group(a) b)", "ab")])
    found.run({"a": pa.Table.from_pylist(SAME, SCHEMA), "b": pa.Table.from_pylist(SAME, SCHEMA)})
    return found


def rows_of_a(engine: InProcessQuery) -> int:
    return sum(e.rows for state in engine.manifest.extents for name, es in state.items() for e in es if name[0] == "a")


def test_a_script_cannot_take_rows_apart_that_never_expire(engine):
    script = parse_script(
        "0: migrate (a b) moving-state; 0: migrate (weighted(a) b)", planner(asked(), "auto").plan_named
    )
    engine.coordinator.wishes = Wishes(script=script)
    reasons = {event["reason"] for _ in engine.resting() for event in engine.manifest.events}
    assert engine.manifest.rehearsed == 2
    assert engine.manifest.plan.trees == "(weighted(a) b)"
    assert any("refused: stored rows of a are combined" in reason for reason in reasons), reasons
    assert rows_of_a(engine) == 1
    shown = engine.run({"a": pa.Table.from_pylist(SAME, SCHEMA)}).to_pylist()
    assert [(row["_a0"], row["_a1"]) for row in shown] == [(8, 28)]
    assert rows_of_a(engine) == 3


def test_an_option_cannot_either_and_says_so_before_the_start(engine):
    with pytest.raises(OptionError, match="stored rows of a are combined"):
        planner(asked(), "(a b)").wishes(engine.manifest)
    assert planner(asked(), "(weighted(a) b)").wishes(engine.manifest).wanted is not None


def test_a_query_whose_plan_has_weights_cannot_be_changed():
    old = PlannedQuery(asked("9 seconds"), planner(asked("9 seconds"), "(group(a) b)").first_plan())
    query = asked("5 seconds")
    with pytest.raises(CheckpointError, match="rows of a have weights"):
        carry(old, PlannedQuery(query, planner(query, "(a b)").first_plan()))


def test_a_difference_says_which_rows_get_weights():
    query = asked("9 seconds")
    plain, combined = (planner(query, text).first_plan() for text in ("(a b)", "(group(a) b)"))
    assert "gets weights" in diff_text(plain, combined)
    assert "starts empty" in diff_text(combined, plain)
