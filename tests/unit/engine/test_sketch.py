"""Sketches add up, follow their values linearly, and show second and fourth moments of what rows contribute."""

import numpy as np
import pytest

from watersmeet.engine.sketch import BUCKETS, CHUNK, STREAMS_MAX, sketch, subset_count

STREAMS, RESULTS, GROUPS = 3, 3000, 4


def some_results(results=RESULTS, seed=1, streams=STREAMS):
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, 1 << 63, 40).astype(np.uint64)[rng.integers(0, 40, results)] for _ in range(streams)]
    return ids, rng.exponential(size=results), rng.integers(0, GROUPS, results)


def row_sums(ids, values, subset):
    """The sum of the values per tuple of rows of the streams in a set."""
    rows = np.stack([stream for number, stream in enumerate(ids) if subset >> number & 1])
    return np.bincount(np.unique(rows, axis=1, return_inverse=True)[1].ravel(), values)


def test_sketches_of_parts_add_up_to_that_of_all():
    ids, values, groups = some_results()
    order = np.random.default_rng(2).permutation(RESULTS)
    parts = [order[:100], order[100:101], order[101:101], order[101:]]
    total = sum(sketch([i[part] for i in ids], [values[part]], groups[part], GROUPS) for part in parts)
    whole = sketch(ids, [values], groups, GROUPS)
    assert whole.shape == (1, GROUPS, subset_count(STREAMS), BUCKETS)
    np.testing.assert_allclose(total, whole, atol=1e-9)


def test_chunks_do_not_show():
    ids, values, groups = some_results(3 * CHUNK + 5)
    whole = sketch(ids, [values], groups, GROUPS)
    halves = [
        sketch([i[part] for i in ids], [values[part]], groups[part], GROUPS) for part in (slice(7), slice(7, None))
    ]
    np.testing.assert_allclose(halves[0] + halves[1], whole, atol=1e-8)


def test_a_group_is_sketched_as_if_it_were_alone():
    ids, values, groups = some_results()
    own = groups == 2
    alone = sketch([i[own] for i in ids], [values[own]], np.zeros(own.sum(), dtype=np.int64), 1)
    np.testing.assert_allclose(sketch(ids, [values], groups, GROUPS)[0, 2], alone[0, 0], atol=1e-9)


def test_values_share_buckets_and_signs():
    ids, values, groups = some_results()
    both = sketch(ids, [values, np.ones(RESULTS)], groups, GROUPS)
    (rest,) = sketch(ids, [values - 0.7], groups, GROUPS)
    np.testing.assert_allclose(both[0] - 0.7 * both[1], rest, atol=1e-9)


def test_the_same_rows_make_the_same_sketch_everywhere():
    """Sketches are kept in checkpoints: hashes must never change."""
    ids = [np.array([1, 2], dtype=np.uint64), np.array([3, 3], dtype=np.uint64)]
    found = sketch(ids, [np.array([1.0, 10.0])], np.zeros(2, dtype=np.int64), 1)[0, 0]
    assert [{bucket: row[bucket] for bucket in np.flatnonzero(row)} for row in found] == [
        {36: -1.0, 37: 10.0},
        {44: -11.0},
        {8: 10.0, 48: 1.0},
    ]


@pytest.mark.parametrize("streams", [1, 2, 3, STREAMS_MAX])
def test_moments_are_unbiased_for_every_set_of_streams(streams):
    results, salts = 500, 200
    ids, values, _ = some_results(results, streams=streams)
    group = np.zeros(results, dtype=np.int64)
    found = np.stack([sketch(ids, [values], group, 1, 16, salt)[0, 0] for salt in range(salts)])
    for subset in range(1, 1 << streams):
        sums = row_sums(ids, values, subset)
        second, fourth = (sums**2).sum(), (sums**4).sum()
        mine = found[:, subset - 1]
        estimates = (mine**2).sum(axis=-1)
        assert abs(estimates.mean() / second - 1) < 4 * np.sqrt(2 / 16 / salts)
        assert abs(estimates.std() / second / np.sqrt(2 / 16 * (1 - fourth / second**2)) - 1) < 0.2
        mixed = fourth + 3 / 16 * (second**2 - fourth)
        assert abs((mine**4).sum(axis=-1).mean() / mixed - 1) < 0.25


def test_pairs_of_rows_that_form_a_square_are_signed_independently():
    """Sums or exclusive ors of hashes per stream would make the product of these four signs 1, always."""
    ids = [np.array(column, dtype=np.uint64) for column in ([1, 1, 2, 2], [3, 4, 3, 4])]
    group = np.zeros(4, dtype=np.int64)
    values = [np.eye(4)[row] for row in range(4)]
    products = [np.prod(sketch(ids, values, group, 1, salt=salt)[:, 0, 2].sum(axis=-1)) for salt in range(400)]
    assert abs(np.mean(products)) < 4 / np.sqrt(400)


def test_no_results_make_an_empty_sketch():
    nothing = [np.empty(0, dtype=np.uint64)] * 2
    assert not sketch(nothing, [np.empty(0)], np.empty(0, dtype=np.int64), 3).any()
