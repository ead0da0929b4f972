"""Decisions to migrate or not: over made-up costs, look by look."""

import random

import pytest

from tests.unit.adaptation.plans import chain
from watersmeet.adaptation.migration_cost import migration_cost
from watersmeet.adaptation.reoptimizer import DWELL, Decision, History, Look, Priced, decide, migrated, noted
from watersmeet.optimizer.cost import DEFAULT_PRICES

WINDOW_S = 10.0
START = History(WINDOW_S, is_steady=True)


def look(at_s: float, running: float, best: float | None = None, *, cost: float = 0.0, plan: str = "P2") -> Look:
    """A look at a query that runs by P1; without `best`, that is the best plan."""
    return Look(at_s, Priced("P1", running), Priced("P1", running) if best is None else Priced(plan, best), cost)


def act(costs, *, cost_s: float = 0.1, every_s: float = 2.0, lasts_s: float = 0.0) -> tuple[list[Decision], History]:
    """Look again and again, with the costs of plans by time, and migrate when that is decided."""
    history, running, decisions = History(WINDOW_S), "P1", []
    for number in range(300):
        at_s = number * every_s
        priced = {plan: Priced(plan, cpu_s) for plan, cpu_s in costs(at_s).items()}
        best = min(priced.values(), key=lambda each: each.cpu_s)
        seen = Look(at_s, priced[running], best, cost_s)
        decision = decide(seen, history)
        history = noted(history, seen)
        decisions.append(decision)
        if decision.verdict == "migrate":
            running = best.plan
            history = migrated(history, at_s, at_s + lasts_s)
    return decisions, history


def migrations(decisions: list[Decision]) -> list[tuple[float, str]]:
    return [(each.look.at_s, each.look.best.plan) for each in decisions if each.verdict == "migrate"]


def test_noise_never_migrates():
    rng = random.Random(1)
    decisions, _ = act(lambda _: {"P1": rng.uniform(0.9, 1.1), "P2": rng.uniform(0.9, 1.1)})
    assert {decision.verdict for decision in decisions} == {"keep"}


def test_one_swap_migrates_once_and_two_looks_after_it():
    decisions, _ = act(lambda at_s: {"P1": 1.0 if at_s < 100 else 3.0, "P2": 2.0})
    assert migrations(decisions) == [(102, "P2")]


