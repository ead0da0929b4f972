"""An interval of 95 % holds the final value in 95 % of the runs; the formula for independent draws does not."""

import pytest

from benchmarks.confidence_coverage import Setting, simulate, zipf
from watersmeet.engine.sketch import BUCKETS

RUNS_MIN = 1000
CASES = {
    "one key": Setting((800, 600, 500), zipf(200, 0.8)),
    "two keys": Setting((800, 600, 500), zipf(200, 0.8), is_chain=True),
}


@pytest.fixture(scope="module", params=CASES)
def outcomes(request):
    return simulate(CASES[request.param], populations=50, runs=20, seed=11, level=0.95, buckets=BUCKETS)


@pytest.mark.slow
@pytest.mark.parametrize("look", range(3), ids=["10%", "30%", "60%"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVG", "COUNT"])
def test_intervals_cover_the_final_value_as_often_as_they_say(outcomes, look, aggregate):
    ours, naive = outcomes[look, aggregate, "ours"], outcomes[look, aggregate, "naive"]
    assert ours.known.sum() >= RUNS_MIN
    assert 93 <= ours.coverage_percent <= 97
    assert naive.coverage_percent < 90
