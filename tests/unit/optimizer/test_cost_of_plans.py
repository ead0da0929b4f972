"""The optimiser's costs against the plans that the engine runs: the same stages, stores and matches."""

import pyarrow as pa
import pytest

from watersmeet.observe.estimates import estimate
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.cost import CostModel, Keeping, Prices
from watersmeet.optimizer.join_graph import JoinGraph, as_streams
from watersmeet.plan.hops import hop_stages, is_mixed
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import Join, nodes_of, parse_tree, streams_of
from watersmeet.query.logical import JoinQuery, Stream, build_query

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
QUERIES = {
    "one key": ["a.x = b.x AND b.x = c.x AND c.x = d.x"],
    "chain of keys": ["a.x = b.x", "b.y = c.y", "c.z = d.z"],
    "two keys": ["a.x = b.x AND b.x = c.x", "c.y = d.y", "a.z < d.z"],
    "composite key": ["a.x = b.x AND a.y = b.y", "b.x = c.x", "c.z = d.z"],
    "no key": ["a.x < b.x", "b.y < c.y", "c.z = d.z"],
}
TREES = ["(a b c d)", "(((a b) c) d)", "((a b) (c d))", "((a b c) d)", "((a b) c d)", "(a (b (c d)))", "((a d) (b c))"]


def query_of(where: list[str]) -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts", 2_000_000) for name in "abcd"],
        where=where,
        within=None,
        windows={"a": "10 seconds", "b": "20 seconds", "c": "5 seconds", "d": "10 seconds"},
        select=["a.ts"],
    )


def orders_of(query: JoinQuery, node: Join) -> tuple[tuple[int, ...], ...]:
    """As the engine probes: in the order of the inputs, or of the hops of a mixed node."""
    everyone = range(len(node.inputs))
    if not is_mixed(query, node):
        return tuple(tuple(j for j in everyone if j != i) for i in everyone)
    steps = [step for stage in hop_stages(query, node) for step in stage.steps]
    return tuple(tuple(j for step in steps if step.origin == i for j in step.targets) for i in everyone)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("where", QUERIES.values(), ids=QUERIES)
def test_stages_stores_and_matches_are_those_of_the_plan(where, tree):
    query = query_of(where)
    given = Assumptions({"a": 10, "b": 20, "c": 30, "d": 5}, keys={0: 0.1, 1: 0.2, 2: 0.05}, residuals={0: 0.3, 1: 0.4})
    root = parse_tree(tree, "abcd")
    plan = plan_join(query, (root,), partitions=8)
    expected = estimate(query, plan, given)
    found = graph_of(query, given)
    graph = JoinGraph(
        tuple(type(s)(s.name, s.rate, s.window_s, 1.0) for s in found.streams),
        found.classes,
        found.others,
        found.delay_s,
        found.endless,
    )
    orders = {node: orders_of(query, node) for node in nodes_of(root)}

    def cost(keeping: Keeping = "engine", **prices: float):
        zero = {"insert_s": 0.0, "delete_s": 0.0, "join_s": 0.0}
        return CostModel(graph, Prices(**(zero | prices)), keeping=keeping).plan_with_orders(root, orders)

    assert cost(stage_s=1).cpu_s == len(plan.stages)
    matches = sum(node.matches_per_second for node in expected.nodes)
    assert cost("paper", join_s=1).cpu_s == pytest.approx(matches)
    assert cost(join_s=1).cpu_s >= matches * (1 - 1e-9)
    assert cost(insert_s=1).cpu_s == pytest.approx(sum(store.rows_per_second for store in expected.stores))
    stored = [(layout.tree, stage.key) for i, stage in enumerate(plan.stages) for layout in stage.stores(i, 0)]
    above = {child: node for node in nodes_of(root) for child in node.inputs}
    kept = []
    for tree_kept, key in stored:
        node = above[tree_kept]
        if is_mixed(query, node):  # what is indexed under one key is in one stage
            inside = [other for other, other_key in stored if other_key == key and above[other] == node]
        else:
            inside = list(node.inputs)
        streams = as_streams(i for each in inside for i in streams_of(each))
        kept.append(CostModel(graph).kept_bytes(as_streams(streams_of(tree_kept)), streams))
    assert cost().memory_bytes == pytest.approx(sum(kept))
    assert CostModel(found).plan_with_orders(root, orders).memory_bytes == pytest.approx(expected.state_bytes)


@pytest.mark.parametrize("where", QUERIES.values(), ids=QUERIES)
def test_rows_are_sent_where_the_plan_sends_them(where):
    """Every tree that a stage takes in has been sent there. (Hops also send arrivals to where an index is kept.)"""
    query = query_of(where)
    graph = graph_of(query, Assumptions({"a": 10, "b": 20, "c": 30, "d": 5}, keys={0: 0.1, 1: 0.2, 2: 0.05}))
    roots = [parse_tree(tree, "abcd") for tree in TREES]
    unmixed = [root for root in roots if not any(is_mixed(query, node) for node in nodes_of(root))]
    assert len(unmixed) > 1
    for root in unmixed:
        plan = plan_join(query, (root,), partitions=8)
        sent = [sum(1 << i for i in streams_of(layout.tree)) for stage in plan.stages for layout in stage.inputs]
        orders = {node: orders_of(query, node) for node in nodes_of(root)}
        found = CostModel(graph, Prices(0, 0, 0, exchange_s=1)).plan_with_orders(root, orders)
        assert found.cpu_s == pytest.approx(sum(graph.found(streams) for streams in sent))
