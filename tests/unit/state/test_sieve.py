"""Sieves: they hold back absent keys, and never one that is there."""

import numpy as np
import pytest

from watersmeet.state.sieve import KEYS_MIN, Lookup, sieve_of


@pytest.mark.parametrize("low", [0, 1 << 63], ids=["low hashes", "high hashes"])
@pytest.mark.parametrize("span", [KEYS_MIN, 1 << 40, (1 << 63) - 1], ids=["dense", "part", "half of all"])
def test_no_hash_that_is_there_is_held_back_and_most_others_are(low, span):
    rng = np.random.default_rng(3)
    drawn = np.unique(rng.integers(low, low + span, 2 * KEYS_MIN, dtype=np.uint64, endpoint=True))
    sieve = sieve_of(drawn[::2].repeat(8))
    known = drawn[::2]
    assert sieve.may_have(Lookup(known), 0, len(known)).tolist() == list(range(len(known)))
    assert sieve.may_have(Lookup(known), 5, 8).tolist() == [5, 6, 7]
    absent = np.setdiff1d(drawn[1:-1:2], known)
    assert len(sieve.may_have(Lookup(absent), 0, len(absent))) < 0.3 * len(absent)


def test_all_hashes_may_be_one():
    sieve = sieve_of(np.full(KEYS_MIN, 7, dtype=np.uint64))
    assert sieve.may_have(Lookup(np.full(3, 7, dtype=np.uint64)), 0, 3).tolist() == [0, 1, 2]


def test_what_was_looked_up_serves_runs_of_any_density():
    rng = np.random.default_rng(5)
    hashes = np.sort(rng.integers(0, 1 << 64, 8 * KEYS_MIN, dtype=np.uint64))
    lookup = Lookup(hashes)
    for run in (hashes, hashes[::3], hashes[KEYS_MIN : 3 * KEYS_MIN], hashes[-KEYS_MIN:]):
        low, high = np.searchsorted(hashes, run[[0, -1]])
        assert set(np.searchsorted(hashes, run)) <= set(sieve_of(run).may_have(lookup, int(low), int(high) + 1))


def test_short_runs_need_no_sieve():
    assert sieve_of(np.arange(KEYS_MIN - 1, dtype=np.uint64)) is None
