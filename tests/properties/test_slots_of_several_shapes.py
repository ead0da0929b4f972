"""Partition groups that change slots while these run different shapes: results are the oracle's, whatever else befalls
the query."""

from hypothesis import HealthCheck, given, note, settings

from tests.acting import check_every_epoch
from tests.effort import examples
from tests.groups import check_aggregates
from tests.shaped_scenarios import shaped_aggregates, shaped_scenarios

PROPERTY = settings(max_examples=examples(20), deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))


@PROPERTY
@given(shaped_scenarios)
def test_groups_that_change_shape_lose_no_result(scenario):
    note(repr(scenario))
    check_every_epoch(scenario)


@PROPERTY
@given(shaped_aggregates)
def test_aggregates_of_groups_that_change_shape_are_exact(scenario):
    note(repr(scenario))
    check_aggregates(scenario)
