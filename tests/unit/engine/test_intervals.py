"""Variances against all samples of a small population, and intervals where little, nothing or everything is known."""

from itertools import combinations, product

import numpy as np
import pytest

from watersmeet.engine.intervals import (
    Arrivals,
    Running,
    final_average,
    final_count,
    final_sum,
    student_quantile,
    unbiased_variance,
    variance_one_by_one,
)
from watersmeet.engine.sketch import sketch

SIZES = 5, 4, 4
RNG = np.random.default_rng(4)
MATCHES = np.argwhere(RNG.random(SIZES) < 0.4)
VALUES = {"one sign": RNG.exponential(size=len(MATCHES)), "both signs": RNG.normal(size=len(MATCHES))}


def all_samples(seen):
    """For every sample of so many rows of each stream, whether it shows each result."""
    for rows in product(*(combinations(range(size), n) for size, n in zip(SIZES, seen, strict=True))):
        yield np.all([np.isin(MATCHES[:, stream], chosen) for stream, chosen in enumerate(rows)], axis=0)


def exact_moments(matches, values):
    found = []
    for subset in range(1, 1 << matches.shape[1]):
        columns = [stream for stream in range(matches.shape[1]) if subset >> stream & 1]
        _, which = np.unique(matches[:, columns], axis=0, return_inverse=True)
        found.append(float(np.square(np.bincount(which.ravel(), values)).sum()))
    return np.array([found])


def over_all_samples(seen, values):
    """The variance of the estimate over all samples, and the means of both variances that the samples make of it."""
    arrivals, estimates, variances, bounds = Arrivals(seen, SIZES), [], [], []
    for shown in all_samples(seen):
        sums, moments = np.array([values[shown].sum()]), exact_moments(MATCHES[shown], values[shown])
        estimates.append(sums[0] * np.prod(SIZES) / np.prod(seen))
        variances.append(unbiased_variance(sums, moments, arrivals)[0])
        bounds.append(variance_one_by_one(sums, moments, arrivals)[0])
    assert np.mean(estimates) == pytest.approx(values.sum())
    return np.var(estimates), np.mean(variances), np.mean(bounds)


@pytest.mark.parametrize("signs", VALUES)
@pytest.mark.parametrize("seen", [(2, 2, 2), (3, 2, 3), (4, 3, 2), (5, 2, 3), (5, 4, 2), (5, 4, 4)])
def test_the_variance_is_unbiased_over_all_samples(seen, signs):
    truth, mean, _ = over_all_samples(seen, VALUES[signs])
    assert mean == pytest.approx(truth, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("signs", VALUES)
@pytest.mark.parametrize("seen", [(2, 2, 2), (3, 2, 3), (5, 2, 3), (5, 4, 2)])
def test_the_variance_one_by_one_lies_between_the_true_one_and_k_times_that(seen, signs):
    truth, _, bound = over_all_samples(seen, VALUES[signs])
    assert truth * (1 - 1e-9) <= bound <= len(seen) * truth * (1 + 1e-9)


def running(ids, values, groups=None, group_count=1):
    groups = np.zeros(len(values), dtype=np.int64) if groups is None else groups
    sums, magnitudes = (np.bincount(groups, v, group_count) for v in (values, np.abs(values)))
    return Running(sums, magnitudes, sketch(ids, [values], groups, group_count)[0])


def some_results(results=2000, rows=300, seed=3):
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, rows, results).astype(np.uint64) for _ in range(2)]
    return ids, rng.uniform(1, 9, results), rng.integers(0, 3, results)


IDS, Y, GROUPS = some_results()
TOTAL, COUNT = running(IDS, Y), running(IDS, np.ones(len(Y)))


def ends(intervals):
    return float(intervals.low[0]), float(intervals.estimate[0]), float(intervals.high[0])


def test_when_all_rows_have_come_the_value_is_exact():
    arrivals = Arrivals((300, 301), (300, 300))
    assert ends(final_sum(TOTAL, arrivals)) == (float(TOTAL.sums[0]),) * 3
    assert ends(final_count(COUNT, arrivals)) == (len(Y),) * 3
    assert ends(final_average(TOTAL, COUNT, arrivals)) == pytest.approx((Y.mean(),) * 3)


def test_nothing_is_exact_while_one_stream_is_short():
    low, estimate, high = ends(final_sum(TOTAL, Arrivals((300, 299), (300, 300))))
    assert low < estimate < high
    assert high - low < 0.05 * estimate


@pytest.mark.parametrize("seen", [(0, 300), (1, 300), (0, 0)])
def test_of_less_than_two_rows_of_a_stream_no_interval_is_made(seen):
    for found in (
        final_sum(TOTAL, Arrivals(seen, (900, 900))),
        final_average(TOTAL, COUNT, Arrivals(seen, (900, 900))),
    ):
        assert np.isnan(found.low).all()
        assert np.isnan(found.high).all()


def test_a_stream_may_consist_of_one_row():
    ids = [np.zeros(50, dtype=np.uint64), np.arange(50, dtype=np.uint64)]
    low, estimate, high = ends(final_count(running(ids, np.ones(50)), Arrivals((1, 100), (1, 200))))
    assert 50 <= low < estimate < high
    assert estimate == 100


