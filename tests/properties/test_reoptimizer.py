"""Whatever the optimiser does, results are the oracle's; and its mistakes are noticed."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acting import check_every_epoch
from tests.catching import is_caught
from tests.effort import examples
from tests.groups import check_aggregates
from tests.mutants import Mutant
from tests.reoptimizer_mutants import REOPTIMIZER_MUTANTS
from tests.strategies import aggregate_scenarios, scenarios
from tests.unit.adaptation import test_moving, test_reoptimizer
from tests.unit.epoch import test_key_sketch

EXAMPLES = examples(10)
HOW = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
CHECKS = [
    check
    for module in (test_moving, test_reoptimizer, test_key_sketch)
    for name, check in vars(module).items()
    if name.startswith("test_") and not getattr(check, "pytestmark", ())
]


@HOW
@given(scenarios(), st.integers(0, 1 << 16))
def test_plans_that_change_at_any_time_lose_and_repeat_nothing(scenario, seed):
    check_every_epoch(replace(scenario, setting=replace(scenario.setting, restless=seed)))


@HOW
@given(scenarios())
def test_leaving_the_fallback_early_loses_and_repeats_nothing(scenario):
    check_every_epoch(replace(scenario, setting=replace(scenario.setting, young=True)))


@HOW
@given(aggregate_scenarios(), st.integers(0, 1 << 16))
def test_aggregates_do_not_notice_either(scenario, seed):
    check_aggregates(replace(scenario, setting=replace(scenario.setting, restless=seed)))


@pytest.mark.parametrize("mutant", REOPTIMIZER_MUTANTS, ids=lambda mutant: mutant.name)
def test_mistakes_of_the_optimiser_are_caught(mutant: Mutant):
    assert is_caught(mutant, CHECKS)


def test_without_mistakes_all_is_well():
    for check in CHECKS:
        check()
