"""A short sequence of stages for a mixed node in which each input has a sequence of keys to follow.

A stage has one key, and every input whose next key it is takes a step. So the keys of the stages are a common
supersequence of the given sequences. The shortest takes exponential time, so this is a beam search: all prefixes are
extended one stage at a time, and the WIDTH states with the fewest remaining steps are kept. With four inputs that is
nearly all of them; with eight it takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

WIDTH = 64

Key = TypeVar("Key", bound=Hashable)


def few_stages(walks: Sequence[Sequence[Key]]) -> tuple[Key, ...]:
    """The keys of the stages. The result depends only on which keys are equal."""
    reached: dict[tuple[int, ...], tuple[Key, ...]] = {(0,) * len(walks): ()}
    while True:
        following: dict[tuple[int, ...], tuple[Key, ...]] = {}
        for places, keys in reached.items():
            ahead = dict.fromkeys([walk[at] for walk, at in zip(walks, places, strict=True) if at < len(walk)])
            if not ahead:
                return keys
            for key in ahead:
                moved = [
                    at + 1 if at < len(walk) and walk[at] == key else at for walk, at in zip(walks, places, strict=True)
                ]
                following.setdefault(tuple(moved), (*keys, key))
        if len(following) > WIDTH:
            following = dict(sorted(following.items(), key=lambda found: -sum(found[0]))[:WIDTH])
        reached = following
