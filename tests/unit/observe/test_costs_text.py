"""The candidates for a plan, as `explain("cost")` shows them."""

from tests.unit.observe.test_estimates import query_of
from watersmeet.observe.costs_text import costs_text
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.cost import CostModel, Prices
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.measured_prices import Calibration
from watersmeet.optimizer.strategies import optimise
from watersmeet.plan.tree import parse_tree

PRICES = Prices(1e-6, 1e-6, 1e-6)
KNOWN = Assumptions({"a": 100, "b": 100, "c": 10}, keys={0: 0.01, 1: 0.1})


def said(budget: Budget, running: str | None = None) -> list[str]:
    query = query_of("abc", ["a.k = b.k AND b.j = c.j"])
    model = CostModel(graph_of(query, KNOWN), PRICES)
    choice = optimise(model, budget)
    tree = None if running is None else parse_tree(running, "abc")
    return costs_text(query, KNOWN, model, budget, choice, running=tree).splitlines()


def test_plans_side_by_side_with_budgets_and_reason():
    lines = said(Budget(1.0, 1 << 20), running="((a b) c)")
    assert lines[0] == "== Costs per slot =="
    assert lines[1].split() == ["plan", "CPU", "s/s", "state"]
    rows = [line for line in lines if line[2:].startswith("(")]
    assert sum(row.startswith("*") for row in rows) == 1
    assert any(row[2:].startswith("((a b) c)") and "the plan now" in row for row in rows) or rows[0].startswith("* ((a")
    assert any("one node over all" in row for row in rows)
    cpu = [float(row.split(")")[-1].split()[0]) for row in rows]
    assert cpu == sorted(cpu)
    assert next(line for line in lines if line.startswith("  budget")).split() == ["budget", "1", "1.0", "MiB"]
    assert any(line.startswith("chosen: ") for line in lines)
    assert "known: key 1 lets pass 0.1 of the pairs" in lines


def test_what_exceeds_a_budget_is_marked_and_no_budget_is_none():
    lines = said(Budget(memory_bytes=1000))
    assert all("too much state" in line for line in lines if line[2:].startswith("("))
    assert next(line for line in lines if line.startswith("  budget")).split() == ["budget", "none", "1000", "B"]
    assert any("no plan found is within its budgets; this one exceeds them least" in line for line in lines)


def test_prices_are_said_to_be_measured_or_not():
    query = query_of("abc", ["a.k = b.k AND b.j = c.j"])
    model = CostModel(graph_of(query, KNOWN), PRICES)
    choice = optimise(model, Budget())

    def prices(calibration: Calibration | None) -> str:
        text = costs_text(query, KNOWN, model, Budget(), choice, calibration=calibration)
        return next(line for line in text.splitlines() if line.startswith("prices: "))

    assert (
        prices(None) == prices(Calibration(PRICES)) == "prices: by default, since no query that runs has measured any"
    )
    assert "storing rows 2.5 times and joining them 0.5 times the default" in prices(Calibration(PRICES, 2.5, 0.5))
    assert "storing" not in prices(Calibration(PRICES, None, 0.5))
