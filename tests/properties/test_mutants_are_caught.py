"""The property has teeth: the same check, over a fixed set of scenarios, passes as it is and fails for every mutant."""

from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.mutants import MUTANTS, Mutant
from tests.scenarios import Scenario, check_every_epoch, load_scenarios
from tests.strategies import scenarios

SEEDS, DRAWN = 5, 30
"""Examples of one seed are much alike, those of several seeds are not."""
RESULTS_MAX = 1000
"""Larger scenarios show nothing that smaller ones do not, and take long."""


@cache
def fixed_set() -> list[Scenario]:
    """The hand-written scenarios, then generated ones: the same in every run."""
    drawn: list[Scenario] = []

    for number in range(SEEDS):

        @seed(number)
        @settings(
            max_examples=DRAWN,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(scenarios())
        def collect(scenario: Scenario) -> None:
            if scenario.answer.results.total() <= RESULTS_MAX:
                drawn.append(scenario)

        collect()
    return load_scenarios() + drawn


def first_failure(cases: list[Scenario]) -> Scenario | None:
    """The first scenario whose check fails, with a wrong answer or an error. It is moved to the front: what catches one
    mutant often catches the next."""
    for number, scenario in enumerate(cases):
        scenario.answer  # noqa: B018  the oracle must not fail
        try:
            check_every_epoch(scenario)
        except Exception:
            cases.insert(0, cases.pop(number))
            return scenario
    return None


def test_without_a_mutant_all_scenarios_pass():
    for scenario in fixed_set():
        check_every_epoch(scenario)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_some_scenario_catches(mutant: Mutant):
    with mutant.applied():
        assert first_failure(fixed_set()) is not None, f"no scenario notices that {mutant.name}"
