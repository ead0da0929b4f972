"""The checks have teeth: every mutant fails on some hand-written scenario, and on generated ones where those are many.

As it is, the engine passes all hand-written scenarios (`test_scenarios.py`) and the generated ones (the properties). If
no scenario notices a new mutant, let the property find one that does, with the mutant applied, and make it a file. What
counts as caught: `tests/catching.py`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.acting import check_every_epoch
from tests.aggregate_mutants import AGGREGATE_MUTANTS
from tests.catching import Caught, Check, caught_by, is_caught
from tests.effort import mostly_long
from tests.groups import check_aggregates
from tests.interval_mutants import INTERVAL_MUTANTS
from tests.migration_mutants import MIGRATION_MUTANTS
from tests.mutants import MUTANTS, Mutant
from tests.protocol_checks import CHECKS
from tests.protocol_mutants import PROTOCOL_MUTANTS
from tests.relocation_mutants import RELOCATION_MUTANTS
from tests.scenarios import Scenario, load_scenarios
from tests.small_scenarios import small_scenarios
from tests.spill_mutants import SPILL_MUTANTS
from tests.storage_mutants import STORAGE_MUTANTS
from tests.strategies import aggregate_scenarios, scenarios
from tests.weight_mutants import WEIGHT_MUTANTS

JOINS, AGGREGATES = load_scenarios(), load_scenarios(aggregates=True)
_OF_JOINS = MUTANTS + INTERVAL_MUTANTS + SPILL_MUTANTS + STORAGE_MUTANTS + RELOCATION_MUTANTS
JOIN_MUTANTS = {mutant.name: mutant for mutant in _OF_JOINS}
PLAN_MUTANTS = {mutant.name: mutant for mutant in MIGRATION_MUTANTS}
GROUP_MUTANTS = {mutant.name: mutant for mutant in AGGREGATE_MUTANTS + WEIGHT_MUTANTS}
DRIVER_MUTANTS = {mutant.name: (check, mutant) for check, some in PROTOCOL_MUTANTS.items() for mutant in some}
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
OFTEN_IN_DRIVERS = (
    "a late driver is not fenced",
    "an unsent epoch is not sent after a crash",
    "an epoch is acknowledged before it is sent",
    "an epoch that shows nothing is sent",
    "a re-send deletes published parts",
    "a start does not see that the log is ahead",
)
"""Mutants that one generated scenario in ten or so must catch, of all kinds: else something is no longer generated."""
GENERATED = 20
SEEDS = range(12)


def check_any(scenario: Scenario) -> None:
    check_every_epoch(scenario) if scenario.mode is None else check_aggregates(scenario)


def by_scenarios(name: str, cases: Sequence[Scenario]) -> list[Check]:
    """Those that are known to catch a mutant come first."""
    return [partial(check_any, scenario) for scenario in sorted(cases, key=lambda case: name not in case.catches)]


class _Caught(Exception):
    pass


def is_caught_by_chance(mutant: Mutant, drawn: SearchStrategy[Scenario]) -> bool:
    """Whether the check fails for a generated scenario: the same ones in every run. Those of one seed are much alike,
    so there are few of each of many."""
    return any(_is_caught_by_seed(number, mutant, drawn) for number in SEEDS)


def _is_caught_by_seed(number: int, mutant: Mutant, drawn: SearchStrategy[Scenario]) -> bool:
    @seed(number)
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
        if is_caught(mutant, [partial(check_any, scenario)]):
            raise _Caught

    try:
        search()
    except _Caught:
        return True
    return False


def named(name: str) -> str:
    return name.replace(" ", "_")


def test_names_of_mutants_are_names():
    everything = [
        *MUTANTS,
        *INTERVAL_MUTANTS,
        *SPILL_MUTANTS,
        *STORAGE_MUTANTS,
        *AGGREGATE_MUTANTS,
        *WEIGHT_MUTANTS,
        *MIGRATION_MUTANTS,
        *RELOCATION_MUTANTS,
        *(m for some in PROTOCOL_MUTANTS.values() for m in some),
    ]
    names = {mutant.name for mutant in everything}
    assert len(names) == len(everything)
    assert {name for scenario in JOINS + AGGREGATES for name in scenario.catches} <= names


@pytest.mark.parametrize("name", JOIN_MUTANTS, ids=named)
def test_some_scenario_catches(name: str):
    assert is_caught(JOIN_MUTANTS[name], by_scenarios(name, JOINS)), f"no scenario notices that {name}"


@pytest.mark.parametrize("name", GROUP_MUTANTS, ids=named)
def test_some_aggregate_catches(name: str):
    assert is_caught(GROUP_MUTANTS[name], by_scenarios(name, AGGREGATES)), f"no scenario notices that {name}"


@pytest.mark.parametrize("name", PLAN_MUTANTS, ids=named)
def test_some_migration_catches(name: str):
    moving = [case for case in JOINS + AGGREGATES if any(epoch.migrate for epoch in case.schedule)]
    assert is_caught(PLAN_MUTANTS[name], by_scenarios(name, moving)), f"no scenario notices that {name}"


@pytest.mark.parametrize("name", DRIVER_MUTANTS, ids=named)
def test_a_check_of_the_protocol_catches(name: str):
    check, mutant = DRIVER_MUTANTS[name]
    checks = by_scenarios(name, JOINS + AGGREGATES) if check == "scenarios" else [CHECKS[check]]
    assert is_caught(mutant, checks), f"nothing notices that {name}"


@pytest.mark.parametrize("check", mostly_long(CHECKS, *(CHECKS.keys() - {"power"})))
def test_without_a_mutant_the_checks_of_the_protocol_hold(check: str):
    CHECKS[check]()


@pytest.mark.parametrize("name", mostly_long(OFTEN, *OFTEN[:3]), ids=named)
def test_some_generated_scenario_catches(name: str):
    assert is_caught_by_chance(JOIN_MUTANTS[name], scenarios()), f"chance does not see that {name}"


@pytest.mark.parametrize("name", mostly_long(OFTEN_IN_GROUPS, *OFTEN_IN_GROUPS[:1]), ids=named)
def test_some_generated_aggregate_catches(name: str):
    assert is_caught_by_chance(GROUP_MUTANTS[name], aggregate_scenarios()), f"chance does not see that {name}"


@pytest.mark.parametrize("name", mostly_long(OFTEN_IN_DRIVERS, *OFTEN_IN_DRIVERS[1:4]), ids=named)
def test_some_small_scenario_catches(name: str):
    _, mutant = DRIVER_MUTANTS[name]
    assert is_caught_by_chance(mutant, small_scenarios()), f"chance does not see that {name}"


# What counts


def _fails(raised: Callable[[], Exception]) -> None:
    raise raised()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(AssertionError, Caught.WRONG), (FileNotFoundError, Caught.NOTICED), (TypeError, Caught.CRASHED)],
)
def test_a_crash_is_told_from_a_wrong_answer(error: type[Exception], kind: Caught):
    harmless = Mutant("harmless", "epoch.task:later", "max(a, b)", "max(b, a)")
    assert caught_by(harmless, [partial(_fails, error)]) is kind


def test_an_assertion_within_the_engine_is_a_crash():
    broken = Mutant("broken", "epoch.protocol:_started", "Phase.IDLE", "Phase.SENDING")
    assert caught_by(broken, [CHECKS["worlds"]]) is Caught.CRASHED
