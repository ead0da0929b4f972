"""The candidates for a plan, as `explain("cost")` shows them. Golden texts in tests/golden/costs; if one is meant to
change: WATERSMEET_GOLDEN=write."""

import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.observe.test_estimates import query_of
from watersmeet.observe.costs_text import ASKED_FOR, RUNS_NOW, SHOWN_MAX, Other, costs_text
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.cost import CostModel, Prices
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.measured_prices import Calibration, calibrated
from watersmeet.optimizer.shapes import states_of
from watersmeet.optimizer.strategies import optimise
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query

FOLDER = Path(__file__).parents[2] / "golden" / "costs"
MIB = 1 << 20
PRICES = Prices(1e-7, 0.0, 2e-7, exchange_s=3e-6, stage_s=0.15, lookup_s=4e-7, store_s=0.01)
SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])
SHOP = ["ads", "buys", "clicks", "views"]
KNOWN = Assumptions({"ads": 50, "views": 3000, "clicks": 1000, "buys": 5}, keys={0: 1e-4, 1: 1e-4})
MEASURED = replace(KNOWN, batch_s=5.0, costs={"insert": 4e-7, "delete": 1e-7, "join": 6e-7})


def shop() -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts") for name in SHOP],
        where=["ads.k = views.k AND views.j = clicks.j AND clicks.j = buys.j"],
        within="10 minutes",
        windows={},
        select=["ads.v", "buys.v AS price"],
    )


def said(
    budget: Budget,
    *,
    query: JoinQuery | None = None,
    known: Assumptions = KNOWN,
    strategy: str = "auto",
    other: str | None = None,
    why: str = RUNS_NOW,
) -> list[str]:
    """The text for a query on two slots; with another tree, as it runs or as it is asked for."""
    query = query or shop()
    model = CostModel(graph_of(query, known), PRICES, slots=2, batches_per_s=known.batches_per_s)
    tree = None if other is None else parse_tree(other, [stream.name for stream in query.streams])
    calibration = calibrated(model, states_of(tree), known.costs) if tree and why == RUNS_NOW else None
    if calibration is not None:
        model = replace(model, prices=calibration.prices)
    choice = optimise(model, budget, strategy)
    shown = Other(tree, why) if tree else None
    before = CostModel(graph_of(query, known), PRICES, slots=2) if calibration else None
    text = costs_text(query, known, model, budget, choice, other=shown, calibration=calibration, before=before)
    return text.splitlines()


CASES = {
    "chosen_among_several": lambda: said(Budget(1.0, 200 * MIB, 0.05)),
    "nothing_fits": lambda: said(Budget(0.4, 16 * MIB, 0.05)),
    "running_query": lambda: said(
        Budget(1.0, 256 * MIB, 0.05), known=MEASURED, other="(((ads views) clicks) buys)", why=RUNS_NOW
    ),
    "asked_for": lambda: said(Budget(1.0), other="(ads buys clicks views)", why=ASKED_FOR),
}


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    found, path = "\n".join(CASES[name]()) + "\n", FOLDER / f"{name}.txt"
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        path.write_text(found)
    assert found == path.read_text()
    assert max(map(len, found.splitlines())) <= 80


def test_no_file_without_a_case():
    assert {path.stem for path in FOLDER.glob("*")} == CASES.keys()


def plans(lines: list[str]) -> list[str]:
    """The lines of the table that are plans, each with the note that may be below it."""
    notes = [line.strip() if line.startswith("    ") else "" for line in [*lines[1:], ""]]
    return [f"{line}  {note}".rstrip() for line, note in zip(lines, notes, strict=True) if line[2:].startswith("(")]


def row(lines: list[str], tree: str) -> str:
    return next(line for line in plans(lines) if line[2:].startswith(f"{tree} "))


def test_the_winner_is_the_only_plan_that_is_marked_and_plans_are_in_order_of_cpu():
    lines = said(Budget(1.0, 256 * MIB))
    rows = plans(lines)
    assert [line[0] for line in rows].count("*") == 1
    cpu = [float(line.split(")")[-1].split()[1]) for line in rows]
    assert cpu == sorted(cpu)
    assert len(set(cpu)) > 2


