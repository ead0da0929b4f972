"""The checks have teeth: every mutant fails on some hand-written scenario, and on generated ones where those are many.

As it is, the engine passes all hand-written scenarios (`test_scenarios.py`) and the generated ones (the properties). If
no scenario notices a new mutant, let the property find one that does, with the mutant applied, and make it a file.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.acting import check_every_epoch
from tests.aggregate_mutants import AGGREGATE_MUTANTS
from tests.groups import check_aggregates
from tests.mutants import MUTANTS, Mutant
from tests.scenarios import Scenario, load_scenarios
from tests.spill_mutants import SPILL_MUTANTS
from tests.strategies import aggregate_scenarios, scenarios

JOINS, AGGREGATES = load_scenarios(), load_scenarios(aggregates=True)
JOIN_MUTANTS = {mutant.name: mutant for mutant in MUTANTS + SPILL_MUTANTS}
GROUP_MUTANTS = {mutant.name: mutant for mutant in AGGREGATE_MUTANTS}
OFTEN = (
    "a chunk forgets earlier chunks",
    "state is not probed",
    "an exchange goes to the wrong input",
    "residuals are not applied",
    "a merge loses layers",
    "memory grows over its budget",
    "clean-up settles all groups",
)
OFTEN_IN_GROUPS = (
    "merged groups are not combined",
    "a window has one pane less",
)
"""Mutants that one generated scenario in ten or so must catch, of all kinds: else something is no longer generated."""
GENERATED = 120


def is_caught(mutant: Mutant, cases: list[Scenario], check: Callable[[Scenario], None]) -> bool:
    """Whether the check fails, with a wrong answer or an error; what is known to catch the mutant is tried first."""
    with mutant.applied():
        for scenario in sorted(cases, key=lambda scenario: mutant.name not in scenario.catches):
            try:
                check(scenario)
            except Exception:
                return True
    return False


class _Caught(Exception):
    pass


def is_caught_by_chance(mutant: Mutant, drawn: SearchStrategy[Scenario], check: Callable[[Scenario], None]) -> bool:
    """Whether the check fails for a generated scenario: the same ones in every run."""

    @seed(1)
    @settings(
        max_examples=GENERATED,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def search(scenario: Scenario) -> None:
        if is_caught(mutant, [scenario], check):
            raise _Caught

    try:
        search()
    except _Caught:
        return True
    return False


def test_names_of_mutants_are_names():
    assert len(JOIN_MUTANTS) == len(MUTANTS + SPILL_MUTANTS)
    assert {name for scenario in JOINS for name in scenario.catches} <= JOIN_MUTANTS.keys()
    assert {name for scenario in AGGREGATES for name in scenario.catches} <= GROUP_MUTANTS.keys()


@pytest.mark.parametrize("name", JOIN_MUTANTS, ids=lambda name: name.replace(" ", "_"))
def test_some_scenario_catches(name: str):
    assert is_caught(JOIN_MUTANTS[name], JOINS, check_every_epoch), f"no scenario notices that {name}"


@pytest.mark.parametrize("name", GROUP_MUTANTS, ids=lambda name: name.replace(" ", "_"))
def test_some_aggregate_catches(name: str):
    assert is_caught(GROUP_MUTANTS[name], AGGREGATES, check_aggregates), f"no scenario notices that {name}"


@pytest.mark.parametrize("name", OFTEN, ids=lambda name: name.replace(" ", "_"))
def test_some_generated_scenario_catches(name: str):
    assert is_caught_by_chance(JOIN_MUTANTS[name], scenarios(), check_every_epoch), f"chance does not see that {name}"


@pytest.mark.parametrize("name", OFTEN_IN_GROUPS, ids=lambda name: name.replace(" ", "_"))
def test_some_generated_aggregate_catches(name: str):
    found = is_caught_by_chance(GROUP_MUTANTS[name], aggregate_scenarios(), check_aggregates)
    assert found, f"chance does not see that {name}"
