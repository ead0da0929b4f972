"""Sieves: they hold back absent keys, and never one that is there."""

import numpy as np
import pytest

from watersmeet.state.sieve import KEYS_MIN, sieve_of


@pytest.mark.parametrize("low", [0, 1 << 63], ids=["low hashes", "high hashes"])
@pytest.mark.parametrize("span", [KEYS_MIN, 1 << 40, (1 << 63) - 1], ids=["dense", "part", "half of all"])
def test_no_hash_that_is_there_is_held_back_and_most_others_are(low, span):
    rng = np.random.default_rng(3)
    drawn = np.unique(rng.integers(low, low + span, 2 * KEYS_MIN, dtype=np.uint64, endpoint=True))
    sieve = sieve_of(drawn[::2].repeat(8))
    assert sieve.may_have(drawn[::2]).all()
    absent = np.setdiff1d(drawn[1:-1:2], drawn[::2])
    assert sieve.may_have(absent).mean() < 0.3


def test_all_hashes_may_be_one():
    sieve = sieve_of(np.full(KEYS_MIN, 7, dtype=np.uint64))
    assert sieve.may_have(np.full(3, 7, dtype=np.uint64)).all()


def test_short_runs_need_no_sieve():
    assert sieve_of(np.arange(KEYS_MIN - 1, dtype=np.uint64)) is None
