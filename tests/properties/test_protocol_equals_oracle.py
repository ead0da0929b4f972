"""Whatever befalls drivers and sinks, each result comes once, epochs come in order, and no file is missed or left over.

Many small scenarios (`tests/small_scenarios.py`), where the other properties have fewer and larger ones. `make soak`
draws thousands. A failure prints the scenario as a file for `tests/scenarios/`; it is not made smaller, because
it is small.
"""

from hypothesis import HealthCheck, Phase, given, note, settings

from tests.acting import check_every_epoch
from tests.effort import examples
from tests.groups import check_aggregates
from tests.scenarios import Scenario
from tests.small_scenarios import small_scenarios

EXAMPLES = examples(20)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(small_scenarios())
def test_the_protocol_loses_and_repeats_nothing(scenario: Scenario):
    note(repr(scenario))
    check_small(scenario)


def check_small(scenario: Scenario) -> None:
    """After every batch: see `check_every_epoch` and `check_aggregates`."""
    check_every_epoch(scenario) if scenario.mode is None else check_aggregates(scenario)
