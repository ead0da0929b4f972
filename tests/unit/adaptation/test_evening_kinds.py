"""The balancer with two kinds of load: one must not make up for the other, and one hot group must not stop the rest."""

import numpy as np

from watersmeet.adaptation.evening import evened

SLOTS = 10


def levels(slot, kinds):
    """By kind: the most loaded slot over the mean."""
    sums = np.array([np.bincount(slot, weights=kind, minlength=SLOTS) for kind in kinds])
    return (sums.max(axis=1) / sums.mean(axis=1)).tolist()


def test_memory_is_even_although_cpu_time_makes_up_for_it():
    slot = np.repeat(np.arange(SLOTS), 20)
    is_left = slot < SLOTS // 2
    kinds = np.array([np.where(is_left, 3.0, 1.0), np.where(is_left, 1.0, 3.0)])
    assert np.allclose(kinds.sum(axis=0), 4.0), "the sum of both is even"
    new = evened(slot, kinds, kinds[1], SLOTS)
    assert levels(slot, kinds) == [1.5, 1.5]
    assert max(levels(new, kinds)) <= 1.1


def test_a_group_too_hot_for_any_slot_does_not_keep_memory_uneven():
    slot = np.repeat(np.arange(SLOTS), 20)
    cpu, memory = np.ones(len(slot)), np.where(slot == 3, 5.0, 1.0)
    cpu[0] = 1000.0
    new = evened(slot, np.array([cpu, memory]), memory, SLOTS)
    assert new[0] == slot[0], "nobody can take the hot group"
    assert levels(slot, [memory])[0] > 3
    assert levels(new, [memory])[0] <= 1.3


def test_no_slot_gets_more_than_the_most_loaded_had():
    rng = np.random.default_rng(5)
    for _ in range(50):
        slot = rng.integers(0, SLOTS, 80)
        kinds = rng.pareto(1.5, (2, 80)) + 0.1
        new = evened(slot, kinds, kinds[1], SLOTS)
        assert max(levels(new, kinds)) <= max(levels(slot, kinds)) + 1e-9