def test_without_results_the_estimate_is_zero_and_the_interval_unknown():
    nothing = running([np.empty(0, dtype=np.uint64)] * 2, np.empty(0))
    arrivals = Arrivals((10, 10), (20, 20))
    for found in (final_sum(nothing, arrivals), final_count(nothing, arrivals)):
        assert found.estimate[0] == 0
        assert np.isnan([found.low[0], found.high[0]]).all()
    assert np.isnan(ends(final_average(nothing, nothing, arrivals))).all()
    assert ends(final_count(nothing, Arrivals((20, 20), (20, 20)))) == (0, 0, 0)


def test_one_result_makes_a_wide_interval():
    one = running([np.array([5], dtype=np.uint64)] * 2, np.ones(1))
    low, estimate, high = ends(final_count(one, Arrivals((100, 100), (1000, 1000))))
    assert estimate == pytest.approx(100)
    assert low < 10
    assert high > 1000


def test_every_group_has_the_interval_it_would_have_alone():
    arrivals = Arrivals((300, 300), (900, 600))
    together = final_sum(running(IDS, Y, GROUPS, 3), arrivals)
    for group in range(3):
        own = group == GROUPS
        alone = final_sum(running([i[own] for i in IDS], Y[own]), arrivals)
        np.testing.assert_allclose([together.low[group], together.high[group]], [alone.low[0], alone.high[0]])


def test_a_higher_level_and_fewer_rows_widen_the_interval():
    def width(seen, level):
        low, _, high = ends(final_sum(TOTAL, Arrivals(seen, (3000, 3000)), level))
        return (high - low) * seen[0] * seen[1]

    assert width((300, 300), 0.8) < width((300, 300), 0.95) < width((300, 300), 0.99)
    assert width((300, 300), 0.95) > width((2900, 2900), 0.95)


def test_negating_the_values_mirrors_the_interval():
    arrivals = Arrivals((300, 300), (900, 900))
    low, estimate, high = ends(final_sum(TOTAL, arrivals))
    assert ends(final_sum(running(IDS, -Y), arrivals)) == pytest.approx((-high, -estimate, -low))


def test_values_of_one_sign_have_an_interval_of_that_sign_and_cancelling_ones_a_symmetric_one():
    arrivals = Arrivals((300, 300), (30_000, 30_000))
    assert ends(final_sum(running([i[:5] for i in IDS], Y[:5]), arrivals))[0] > 0
    signs = np.where(np.arange(len(Y)) % 2, 1.0, -1.0)
    low, estimate, high = ends(final_sum(running(IDS, signs), arrivals))
    assert (low + high) / 2 == pytest.approx(estimate, abs=1e-6 * (high - low))


def test_an_average_of_equal_values_is_certain():
    low, estimate, high = ends(
        final_average(running(IDS, np.full(len(Y), 3.0)), COUNT, Arrivals((300, 300), (900, 900)))
    )
    assert (low, estimate, high) == pytest.approx((3, 3, 3))


def test_an_average_of_results_that_share_a_row_is_not_thought_certain():
    ids = [np.full(5, 7, dtype=np.uint64), np.arange(5, dtype=np.uint64)]
    total, count = running(ids, np.full(5, 3.0)), running(ids, np.ones(5))
    assert np.isnan(final_average(total, count, Arrivals((10, 10), (20, 20))).low[0])
    assert ends(final_average(total, count, Arrivals((20, 10), (20, 20)))) == pytest.approx((3, 3, 3))


def test_a_count_that_hardly_varies_is_not_thought_certain():
    """One result per row: the sketches' own noise is larger than the variance, and must not hide it."""
    ids = [np.arange(1000, dtype=np.uint64), np.arange(1000, dtype=np.uint64) % np.uint64(10)]
    low, estimate, high = ends(final_count(running(ids, np.ones(1000)), Arrivals((1000, 10), (5000, 10))))
    assert low < estimate < high
    assert high - low < 0.3 * estimate


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_values_that_are_not_finite_have_no_interval(odd):
    arrivals, total = Arrivals((300, 300), (900, 900)), running(IDS, np.where(Y > 8, odd, Y))
    for found in (final_sum(total, arrivals), final_average(total, COUNT, arrivals)):
        assert not np.isfinite(found.estimate[0])
        assert np.isnan([found.low[0], found.high[0]]).all()


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [(0.8, 3, 1.638), (0.9, 2, 2.920), (0.95, 2, 4.303), (0.95, 4, 2.776), (0.95, 30, 2.042), (0.99, 10, 3.169)],
)
def test_quantiles_of_student(level, freedom, expected):
    assert student_quantile(level, np.array([float(freedom)]))[0] == pytest.approx(expected, rel=0.01)


def test_with_many_degrees_of_freedom_student_is_normal():
    found = student_quantile(0.95, np.array([1e9, np.inf]))
    np.testing.assert_allclose(found, 1.959964, rtol=1e-6)


def test_the_variance_follows_from_sketches_as_from_exact_moments():
    """With more buckets than rows, a sketch holds every row's sum by itself, or nearly so."""
    sketches = sketch(IDS, [Y], np.zeros(len(Y), dtype=np.int64), 1, 1 << 16)[0]
    arrivals, sums = Arrivals((300, 300), (900, 900)), np.array([Y.sum()])
    exact = exact_moments(np.stack(IDS, axis=1), Y)
    found = unbiased_variance(sums, np.square(sketches).sum(axis=-1), arrivals)
    assert found == pytest.approx(unbiased_variance(sums, exact, arrivals), rel=0.05)
