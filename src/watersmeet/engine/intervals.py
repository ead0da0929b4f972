"""Online aggregation: where the final SUM, COUNT or AVG of a join of finite streams will lie, while rows still arrive.

*Assumption.* The rows of each stream arrive in random order, independently of the other streams, and their final number
is known: the n_i rows seen of stream i are a simple random sample without replacement of its N_i rows. An order that
depends on keys or values (sorted by time, grouped by key) voids the intervals. An interval holds for one look at one
group: of many looks at 95 %, one in twenty misses.

With s = product of N_i / n_i, the sum so far times s is an unbiased estimate T of the final sum. Results share rows, so
the usual formula for independent draws claims far too much. Two variances are computed from the second moments P_A of
`engine/sketch.py` (P_{} is the square of the sum), with a = N / n, d = N (N - 1) / n (n - 1), g = d - a per stream:

| variance     |                                                                                                       |
|--------------|-------------------------------------------------------------------------------------------------------|
| *unbiased*   | T^2 less the sum over pairs of results of y y' / (their joint probability to be seen), a pair that    |
|              | agrees on exactly the streams A having product of 1/a_i over A times product of 1/d_i over the others;|
|              | by the P_A: s^2 P_{} - sum over A of P_A product over A of (-g_i) product over others of d_i          |
|              | (Horvitz and Thompson; for joins: Nirkhiwale, Dobra and Jermaine 2013, "a sampling algebra")          |
| *one by one* | the sum of the variances of T in each stream, with all other streams fixed:                           |
|              | sum over i of s^2 (1 - n_i/N_i) n_i / (n_i - 1) (P_i - P_{} / n_i)                                    |

The second is the unbiased estimate of the Efron-Stein bound: it is at least the true variance and at most k times that,
and both agree if there are many results per row. The first is noisier. So the variance used is the first plus `CAUTION`
times its own standard error, but not more than the second, nor less than a k-th of it. The standard error comes from
the fourth moments of the rows, which a sketch gives as well, and from the noise of the sketches.

The interval. A sum of few large parts is skewed, and its standard error sigma grows with it: a sample with too small a
sum also has too small a sigma. If sigma is proportional to T, log T has a constant standard error. In general let b be
sigma / (s times the sum of |y|): the relative error if all y have one sign, and near 0 if they cancel out. Then

    T + sigma (exp(b t) - 1) / b        and        T + sigma (exp(-b t) - 1) / b

are the ends, from T exp(+-t sigma / T) for one sign to T +- t sigma. t is Student's quantile, with the degrees of
freedom of the variance. An average is a ratio of sums; to first order it varies as the sum of y - average, divided by
the count.

*Known limitation.* If a few rows that have not arrived yet hold most of the final sum, intervals are too short.
`benchmarks/confidence_coverage.py` measures by how much.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CAUTION = 1.0
"""Standard errors that are added to the estimate of a variance."""
FREEDOM_MIN = 2.0
"""The minimum degrees of freedom: a few results do not show fewer."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows seen of each stream, and its final number of rows; a stream with at least that many is complete."""

    seen: tuple[int, ...]
    total: tuple[int, ...]

    @property
    def is_complete(self) -> bool:
        return all(n >= total for n, total in zip(self.seen, self.total, strict=True))

    @property
    def tells(self) -> bool:
        """Whether every stream has two rows, or all its rows: with less, a variance is unknown."""
        return all(n >= min(2, total) for n, total in zip(self.seen, self.total, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The sum so far, per group, of a value of the results: of y for SUM and AVG, of 1 (y is not NULL) for COUNT."""

    sums: Floats
    magnitudes: Floats
    """The sum of |y|."""
    sketches: Floats
    """[group, set of streams, bucket], as by `engine.sketch.sketch`."""


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Estimates of final values, per group, and the ends of their intervals; NaN if unknown."""

    estimate: Floats
    low: Floats
    high: Floats


def final_sum(so_far: Running, arrivals: Arrivals, level: float = 0.95) -> Intervals:
    """The final SUM. Without any result other than 0 the ends are unknown, unless all rows have arrived."""
    if arrivals.is_complete:
        return Intervals(so_far.sums, so_far.sums, so_far.sums)
    scale = _scale(arrivals)
    spread = _spread(so_far.sums, so_far.sketches, arrivals)
    return _ends(scale * so_far.sums, spread, scale * so_far.magnitudes, level)


def final_count(so_far: Running, arrivals: Arrivals, level: float = 0.95) -> Intervals:
    """The final COUNT, which is not less than the count so far."""
    found = final_sum(so_far, arrivals, level)
    return Intervals(found.estimate, np.maximum(found.low, so_far.sums), found.high)


def final_average(so_far: Running, count: Running, arrivals: Arrivals, level: float = 0.95) -> Intervals:
    """The final AVG, from a sum and a count over the same results.

    The ends are unknown while all results contain the same row of an incomplete stream.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        average = so_far.sums / count.sums
        if arrivals.is_complete:
            return Intervals(average, average, average)
        rest = so_far.sketches - average[:, None, None] * count.sketches
        spread = _spread(np.zeros_like(average), rest, arrivals)
        deviation = spread.deviation / (_scale(arrivals) * count.sums)
        spread = _Spread(np.where(_depends_on_one_row(count, arrivals), np.nan, deviation), spread.freedom)
        return _ends(average, spread, so_far.magnitudes / count.sums, level)


def _depends_on_one_row(count: Running, arrivals: Arrivals) -> npt.NDArray[np.bool_]:
    """Whether all results contain the same row of some incomplete stream."""
    found = np.zeros(len(count.sums), dtype=np.bool_)
    for i, (n, total) in enumerate(zip(arrivals.seen, arrivals.total, strict=True)):
        if n < total:
            found |= np.square(count.sketches[:, (1 << i) - 1]).sum(axis=-1) == np.square(count.sums)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """The standard error of an estimate, and its degrees of freedom; NaN if unknown."""

    deviation: Floats
    freedom: Floats


def _spread(sums: Floats, sketches: Floats, arrivals: Arrivals) -> _Spread:
    if not arrivals.tells:
        unknown = np.full(len(sums), np.nan)
        return _Spread(unknown, unknown)
    with np.errstate(over="ignore", invalid="ignore"):
        moments = np.square(sketches).sum(axis=-1)
        variance = unbiased_variance(sums, moments, arrivals)
        bound = variance_one_by_one(sums, moments, arrivals)
        noise = np.sqrt(2 / sketches.shape[-1] * np.square(_coefficients(arrivals)[1:] * moments).sum(axis=-1))
        error = np.sqrt(_variance_by_rows(sketches, moments, arrivals) + np.square(noise))
        used = np.clip(np.maximum(variance, 0) + CAUTION * error, bound / len(arrivals.seen), np.hypot(bound, noise))
        ratio = np.divide(used, error, out=np.full(len(sums), np.inf), where=error != 0)
        return _Spread(np.sqrt(used), np.maximum(2 * np.square(ratio), FREEDOM_MIN))


def unbiased_variance(sums: Floats, moments: Floats, arrivals: Arrivals) -> Floats:
    """The unbiased estimate; may be negative."""
    weights = _coefficients(arrivals)
    return weights[0] * np.square(sums) + (weights[1:] * moments).sum(axis=-1)


def variance_one_by_one(sums: Floats, moments: Floats, arrivals: Arrivals) -> Floats:
    """The sum of the variances in each stream, given the others."""
    found = np.zeros(len(sums))
    for i, (n, weight) in enumerate(zip(arrivals.seen, _row_weights(arrivals), strict=True)):
        found += weight * np.maximum(moments[:, (1 << i) - 1] - np.square(sums) / max(n, 1), 0)
    return found


def _variance_by_rows(sketches: Floats, moments: Floats, arrivals: Arrivals) -> Floats:
    """The variance of the variance that comes from the choice of the sample's rows.

    It is the sum over rows of the fourth powers of their contributions. The mean is not subtracted; this is on the safe
    side. Rows that share a bucket add to the sum of fourth powers of buckets three times the square of the second
    moment, divided by the number of buckets.
    """
    found = np.zeros(len(moments))
    for i, (n, weight) in enumerate(zip(arrivals.seen, _row_weights(arrivals), strict=True)):
        square = np.square(moments[:, (1 << i) - 1])
        fourth = np.power(sketches[:, (1 << i) - 1], 4).sum(axis=-1) - 3 / sketches.shape[-1] * square
        found += weight**2 * np.clip(fourth, square / max(n, 1), square)
    return found


def _coefficients(arrivals: Arrivals) -> Floats:
    """The coefficient of each P_A in the unbiased variance, by set of streams, the empty set first."""
    factors = [_factors(n, total) for n, total in zip(arrivals.seen, arrivals.total, strict=True)]
    found = np.empty(1 << len(factors))
    for subset in range(len(found)):
        found[subset] = -prod(a - d if subset >> i & 1 else d for i, (a, d) in enumerate(factors))
    found[0] += prod(a * a for a, _ in factors)
    return found


def _row_weights(arrivals: Arrivals) -> list[float]:
    """Per stream, the weight in the variance of T of the squared deviations of its rows from their mean."""
    scale = _scale(arrivals)
    factors = (_factors(n, total) for n, total in zip(arrivals.seen, arrivals.total, strict=True))
    return [scale * scale * (d - a) / (a * a) for a, d in factors]


def _factors(n: int, total: int) -> tuple[float, float]:
    """1 / the probability that a row is seen, and 1 / the probability that two given rows are."""
    if n >= total:
        return 1.0, 1.0
    return total / n, total / n * (total - 1) / (n - 1)


def _scale(arrivals: Arrivals) -> float:
    """The expected number of final results per result seen."""
    pairs = zip(arrivals.seen, arrivals.total, strict=True)
    return prod(1.0 if n >= total else total / n if n else np.nan for n, total in pairs)


def _ends(estimate: Floats, spread: _Spread, magnitude: Floats, level: float) -> Intervals:
    known = (magnitude > 0) & np.isfinite(spread.deviation)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bend = np.sign(estimate) * spread.deviation / magnitude
        reach = student_quantile(level, spread.freedom)
        up, down = (np.where(bend == 0, t, np.expm1(bend * t) / bend) for t in (reach, -reach))
        low, high = estimate + spread.deviation * down, estimate + spread.deviation * up
    return Intervals(estimate, np.where(known, low, np.nan), np.where(known, high, np.nan))


def student_quantile(level: float, freedom: Floats) -> Floats:
    """The t for which [-t, t] holds a share of `level` of Student's distribution; for two degrees of freedom and more.

    Within 2 % for levels up to 95 %, and up to 99 % from three degrees on within 3 % (Peizer and Pratt 1968).
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    with np.errstate(invalid="ignore"):
        bent = (freedom - 5 / 6) / np.square(freedom - 2 / 3 + 0.1 / freedom)
        near = np.sqrt(freedom * np.expm1(z * z * bent))
    return np.where(np.isinf(freedom), z, near)
