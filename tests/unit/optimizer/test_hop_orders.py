"""The hops of mixed nodes, as the optimiser counts them, against those that the engine plans."""

import random

import pytest

from benchmarks.random_graphs import SHAPES
from tests.unit.plan.linked import linked_query
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, as_streams, bits
from watersmeet.plan.hops import hop_stages
from watersmeet.plan.tree import Join, Leaf, Tree, streams_of


def drawn_inputs(streams: int, rng: random.Random) -> tuple[Tree, ...]:
    """Some streams, and results of others, by their least streams."""
    parts: list[list[int]] = [[] for _ in range(rng.randint(2, streams))]
    for i in range(streams):
        rng.choice(parts).append(i)
    return tuple(Join(tuple(map(Leaf, part))) if part[1:] else Leaf(part[0]) for part in sorted(filter(None, parts)))


def drawn_links(streams: int, shape: str, rng: random.Random) -> list[list[int]]:
    """Those of a shape; now and then without some, so that there may be streams that no key reaches."""
    kept = 1.0 if rng.random() < 0.6 else 0.4
    return [list(bits(link)) for link in SHAPES[shape](streams, rng) if rng.random() < kept]


@pytest.mark.parametrize("shape", SHAPES)
def test_inputs_hop_as_in_the_engine(shape):
    rng = random.Random(shape)
    without_key = 0
    for _ in range(40):
        count = rng.randint(3, 8)
        query = linked_query(count, drawn_links(count, shape, rng))
        node = Join(drawn_inputs(count, rng))
        if len(node.inputs) > 1:
            graph = graph_of(query, Assumptions({stream.name: 1.0 for stream in query.streams}))
            found = hop_walks(graph, tuple(as_streams(streams_of(each)) for each in node.inputs))
            stages = hop_stages(query, node)
            highest = len(query.classes) - 1
            for i, walk in enumerate(found.of_input):
                steps = [step for stage in stages for step in stage.steps if step.origin == i]
                keys = [as_streams(highest - each for each in step.key) for step in steps for _ in step.targets]
                assert (walk.targets, walk.keys) == ([j for step in steps for j in step.targets], keys)
                assert walk.is_sent == [place == 0 for step in steps for place in range(len(step.targets))]
                without_key += keys.count(0)
            assert found.stages == len(stages)
    assert without_key > 0


def test_what_is_sent_together_is_sent_once():
    """A reaches B and C under one key, and D under another."""
    streams = tuple(StreamFigures(name, 1.0, 1.0) for name in "ABCD")
    graph = JoinGraph(streams, (Predicate(0b0111, 0.1), Predicate(0b1100, 0.1)))
    walk = hop_walks(graph, (1, 2, 4, 8)).of_input[0]
    assert (walk.targets, walk.is_sent) == ([1, 2, 3], [True, False, True])
