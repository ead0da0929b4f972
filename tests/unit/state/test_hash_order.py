"""Hashes are sorted, whatever they are."""

import numpy as np
import pytest

from watersmeet.state.hash_order import HASHES_MIN, sorted_hashes

RNG = np.random.default_rng(7)
MANY = 3 * HASHES_MIN
CASES = {
    "none": np.zeros(0),
    "few": RNG.integers(0, 1 << 63, 10),
    "spread evenly": RNG.integers(0, (1 << 64) - 1, MANY, dtype=np.uint64, endpoint=True),
    "with duplicates": RNG.integers(0, 1 << 63, MANY)[RNG.integers(0, 50, MANY)],
    "small numbers": RNG.integers(0, 1000, MANY),
    "equal": np.full(MANY, 5),
    "at both ends": np.tile(np.array([0, (1 << 64) - 1, 1 << 63, (1 << 48) - 1], dtype=np.uint64), HASHES_MIN),
    "descending": np.arange(MANY)[::-1] << 50,
}


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_hashes_ascend_and_each_comes_once(case, in_pieces):
    hashes = CASES[case].astype(np.uint64)
    order, ordered = sorted_hashes(hashes, in_pieces=in_pieces)
    assert (order.dtype, ordered.tolist()) == (np.int64, sorted(hashes.tolist()))
    assert hashes[order].tolist() == ordered.tolist()
    assert sorted(order.tolist()) == list(range(len(hashes)))
