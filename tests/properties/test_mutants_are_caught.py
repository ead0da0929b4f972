"""The property has teeth: the same check, over a fixed set of scenarios, passes as it is and fails for every mutant."""

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.acting import check_every_epoch
from tests.aggregate_mutants import AGGREGATE_MUTANTS
from tests.groups import GroupsOracle, check_aggregates
from tests.mutants import MUTANTS, Mutant
from tests.scenarios import Scenario, load_scenarios
from tests.spill_mutants import SPILL_MUTANTS
from tests.strategies import aggregate_scenarios, scenarios

SEEDS, DRAWN = 5, 24
"""Examples of one seed are much alike, those of several seeds are not."""
RESULTS_MAX = 400
"""Larger scenarios show nothing that smaller ones do not, and take long."""


@cache
def fixed_set() -> list[Scenario]:
    """The hand-written scenarios, then generated ones: the same in every run."""
    return load_scenarios() + _drawn(scenarios(), lambda scenario: scenario.answer.results.total() <= RESULTS_MAX)


@cache
def fixed_aggregates() -> list[Scenario]:
    """The same for queries with aggregates."""

    def is_small(scenario: Scenario) -> bool:
        return sum(map(len, GroupsOracle(scenario).joined)) <= RESULTS_MAX

    return load_scenarios(aggregates=True) + _drawn(aggregate_scenarios(), is_small)


def _drawn(strategy: SearchStrategy[Scenario], is_small: Callable[[Scenario], bool]) -> list[Scenario]:
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
        @given(strategy)
        def collect(scenario: Scenario) -> None:
            if is_small(scenario):
                drawn.append(scenario)

        collect()
    return drawn


def first_failure(cases: list[Scenario], check: Callable[[Scenario], None]) -> Scenario | None:
    """The first scenario whose check fails, with a wrong answer or an error. It is moved to the front: what catches one
    mutant often catches the next."""
    for number, scenario in enumerate(cases):
        try:
            check(scenario)
        except Exception:
            cases.insert(0, cases.pop(number))
            return scenario
    return None


def test_without_a_mutant_all_scenarios_pass():
    for scenario in fixed_set():
        check_every_epoch(scenario)


@pytest.mark.parametrize("mutant", MUTANTS + SPILL_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_some_scenario_catches(mutant: Mutant):
    with mutant.applied():
        assert first_failure(fixed_set(), check_every_epoch), f"no scenario notices that {mutant.name}"


def test_without_a_mutant_all_aggregates_pass():
    for scenario in fixed_aggregates():
        check_aggregates(scenario)


@pytest.mark.parametrize("mutant", AGGREGATE_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_some_aggregate_catches(mutant: Mutant):
    with mutant.applied():
        assert first_failure(fixed_aggregates(), check_aggregates), f"no scenario notices that {mutant.name}"