def test_every_long_phase_has_its_plan():
    decisions, history = act(lambda at_s: {"P1": 1.0, "P2": 3.0} if at_s // 80 % 2 == 0 else {"P1": 3.0, "P2": 1.0})
    assert [plan for _, plan in migrations(decisions)] == ["P2", "P1"] * 3 + ["P2"]
    assert not history.is_thrashing(600)


def test_a_jump_alone_does_not_migrate():
    decisions, _ = act(lambda at_s: {"P1": 9.0 if at_s in (100, 110) else 1.0, "P2": 2.0})
    assert migrations(decisions) == []
    assert "not for long enough yet" in decisions[50].reason


def test_data_that_has_just_changed_is_trusted_after_a_window():
    decisions, _ = act(lambda at_s: {"P1": 1.0 if at_s < 6 else 3.0, "P2": 2.0})
    assert migrations(decisions) == [(6 + WINDOW_S, "P2")]


def test_a_plan_that_comes_back_within_a_window_is_thrashing():
    _, history = act(lambda at_s: {"P1": 1.0, "P2": 3.0} if at_s // 6 % 2 == 0 else {"P1": 3.0, "P2": 1.0})
    assert history.is_thrashing(600)
    assert not history.is_thrashing(600 + 9 * WINDOW_S)
    assert history.horizon_s(600) == WINDOW_S


def test_what_does_not_pay_until_the_next_change_is_not_done():
    before = noted(START, look(0, 1.0, 0.5))
    dear = decide(look(2, 1.0, 0.5, cost=4.0), before)
    assert dear.verdict == "keep"
    assert "until the next change" in dear.reason
    assert decide(look(2, 1.0, 0.5, cost=3.0), before).verdict == "migrate"


def test_the_longer_a_plan_was_the_best_the_more_a_migration_may_cost():
    history = noted(noted(START, look(0, 1.0)), look(198, 1.0, 0.5))
    assert history.horizon_s(200) == 200
    assert decide(look(200, 1.0, 0.5, cost=60.0), history).verdict == "migrate"


def test_after_a_migration_there_is_rest():
    history = noted(migrated(noted(START, look(0, 1.0)), 90, 94), look(96, 1.0, 0.5))
    assert decide(look(98, 1.0, 0.5), history).verdict == "wait"
    assert decide(look(94 + DWELL * 4, 1.0, 0.5), history).verdict == "migrate"


@pytest.mark.parametrize(("best", "verdict"), [(0.81, "keep"), (0.79, "migrate")])
def test_a_small_gain_is_no_reason(best, verdict):
    history = noted(START, look(0, 1.0, best))
    assert decide(look(2, 1.0, best), history).verdict == verdict


def test_a_plan_that_fits_into_memory_is_worth_its_cpu():
    seen, again = (Look(at_s, Priced("P1", 1.0, fits=False), Priced("P2", 1.1), 1.0) for at_s in (0, 2))
    assert decide(seen, START).verdict == "wait"
    decision = decide(again, noted(START, seen))
    assert (decision.verdict, "fits into memory" in decision.reason) == ("migrate", True)


def test_another_plan_than_at_the_last_look_waits():
    history = noted(START, look(0, 1.0, 0.5, plan="P3"))
    assert decide(look(2, 1.0, 0.5), history).verdict == "wait"


def test_the_first_look_leaves_the_fallback_and_no_later_one_does():
    young = History(WINDOW_S, is_fallback=True)
    left = decide(look(2, 1.0, 0.5), young)
    assert (left.verdict, left.to_dict()["fallback"]) == ("migrate", "P1")
    assert left.reason.startswith("the query runs by the fallback plan; P2 saves 50% of the CPU")
    assert decide(look(2, 1.0, 0.5), History(WINDOW_S)).verdict == "wait"
    assert "fallback" not in decide(look(2, 1.0, 0.5), History(WINDOW_S)).to_dict()


def test_a_fallback_that_is_good_enough_is_kept():
    young = History(WINDOW_S, is_fallback=True)
    assert decide(look(2, 1.0), young).verdict == "keep"
    assert decide(look(2, 1.0, 0.9), young).verdict == "keep"
    assert decide(look(2, 1.0, 0.5, cost=4.0), young).verdict == "keep", "it does not pay"


def test_a_plan_of_the_kind_that_is_asked_for_is_worth_its_cpu():
    seen = Look(0, Priced("P1", 1.0), Priced("P2", 2.0), 9.0, is_asked_for=True)
    decision = decide(seen, History(WINDOW_S, is_fallback=True))
    assert (decision.verdict, "option plan asks for" in decision.reason) == ("migrate", True)


def test_a_decision_can_be_read():
    told = decide(look(2, 1.0, 0.5, cost=1.0), noted(START, look(0, 1.0, 0.5))).to_dict()
    assert (told["verdict"], told["plan"], told["bestPlan"]) == ("migrate", "P1", "P2")
    assert (told["predictedGain"], told["predictedMigrationSeconds"]) == (0.5, 1.0)


def test_only_stores_that_are_not_shared_cost():
    rows = {
        frozenset({0}): 1e6,
        frozenset({1}): 1e6,
        frozenset({2}): 1e6,
        frozenset({1, 2}): 2e6,
        frozenset({0, 1}): 3e6,
    }
    left, right, flat = (chain(text, fused=True) for text in ("((a b) c)", "(a (b c))", "(a b c)"))
    cost = migration_cost(left, right, rows.__getitem__, DEFAULT_PRICES)
    assert cost == pytest.approx(0.12e-6 * 2e6 + 0.42e-6 * 1e6 + 0.27e-6 * 2e6)
    assert migration_cost(left, right, rows.__getitem__, DEFAULT_PRICES, slots=2) == pytest.approx(cost / 2)
    assert migration_cost(left, left, rows.__getitem__, DEFAULT_PRICES) == 0
    assert migration_cost(left, flat, rows.__getitem__, DEFAULT_PRICES) == 0


def test_rows_under_another_key_are_exchanged():
    old, new = chain("(((a b) c) d)"), chain("((a (b c)) d)")
    found = migration_cost(old, new, lambda streams: 0.0 if len(streams) > 1 else 1e6, DEFAULT_PRICES)
    assert found > 0.46, "b is stored by y now"
