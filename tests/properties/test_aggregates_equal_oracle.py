"""Aggregates over any join, in any output mode, through any schedule of mishaps: what is shown is what is owed.

After every epoch the rows shown are compared with the oracle's; and at the end of the stream what a reader has been
shown is compared with DuckDB's aggregates over the same joined rows.
"""

from hypothesis import HealthCheck, given, note, settings

from tests.effort import examples
from tests.groups import check_aggregates
from tests.strategies import aggregate_scenarios

EXAMPLES = examples(25)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(aggregate_scenarios())
def test_aggregates_equal_the_oracle_after_every_epoch(scenario):
    note(repr(scenario))
    check_aggregates(scenario)
