"""The hand-written scenarios, in-process: the file, the oracle and the engine agree."""

import pytest

from tests.acting import check_every_epoch, check_file
from tests.groups import check_aggregates
from tests.scenarios import Scenario, from_json, load_scenarios, to_json

BATCHES_MAX = 10
"""The oracle takes long for more."""


@pytest.mark.parametrize("scenario", load_scenarios(), ids=lambda scenario: scenario.name)
def test_file_and_oracle_agree(scenario: Scenario):
    check_file(scenario)


@pytest.mark.parametrize("scenario", load_scenarios(), ids=lambda scenario: scenario.name)
def test_oracle_and_engine_agree_after_every_epoch(scenario: Scenario):
    check_every_epoch(scenario)


@pytest.mark.parametrize(
    "scenario",
    [scenario for scenario in load_scenarios() if len(scenario.batches) <= BATCHES_MAX],
    ids=lambda scenario: scenario.name,
)
def test_a_scenario_survives_being_printed(scenario: Scenario):
    again = from_json(scenario.name, to_json(scenario))
    assert (again.schedule, again.setting, again.trees) == (scenario.schedule, scenario.setting, scenario.trees)
    assert again.answer == scenario.answer
    assert again.expected == scenario.expected


@pytest.mark.parametrize("scenario", load_scenarios(aggregates=True), ids=lambda scenario: scenario.name)
def test_aggregates_are_shown_as_owed(scenario: Scenario):
    check_aggregates(scenario)
