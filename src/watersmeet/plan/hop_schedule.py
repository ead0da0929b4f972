"""In which few stages the inputs of a mixed node can be served, when each has a sequence of keys to go by.

A stage has one key, and everyone whose next key it is takes a step. So the keys of the stages are a sequence that holds
each of the given ones in its order: a shortest common supersequence. To find it takes exponential time; here all
prefixes are followed at once, one stage at a time, and of those that have come to different places the WIDTH are kept
that leave fewest steps. With four inputs that is nearly all of them, and with eight it takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

WIDTH = 64

Key = TypeVar("Key", bound=Hashable)


def few_stages(walks: Sequence[Sequence[Key]]) -> tuple[Key, ...]:
    """The keys of the stages. It depends on which keys are equal, and not on what they are."""
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
