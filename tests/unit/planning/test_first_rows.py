"""Shares of combinations that pass, learned from some rows."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.planning import first_rows
from watersmeet.planning.first_rows import (
    BLOCK_BYTES,
    COMBINATIONS,
    SAMPLE_BYTES,
    SAMPLE_ROWS,
    TESTED_BYTES,
    TESTING_S,
    equal_share,
    passing_share,
    rows_by_key,
    rows_to_sample,
)
from watersmeet.query.expressions import Expression
from watersmeet.query.logical import Stream, build_query
from watersmeet.query.registered import registered

SCHEMA = pa.schema([("k", pa.int64()), ("u", pa.float64()), ("s", pa.string())])


def residual(text: str, names: str = "ab", function=None) -> Expression:
    streams = [Stream(name, SCHEMA) for name in names]
    linked = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    functions = {} if function is None else {"f": registered("f", function, vectorized=False)}
    query = build_query(streams, where=[linked, text], within=None, windows={}, select=["a.u"], functions=functions)
    (found,) = query.residuals
    return found


def rows(values: list[float] | np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(np.asarray(values, dtype=float))], names=["u"])


def test_pairs_with_equal_keys_by_all_pairs_of_all_streams():
    by_key = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0]])
    assert equal_share(by_key, [3, 4, 1], [0, 1, 2]) == (2 * 1 + 3 * 1) / (3 * 4 + 3 * 1 + 4 * 1)
    assert equal_share(by_key, [3, 4, 1], [0, 2]) == 0.5 / 3
    assert equal_share(by_key, [3, 0, 1], [0, 1]) is None


def test_all_rows_by_key():
    found = rows_by_key(np.array([7, -3, 7, 7]), np.array([0, 1, 1, 0]), np.ones(4, dtype=bool), part=1, streams=2)
    assert found.tolist() == [[0, 1], [2, 1]]


@pytest.mark.parametrize(("keys", "exponent"), [(3, 0.0), (10, 0.0), (1000, 0.0), (100_000, 0.0), (10_000, 1.2)])
def test_a_part_of_the_rows_tells_of_few_keys_and_of_many_and_of_unequal_ones(keys, exponent):
    """Two streams of 300,000 rows, of which a tenth is counted in each way, as often as 20 times."""
    chances = np.arange(1, keys + 1) ** -exponent
    chances /= chances.sum()
    ratios = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        hash_of_key = rng.integers(-(2**62), 2**62, keys)
        hashes, stream = hash_of_key[rng.choice(keys, 600_000, p=chances)], np.repeat([0, 1], 300_000)
        by_chance = rng.random(600_000) < 0.1
        kept = by_chance | (hashes % 10 == 0)
        found = rows_by_key(hashes[kept], stream[kept], by_chance[kept], part=10, streams=2)
        ratios.append(equal_share(found, [300_000, 300_000], [0, 1]) / (chances**2).sum())
    assert np.std(ratios) < 0.06
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)


def test_few_combinations_are_all_tested():
    assert passing_share(residual("a.u < b.u"), {"a": rows([1, 2, 3]), "b": rows([2, 3])}) == 3 / 6
    assert passing_share(residual("a.u < b.u"), {"a": rows([5]), "b": rows([2, 3])}) == 0.5 / 2
    assert passing_share(residual("a.u < b.u"), {"a": rows([]), "b": rows([2, 3])}) is None


@pytest.mark.parametrize("share", [0.05, 0.33, 0.5])
def test_of_many_combinations_some_tell_within_a_few_percent(share):
    """b.u is even in (0, 2 share), so that a.u < b.u for that share of all pairs."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        samples = {"a": rows(rng.random(SAMPLE_ROWS)), "b": rows(rng.random(SAMPLE_ROWS) * 2 * share)}
        found.append(passing_share(residual("a.u < b.u"), samples))
    assert np.std(found) < 0.05 * share
    assert abs(np.mean(found) / share - 1) < 0.02


