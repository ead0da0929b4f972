"""Shares of combinations that pass, learned from some rows."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.observe.first_rows import COMBINATIONS, SAMPLE_ROWS, equal_share, passing_share, rows_by_key
from watersmeet.query.expressions import Expression
from watersmeet.query.logical import Stream, build_query

SCHEMA = pa.schema([("k", pa.int64()), ("u", pa.float64())])


def residual(text: str, names: str = "ab") -> Expression:
    streams = [Stream(name, SCHEMA) for name in names]
    linked = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    (found,) = build_query(streams, where=[linked, text], within=None, windows={}, select=["a.u"]).residuals
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
