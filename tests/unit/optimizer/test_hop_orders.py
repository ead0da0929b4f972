"""The hops of mixed nodes, against the engine's rule written down plainly."""

import random
from collections import Counter

import pytest

from benchmarks.random_graphs import SHAPES, random_graph
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, bits
from watersmeet.optimizer.shapes import Inputs


def stages_one_by_one(graph: JoinGraph, inputs: Inputs) -> tuple[list[list[tuple[int, int]]], int]:
    """By input: whom it probes under which key; and in how many stages."""
    everyone = range(len(inputs))
    bound = list(inputs)
    left = [[j for j in everyone if j != i] for i in everyone]
    walks: list[list[tuple[int, int]]] = [[] for _ in everyone]
    stages = 0
    while any(left):
        keys = [{j: graph.shared_classes(bound[i], inputs[j]) for j in left[i]} for i in everyone]
        possible = Counter(key for mine in keys for key in set(mine.values()) if key)
        in_order = sorted(possible, key=lambda key: tuple(bits(key)))
        key = max(in_order, key=lambda each: possible[each]) if possible else 0
        for i, mine in enumerate(keys):
            for j in [j for j in mine if mine[j] == key][: None if key else 1]:
                left[i].remove(j)
                walks[i].append((j, key))
                bound[i] |= inputs[j]
        stages += 1
    return walks, stages


def drawn_inputs(streams: int, rng: random.Random) -> Inputs:
    parts = [0] * rng.randint(2, streams)
    for i in range(streams):
        parts[rng.randrange(len(parts))] |= 1 << i
    return tuple(sorted(filter(None, parts), key=lambda part: part & -part))


@pytest.mark.parametrize("shape", SHAPES)
def test_inputs_hop_as_in_the_engine(shape):
    rng = random.Random(shape)
    for _ in range(25):
        graph = random_graph(rng.randint(3, 10), shape, rng)
        inputs = drawn_inputs(len(graph.streams), rng)
        if len(inputs) > 1:
            found = hop_walks(graph, inputs)
            walks = [list(zip(each.targets, each.keys, strict=True)) for each in found.of_input]
            assert (walks, found.stages) == stages_one_by_one(graph, inputs)


def test_what_is_sent_together_is_sent_once():
    """A reaches B and C under one key, and D under another."""
    streams = tuple(StreamFigures(name, 1.0, 1.0) for name in "ABCD")
    graph = JoinGraph(streams, (Predicate(0b0111, 0.1), Predicate(0b1100, 0.1)))
    walk = hop_walks(graph, (1, 2, 4, 8)).of_input[0]
    assert (walk.targets, walk.is_sent) == ([1, 2, 3], [True, False, True])
