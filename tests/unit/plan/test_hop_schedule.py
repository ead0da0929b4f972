"""Few stages for inputs that go by sequences of keys."""

import random
from itertools import count

import pytest

from watersmeet.plan.hop_schedule import few_stages


def fewest(walks: list[str]) -> int:
    """By looking at all places that can be reached."""
    reached = {(0,) * len(walks)}
    for stages in count():
        if tuple(map(len, walks)) in reached:
            return stages
        reached = {
            tuple(at + walk.startswith(key, at) for walk, at in zip(walks, places, strict=True))
            for places in reached
            for key in "xyz"
        }
    raise AssertionError


def drawn(rng: random.Random, walks: int, steps: int) -> list[str]:
    """No key twice in a row: rows stay where they are as long as they can."""
    found = []
    for _ in range(walks):
        walk = ""
        for _ in range(rng.randint(0, steps)):
            walk += rng.choice([key for key in "xyz" if not walk.endswith(key)])
        found.append(walk)
    return found


def is_served(walk: str, stages: tuple[str, ...]) -> bool:
    """Whether a walk comes to its end if it takes a step wherever it can."""
    at = 0
    for key in stages:
        at += walk.startswith(key, at)
    return at == len(walk)


@pytest.mark.parametrize(("walks", "steps"), [(1, 4), (3, 3), (4, 4), (5, 3)])
def test_small_nodes_have_the_fewest_stages(walks, steps):
    rng = random.Random(walks)
    for _ in range(60):
        given = drawn(rng, walks, steps)
        found = few_stages(given)
        assert all(is_served(walk, found) for walk in given)
        assert len(found) == fewest(given)


def test_large_nodes_are_served_too_and_names_of_keys_do_not_matter():
    rng = random.Random(9)
    for _ in range(5):
        given = drawn(rng, 8, 10)
        found = few_stages(given)
        assert all(is_served(walk, found) for walk in given)
        named = {"x": 7, "y": 0, "z": 3}
        assert few_stages([[named[key] for key in walk] for walk in given]) == tuple(named[key] for key in found)


def test_nobody_needs_no_stage():
    assert few_stages(["", ""]) == ()
