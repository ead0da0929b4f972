"""The hops of mixed nodes, as the optimiser counts them, against those that the engine plans."""

import random

import pytest

from benchmarks.random_graphs import SHAPES
from tests.unit.plan.linked import linked_query
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, as_streams, bits
from watersmeet.optimizer.stage_keys import walks_along
from watersmeet.plan.hops import hop_orders, hop_stages
from watersmeet.plan.probe_orders import default_orders
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


def held_along(start: int, targets: list[int]) -> list[int]:
    """What rows hold before each probe."""
    return [start | sum(targets[:place]) for place in range(len(targets))]


@pytest.mark.parametrize("given", [False, True], ids=["by the rule", "along orders"])
@pytest.mark.parametrize("shape", SHAPES)
def test_inputs_hop_as_in_the_engine(shape, given):
    rng = random.Random(shape)
    without_key = 0
    for _ in range(40):
        count = rng.randint(3, 8)
        query = linked_query(count, drawn_links(count, shape, rng))
        node = Join(drawn_inputs(count, rng))
        if len(node.inputs) < 2:
            continue
        graph = graph_of(query, Assumptions({stream.name: 1.0 for stream in query.streams}))
        inputs = tuple(as_streams(streams_of(each)) for each in node.inputs)
        if given:
            orders = tuple(tuple(rng.sample(order, len(order))) for order in default_orders(node))
            found, stages = walks_along(graph, inputs, orders), hop_stages(query, node, orders)
            assert found.orders == orders
        else:
            found, stages = hop_walks(graph, inputs), hop_stages(query, node)
            assert hop_stages(query, node, found.orders) == stages
        assert found.orders == hop_orders(stages, len(inputs))
        assert found.stages == len(stages)
        highest = len(query.classes) - 1
        for i, streams in enumerate(inputs):
            hops = [hop for hop in found.hops if hop.origins & streams]
            steps = [step for stage in stages for step in stage.steps if step.origin == i]
            keys = [as_streams(highest - each for each in step.key) for step in steps for _ in step.targets]
            assert [hop.key for hop in hops] == keys
            assert [hop.target for hop in hops] == [j for step in steps for j in step.targets]
            assert [hop.is_sent for hop in hops] == [not place for s in steps for place in range(len(s.targets))]
            assert [hop.is_new for hop in hops] == [True, *[False] * (len(hops) - 1)]
            assert [hop.held for hop in hops] == held_along(streams, [inputs[hop.target] for hop in hops])
            without_key += keys.count(0)
    assert without_key > 0


def test_what_is_sent_together_is_sent_once():
    """A reaches B and C under one key, and D under another."""
    streams = tuple(StreamFigures(name, 1.0, 1.0) for name in "ABCD")
    graph = JoinGraph(streams, (Predicate(0b0111, 0.1), Predicate(0b1100, 0.1)))
    hops = [hop for hop in hop_walks(graph, (1, 2, 4, 8)).hops if hop.origins & 1]
    assert [(hop.target, hop.is_sent) for hop in hops] == [(1, True), (2, False), (3, True)]


def test_what_holds_the_same_is_counted_once():
    """A and B meet under their key, and go on to C as one."""
    streams = tuple(StreamFigures(name, 1.0, 1.0) for name in "ABC")
    graph = JoinGraph(streams, (Predicate(0b011, 0.1), Predicate(0b110, 0.1)))
    hops = hop_walks(graph, (1, 2, 4)).hops
    assert [(hop.origins, hop.held, hop.target) for hop in hops if hop.origins & 1] == [(1, 1, 1), (3, 3, 2)]
