"""Random join graphs by shape: what the optimiser is tested on and measured by."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, as_streams

Shape = Callable[[int, random.Random], list[int]]
"""The streams of each key class, as bits."""


def tree(n: int, rng: random.Random) -> list[int]:
    return [1 << i | 1 << rng.randrange(i) for i in range(1, n)]


def star(n: int, rng: random.Random) -> list[int]:
    return [1 << i | 1 for i in range(1, n)]


def chain(n: int, rng: random.Random) -> list[int]:
    return [1 << i | 1 << (i - 1) for i in range(1, n)]


def cyclic(n: int, rng: random.Random) -> list[int]:
    """A tree, and a third of all other pairs."""
    found = tree(n, rng)
    more = [1 << i | 1 << j for i, j in combinations(range(n), 2)]
    return [*found, *(pair for pair in more if pair not in found and rng.random() < 0.33)]


def clique(n: int, rng: random.Random) -> list[int]:
    return [1 << i | 1 << j for i, j in combinations(range(n), 2)]


def classes(n: int, rng: random.Random) -> list[int]:
    """Key classes over two to four streams that make a tree."""
    left, done, found = list(range(1, n)), [0], []
    while left:
        members = [left.pop() for _ in range(min(len(left), rng.randint(1, 3)))]
        found.append(as_streams([*members, rng.choice(done)]))
        done += members
    return found


def one_class(n: int, rng: random.Random) -> list[int]:
    return [(1 << n) - 1]


SHAPES: dict[str, Shape] = {
    "tree": tree,
    "star": star,
    "chain": chain,
    "cyclic": cyclic,
    "clique": clique,
    "classes": classes,
    "one class": one_class,
}


def random_graph(
    n: int, shape: str, rng: random.Random, *, windows: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0), wide: bool = True
) -> JoinGraph:
    """Rates of 1 to 100 a second; selectivities even in (0, 1), as in the dissertation (8.2), or, where `wide`, even in
    their logarithm from 0.0001 to 1, so that a join makes more of its rows or fewer."""
    streams = tuple(StreamFigures(f"s{i}", rng.uniform(1, 100), rng.choice(windows)) for i in range(n))
    linked = SHAPES[shape](n, rng)
    return JoinGraph(streams, tuple(Predicate(each, _selectivity(rng, wide)) for each in linked))


def _selectivity(rng: random.Random, wide: bool) -> float:
    return 10 ** rng.uniform(-4, 0) if wide else rng.uniform(0.001, 1)