def test_figures_are_those_of_the_model_and_stages_those_of_the_plan():
    query, budget = shop(), Budget(1.0, 256 * MIB)
    model = CostModel(graph_of(query, KNOWN), PRICES, slots=2)
    winner = optimise(model, budget).winner
    for text in ("(ads buys clicks views)", "((ads views) buys clicks)"):
        tree = parse_tree(text, SHOP)
        plan, stages = model.plan(states_of(tree)), len(plan_join(query, (tree,), 8).stages)
        ratio = "" if tree == winner.tree else rf" +{plan.cpu_s / winner.cpu_s:.2f}x"
        found = row(said(budget), text)
        assert re.search(rf"\) +{stages} +{plan.cpu_s:#.3g}{ratio} +{plan.memory_bytes / MIB:.1f} MiB", found), found


def test_how_far_beyond_its_budgets_a_plan_is():
    lines = said(Budget(memory_bytes=1000))
    assert plans(lines)
    assert all(re.search(r"over budget: state [\d,]+x", line) for line in plans(lines))
    assert next(line for line in lines if line.startswith("  budget")).split() == ["budget", "none", "1000", "B"]
    assert any(line.startswith("* chosen: no plan fits; this one is nearest its budgets: state ") for line in lines)


def test_no_line_for_budgets_that_there_are_not():
    lines = said(Budget())
    assert not any("budget" in line for line in lines)
    assert "* chosen: least CPU of all plans" in lines


def test_the_plan_that_runs_is_shown_whether_it_is_the_winner_or_not():
    tree = "(((ads views) clicks) buys)"
    lines = said(Budget(1.0), other=tree)
    assert row(lines, tree).endswith("runs now")
    assert not row(lines, tree).startswith("*")
    assert any(line.startswith("* would be chosen now: ") for line in lines)
    winner = next(line for line in lines if line.startswith("* ("))[2:].split("  ")[0]
    again = said(Budget(1.0), other=winner)
    assert row(again, winner).startswith("* ")
    assert row(again, winner).endswith("runs now")
    assert any(line.startswith("* chosen: ") for line in again)


def test_the_search_says_what_it_has_looked_at():
    def search(**more) -> str:
        return next(line for line in said(Budget(), **more) if line.startswith("search "))

    assert search().startswith("search (auto): all trees; ")
    assert search(strategy="mjoin") == "search (mjoin): one tree; others are shown for comparison"
    assert re.match(r"search \(bjtree-init\): \d+ trees of many more; ", search(strategy="bjtree-init"))
    two = query_of("ab", ["a.k = b.k"])
    assert search(query=two, known=Assumptions({"a": 1, "b": 2})) == "search (auto): two streams have only one tree"


def test_of_many_plans_those_next_to_the_winner_are_shown():
    names = "abcdefg"
    query = query_of(names, [f"{one}.k = {other}.k" for one, other in pairwise(names)])
    known = Assumptions({name: 10.0 * i for i, name in enumerate(names, 1)}, keys={0: 0.02})
    lines = said(Budget(), query=query, known=known)
    assert SHOWN_MAX <= len(plans(lines)) <= SHOWN_MAX + 2
    assert re.search(rf"\nsearch \(auto\): [^:]*,\s+{SHOWN_MAX}\s+are\s+shown\n", "\n".join(lines))


def test_prices_are_said_to_be_measured_or_not():
    query, budget = shop(), Budget()
    model = CostModel(graph_of(query, KNOWN), PRICES)
    choice = optimise(model, budget)

    def prices(calibration: Calibration | None) -> str:
        text = costs_text(query, KNOWN, model, budget, choice, calibration=calibration)
        return next(line for line in text.splitlines() if line.startswith("prices: ")).removeprefix("prices: ")

    assert prices(None) == "default CPU by row, stage and micro-batch (nothing was run)"
    assert prices(Calibration(PRICES)) == "default CPU by row, stage and micro-batch (too little measured yet)"
    assert "storing a row 2.50x, joining 0.50x the default" in prices(Calibration(PRICES, 2.5, 0.5))
    assert "storing" not in prices(Calibration(PRICES, None, 0.5))
