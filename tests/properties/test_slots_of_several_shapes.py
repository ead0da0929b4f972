"""Partition groups that change slots while these run different shapes: results are the oracle's, whatever else befalls
the query."""

from hypothesis import HealthCheck, given, note, settings

from tests.acting import check_every_epoch
from tests.effort import examples
from tests.shaped_scenarios import shaped_scenarios


@settings(
    max_examples=examples(20),
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(shaped_scenarios())
def test_groups_that_change_shape_lose_no_result(scenario):
    note(repr(scenario))
    check_every_epoch(scenario)
