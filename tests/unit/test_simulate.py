"""The command `simulate`: predictions follow from hints, without Spark."""

import re

import pytest

from watersmeet.cli import main, on_spark

STREAMS = [
    "--stream",
    "a=schema:k bigint, v double, d decimal(12, 2), ts timestamp",
    "--stream",
    "b=schema:k bigint, v int, s string, ts timestamp?delay=0 seconds",
]
QUERY = "SELECT a.v, b.s, a.d FROM a JOIN b ON a.k = b.k WITHIN 1 MINUTE"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr(on_spark, "session", lambda *_: pytest.fail("Spark is started"))


@pytest.fixture
def simulate(capsys):
    def run(*arguments, query=QUERY, rate="1000"):
        assert main(["simulate", "-e", query, *STREAMS, "--rate", rate, *arguments]) == 0
        return capsys.readouterr().out

    return run


def number(text, what):
    """The first number of a line."""
    line = next(line for line in text.splitlines() if line.startswith(what))
    return float(re.search(r"[\d,.]*\d", line[len(what) :]).group().replace(",", ""))


def test_results_follow_from_rates_windows_and_selectivities(simulate):
    told = simulate("--selectivity", "a.k = b.k=0.0001", "--time", "4 minutes")
    # Of either stream 1,000 rows a second, each of which meets 60,000 of the other, of which one in 10,000 matches.
    assert number(told, "results") == pytest.approx(2 * 1000 * 6, rel=0.02)
    assert "24, of" in told, "epochs"
    assert number(told, "arrivals") == 2000


def test_memory_follows_the_window(simulate):
    narrow, wide = simulate(), simulate(query=QUERY.replace("1 MINUTE", "4 MINUTES"))
    assert "MiB" in narrow
    assert number(wide, "memory") == pytest.approx(4 * number(narrow, "memory"), rel=0.15)


def test_skew_is_balanced_if_groups_may_move(simulate):
    given = ("--slots", "16", "--hosts", "16", "--skew", "0.6", "--time", "10 minutes")
    stays = simulate(*given, "--option", "relocation=off")
    moves = simulate(*given, "--option", "relocation=balance")
    assert number(stays, "moves") == 0
    assert number(moves, "moves") > 0
    uneven = [float(re.search(r"([\d.]+) times the mean", told).group(1)) for told in (stays, moves)]
    assert uneven[1] < uneven[0]
    assert "relocate: " in moves


def test_a_budget_makes_slots_spill(simulate):
    assert "nothing spills" in simulate()
    told = simulate("--option", "memoryBudget=512k", "--time", "5 minutes")
    assert number(told, "spills") > 0
    assert "of spilled state" in told
    assert "over the budget of 512.0 KiB" in told


def test_too_many_rows_for_the_slots_are_told(simulate):
    assert "FALLS BEHIND" not in simulate()
    assert "FALLS BEHIND" in simulate("--selectivity", "a.k = b.k=0.05", "--time", "8 minutes", rate="20000")


def test_the_same_command_predicts_the_same(simulate):
    given = ("--slots", "4", "--skew", "0.5", "--option", "relocation=balance")
    assert simulate(*given) == simulate(*given)


def test_a_chain_over_two_keys_is_simulated_by_a_binary_tree(capsys):
    streams = [
        "--stream",
        "a=schema:x bigint",
        "--stream",
        "b=schema:x bigint, y bigint",
        "--stream",
        "c=schema:y bigint",
    ]
    query = "SELECT a.x, c.y FROM a JOIN b ON a.x = b.x JOIN c ON b.y = c.y"
    hints = ["--rate", "100", "--time", "10 minutes", "--option", "plan=((a b) c)", "--slots", "4"]
    assert main(["simulate", "-e", query, *streams, *hints]) == 0
    assert "((a b) c)" in capsys.readouterr().out
