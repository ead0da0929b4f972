"""Which plan is chosen, and when that is known, without Spark."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.epoch.after import initial_manifest
from watersmeet.errors import OptionError
from watersmeet.observe.explain import explain_text
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.strategies import optimise
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.frame import STREAM
from watersmeet.plan.tree import nodes_of
from watersmeet.planning.learned import BY_CHANCE, Sample, hash_name
from watersmeet.planning.planner import Planner
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.state.manifest import PlanText

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])
RATES = {"a": 15.0, "b": 5.0, "c": 1.0, "d": 0.25}
KEYS = {0: 1 / 40, 1: 1 / 200, 2: 1 / 40}
SMALL_FIRST = "(a (b (c d)))"


def chain(within: str | None = "30 seconds") -> JoinQuery:
    """Key 0 is c.x = d.x, key 1 is b.y = c.y, key 2 is a.x = b.x."""
    return build_query(
        [Stream(name, SCHEMA, "ts") for name in RATES],
        where=["a.x = b.x AND b.y = c.y AND c.x = d.x"],
        within=within,
        windows={},
        select=[f"{name}.v AS {name}v" for name in RATES],
    )


def planner(asked: str = "auto", known: Assumptions | None = None, budget: Budget | None = None, **more) -> Planner:
    return Planner(
        more.pop("query", None) or chain(), asked, known or Assumptions({}), 2, 64, budget or Budget(1.0), **more
    )


def sample() -> Sample:
    """A minute in which d is rare and selective, so that it is best to begin there."""
    rng = np.random.default_rng(0)
    counts = [round(rate * 60) for rate in RATES.values()]
    streams = np.repeat(np.arange(4), counts)
    x, y = rng.integers(0, 40, len(streams)), rng.integers(0, 200, len(streams))
    over = {0: (x, (2, 3)), 1: (y, (1, 2)), 2: (x, (0, 1))}
    hashes = {
        hash_name(number): pa.array(values, mask=~np.isin(streams, members))
        for number, (values, members) in over.items()
    }
    return Sample(counts, 60.0, pa.table({STREAM: streams, BY_CHANCE: np.ones(len(streams), dtype=bool), **hashes}))


def test_a_sample_decides_where_no_rates_are_known():
    waiting = planner()
    assert waiting.waits_for_rows
    fallback = plan_text(waiting.first_plan())
    plan, event = waiting.plan_for(sample())
    assert plan_text(plan) == event.details["plan"] == SMALL_FIRST != fallback
    assert "within the budgets" in event.reason
    assert event.details["stateBytes"] > 0
    assert event.details["cpuSecondsPerSecond"] > 0


@pytest.mark.parametrize("asked", ["auto", "mjoin", "bjtree"])
def test_a_small_batch_runs_by_the_fallback_which_keeps_leaf_stores_only(asked):
    young = planner(asked)
    plan, event = young.plan_for(None)
    assert plan_text(plan) == event.details["plan"] == event.details["fallback"] == "(a b c d)"
    assert "the fallback plan runs until the data is known" in event.reason
    assert young.is_fallback(plan)
    assert all(len(node.inputs) == 4 for tree in plan.trees for node in nodes_of(tree))


def test_a_plan_that_was_chosen_or_asked_for_is_no_fallback():
    assert not planner().is_fallback(planner().plan_for(sample())[0])
    assert not planner("mjoin").is_fallback(planner("mjoin").plan_for(sample())[0])
    assert not planner("(a b c d)").is_fallback(planner("(a b c d)").first_plan())
    hinted = planner("mjoin", known=Assumptions(RATES, keys=KEYS))
    assert not hinted.is_fallback(hinted.first_plan())


def test_hints_on_all_rates_decide_at_once():
    hinted = planner(known=Assumptions(RATES, keys=KEYS))
    assert not hinted.waits_for_rows
    assert plan_text(hinted.first_plan()) == SMALL_FIRST


def test_hints_win_over_the_sample():
    turned = {"a": 0.1, "b": 1.0, "c": 5000.0, "d": 50_000.0}
    plan, _ = planner(known=Assumptions(turned)).plan_for(sample())
    assert plan_text(plan) != SMALL_FIRST


def test_a_tree_that_is_asked_for_is_the_plan():
    asked = planner("(((a b) c) d)")
    assert not asked.waits_for_rows
    assert plan_text(asked.first_plan()) == "(((a b) c) d)"
    with pytest.raises(OptionError, match="option plan 'best' is neither a join tree nor a way to find one"):
        planner("best").first_plan()


def test_a_memory_budget_of_nothing_is_a_budget():
    said = planner(known=Assumptions(RATES, keys=KEYS), budget=Budget(1.0, 0.0)).costs_text()
    assert f"* {SMALL_FIRST} " in said  # the least state
    assert "over budget: state; bjtree" in said
    assert re.search(r"^  budget +1.00 +0 B$", said, re.MULTILINE)


def test_a_long_window_needs_its_memory():
    """A day of these rates, with a budget that an hour of them would fit into."""
    rates = {"a": 300.0, "b": 100.0, "c": 20.0, "d": 5.0}
    budget = Budget(1.0, 32 << 20)
    chosen = {
        within: planner(query=chain(within), known=Assumptions(rates, keys=KEYS), budget=budget).choice(
            Assumptions(rates, keys=KEYS)
        )
        for within in ("1 hour", "24 hours")
    }
    assert min(each.memory_bytes for each in chosen["1 hour"].candidates) < budget.memory_bytes
    assert min(each.memory_bytes for each in chosen["24 hours"].candidates) > 12 * budget.memory_bytes


@pytest.mark.parametrize("rate", [0.0, 1e-300, 1e12])
@pytest.mark.parametrize("share", [0.0, 1e-320, 1.0])
@pytest.mark.parametrize("within", ["1 microsecond", "100000000 days", None])
@pytest.mark.parametrize("asked", ["auto", "mjoin-init", "bjtree-init"])
def test_figures_as_large_and_small_as_they_may_be_give_a_plan(rate, share, within, asked):
    known = Assumptions(dict.fromkeys(RATES, rate), keys=dict.fromkeys(KEYS, share))
    for budget in (Budget(1.0), Budget(1e-300, 0.0)):
        found = planner(asked, known, budget, query=chain(within))
        assert len(found.first_plan().trees) == 1
        assert not re.search(r"\b(nan|inf)", found.costs_text())


def test_a_rate_beyond_all_sense_is_refused_in_words():
    with pytest.raises(OptionError, match=r"cannot plan with 1e.200 rows a second.*rates must be from 0 to 1e.12"):
        planner(known=Assumptions(dict.fromkeys(RATES, 1e200))).first_plan()


def test_the_same_plan_has_the_same_cpu_figure_before_and_in_a_run():
    """Whatever the run has measured is told beside it."""
    hinted = planner(known=Assumptions(RATES, keys=KEYS))
    seen = Assumptions(
        {name: 2 * rate for name, rate in RATES.items()}, batch_s=20.0, costs={"insert": 4e-6, "join": 6e-6}
    )
    before = hinted.costs_text()
    running = hinted.costs_text(seen, running=hinted.first_plan().trees[0])
    assert cpu(before, SMALL_FIRST, "CPU s/s") == cpu(running, SMALL_FIRST, "CPU s/s")
    assert cpu(running, SMALL_FIRST, "in run") != cpu(running, SMALL_FIRST, "CPU s/s")
    assert "assumed: a micro-batch a second" in before
    assert "known: a micro-batch every 20 s" in running


def cpu(said: str, tree: str, column: str) -> float:
    """A figure of a plan, by the place of its column."""
    title = next(line for line in said.splitlines() if " plan " in line)
    line = next(line for line in said.splitlines() if line[2:].startswith(tree + " "))
    return float(line[: title.index(column) + len(column)].split()[-1])


def star(streams: str) -> JoinQuery:
    """Each stream is linked to the first one, by a key of its own."""
    numbers = [(name, pa.int64()) for name in (*streams, "v")]
    schema = pa.schema([*numbers, ("ts", pa.timestamp("us", "UTC"))])
    return build_query(
        [Stream(name, schema, "ts") for name in streams],
        where=[f"a.{name} = {name}.{name}" for name in streams[1:]],
        within="10 seconds",
        windows={},
        select=["a.v"],
    )


def test_products_of_slow_streams_are_considered_beside_a_fast_one():
    """Nothing links b, c and d; joined with each other first, they spare a the way through three stages."""
    known = Assumptions({"a": 20_000.0, "b": 2.0, "c": 2.0, "d": 2.0}, keys=dict.fromkeys(range(3), 1 / 20))
    found = planner(query=star("abcd"), known=known)
    assert plan_text(found.first_plan()) == "(a (b c d))"
    choice = found.choice(known)
    linked = optimise(replace(found.model(known), cartesian=False), found.budget)
    assert choice.winner.cpu_s < 0.6 * linked.winner.cpu_s
    assert choice.winner.memory_bytes < 0.3 * linked.winner.memory_bytes
    assert "stage 0 on no key: one slot" in explain_text(found.query, found.first_plan(), 2)


def test_products_of_fast_streams_are_not_chosen():
    known = Assumptions({"a": 20_000.0, "b": 100.0, "c": 100.0}, keys=dict.fromkeys(range(2), 1 / 500))
    assert plan_text(planner(query=star("abc"), known=known).first_plan()) == "((a b) c)"


def test_a_checkpoint_keeps_its_plan_whatever_hints_say():
    kept = PlanText("((a b) (c d))", {})
    assert plan_text(planner(known=Assumptions(RATES)).remembered_plan(kept)) == "((a b) (c d))"
    assert plan_text(planner("(a b c d)").remembered_plan(kept)) == "((a b) (c d))"


@pytest.mark.parametrize(
    ("asked", "before", "wanted"),
    [
        ("(a b c d)", None, "(a b c d)"),  # a checkpoint of a version that did not keep what was asked for
        ("(a b c d)", "((a b) c d)", "(a b c d)"),
        ("(a b c d)", "(a b c d)", None),  # it was migrated since
        ("((a b) (c d))", "(a b c d)", None),  # the checkpoint has it
        ("auto", "(a b c d)", None),
    ],
)
def test_another_tree_than_at_the_last_start_is_wanted(asked, before, wanted):
    kept = planner("((a b) (c d))")
    last = replace(initial_manifest(kept.first_plan(), 2, before), epoch=3)
    wishes = planner(asked).wishes(last)
    assert (wishes.wanted and plan_text(wishes.wanted.plan)) == wanted
    assert planner(asked).wishes(None).wanted is None


def test_a_script_names_plans_of_the_query():
    script = planner().wishes(None, "7: migrate ((a b) (c d)); 2: Migrate (a b c d) Moving-State;").script
    assert [(entry.epoch, plan_text(entry.goal.plan)) for entry in script] == [
        (2, "(a b c d)"),
        (7, "((a b) (c d))"),
    ]