def test_every_row_takes_part():
    """One row in SAMPLE_ROWS passes with all others: it is in COMBINATIONS / SAMPLE_ROWS of those tested."""
    some = np.zeros(SAMPLE_ROWS)
    some[17] = 2.0
    found = passing_share(residual("a.u > b.u"), {"a": rows(some), "b": rows(np.ones(SAMPLE_ROWS))})
    assert found == (COMBINATIONS / SAMPLE_ROWS) / COMBINATIONS


def test_three_streams_are_combined():
    samples = {name: rows(np.random.default_rng(ord(name)).random(500)) for name in "abc"}
    assert passing_share(residual("a.u < b.u AND b.u < c.u OR a.u + b.u + c.u < 0", "abc"), samples) == pytest.approx(
        1 / 6, rel=0.1
    )


@pytest.mark.parametrize(
    ("row_bytes", "count"), [(0, SAMPLE_ROWS), (8, SAMPLE_ROWS), (60_000, 1118), (SAMPLE_BYTES * 3, 1)]
)
def test_of_wide_rows_fewer_are_sampled(row_bytes, count):
    assert rows_to_sample(row_bytes) == count


@pytest.fixture
def evaluations(monkeypatch):
    """The rows of each evaluation, and the bytes of all columns that it reads."""
    seen = []
    real = first_rows.evaluate

    def watched(predicate, column, rows):
        read = {}

        def noting(ref):
            values = column(ref)
            read[ref] = values.nbytes
            return values

        found = real(predicate, noting, rows)
        seen.append((rows, sum(read.values())))
        return found

    monkeypatch.setattr(first_rows, "evaluate", watched)
    return seen


def strings(count: int, width: int, seed: int) -> pa.RecordBatch:
    """The first letter is one of four, by chance."""
    letters = np.random.default_rng(seed).integers(0, 4, count)
    return pa.RecordBatch.from_arrays([pa.array(["abcd"[i] + "x" * (width - 1) for i in letters])], names=["s"])


def test_wide_values_are_gathered_in_blocks_of_bounded_bytes(evaluations):
    samples = {"a": strings(1118, 60_000, 0), "b": strings(1118, 60_000, 1)}
    share = passing_share(residual("a.s < b.s"), samples)
    assert max(gathered for _, gathered in evaluations) < 1.1 * BLOCK_BYTES
    assert 0.9 * TESTED_BYTES < sum(gathered for _, gathered in evaluations) < 1.1 * TESTED_BYTES
    assert share == pytest.approx(6 / 16, rel=0.1)


def test_few_rows_with_one_very_wide_value(evaluations):
    """All combinations are few, and one row alone has most of the bytes."""
    wide = pa.RecordBatch.from_arrays([pa.array(["a" * BLOCK_BYTES, *"bcd"])], names=["s"])
    share = passing_share(residual("a.s <= b.s"), {"a": wide, "b": wide})
    assert max(gathered for _, gathered in evaluations) <= 2.1 * BLOCK_BYTES
    assert 0 < share < 1


def test_narrow_values_are_all_tested(evaluations):
    samples = {"a": strings(SAMPLE_ROWS, 20, 0), "b": strings(SAMPLE_ROWS, 20, 1)}
    assert passing_share(residual("a.s < b.s"), samples) == pytest.approx(6 / 16, rel=0.05)
    assert sum(count for count, _ in evaluations) == COMBINATIONS


@pytest.mark.parametrize("count", [90, SAMPLE_ROWS])
def test_a_slow_predicate_is_stopped_and_what_was_tested_counts(monkeypatch, evaluations, count):
    """By a clock that only the predicate moves, a millisecond a call. The first half of the rows of a fails, the second
    passes: half of what is tested must pass, however early the test ends."""
    now = [0.0]
    monkeypatch.setattr(first_rows.time, "perf_counter", lambda: now[0])

    def slow(x, y):
        now[0] += 0.001
        return x < y

    samples = {"a": rows(np.arange(count) >= count / 2), "b": rows(np.full(count, 0.5))}
    share = passing_share(residual("f(a.u, b.u)", function=slow), samples)
    assert sum(tested for tested, _ in evaluations) == pytest.approx(TESTING_S / 0.001, rel=0.01)
    assert share == pytest.approx(0.5, abs=0.06)
