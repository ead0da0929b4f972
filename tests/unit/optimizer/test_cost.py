"""Costs of trees: the formulas of chapter 4, and what this engine adds to them."""

import random
from dataclasses import replace

import pytest

from benchmarks.random_graphs import random_graph
from watersmeet.optimizer.cost import DEFAULT_PRICES, CostModel, Prices
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import JoinGraph, Predicate, StreamFigures, pairwise_graph
from watersmeet.optimizer.mjoin_ordering import order_probes
from watersmeet.optimizer.shapes import states_of
from watersmeet.optimizer.stage_keys import walks_along
from watersmeet.plan.tree import Join, nodes_of, parse_tree

# Figure 4.1 is lost; the orders of its mjoin are A-B-C, B-A-C, C-B-A, and its bjtree is ((A B) C). So AB is smaller
# than BC.
RATES, WINDOW, AB, BC = {"A": 10.0, "B": 20.0, "C": 30.0}, 5.0, 0.1, 0.2
FIGURE_4_1 = pairwise_graph(RATES, {"AB": AB, "BC": BC}, WINDOW)
INSERT, DELETE, JOIN = 3.0, 2.0, 7.0
KEEPING = ("engine", "paper")
PAPER = CostModel(FIGURE_4_1, Prices(INSERT, DELETE, JOIN), keeping="paper", cartesian=False)


def tree(text: str, names: str = "ABC") -> Join:
    return parse_tree(text, names)


def test_formulas_4_2_and_4_3_of_the_mjoin():
    a, b, c = RATES.values()
    rows = a + b + c
    cpu = rows * (INSERT + DELETE) + b * c * BC * WINDOW * JOIN
    cpu += 3 * a * b * c * AB * BC * WINDOW**2 * JOIN + 2 * a * b * AB * WINDOW * JOIN
    found = PAPER.plan(states_of(tree("(A B C)")))
    assert found.cpu_s == pytest.approx(cpu)
    assert found.memory_bytes == pytest.approx(rows * WINDOW)
    assert PAPER.node((1, 2, 4)).orders == ((1, 2), (0, 2), (1, 0))


def test_formulas_4_4_and_4_5_of_the_bjtree():
    a, b, c = RATES.values()
    rows = a + b + c
    cpu = rows * (INSERT + DELETE) + 3 * a * b * c * AB * BC * WINDOW**2 * JOIN
    cpu += 2 * a * b * AB * WINDOW * (JOIN + INSERT + DELETE)
    # an intermediate tuple is as large as others in the paper, and as its parts together here
    per_row = 2
    found = PAPER.plan(states_of(tree("((A B) C)")))
    assert found.cpu_s == pytest.approx(cpu)
    assert found.memory_bytes == pytest.approx(rows * WINDOW + a * b * AB * WINDOW**2 * per_row)


def test_given_orders_cost_what_they_visit():
    """4.1 with a detour: C joins A first, which nothing links to it."""
    node = tree("(A B C)")
    orders = {node: ((1, 2), (0, 2), (0, 1))}
    best = PAPER.plan(states_of(node))
    found = PAPER.plan_with_orders(node, orders)
    a, b, c = RATES.values()
    assert found.cpu_s - best.cpu_s == pytest.approx((c * a - b * c * BC) * WINDOW * JOIN)
    assert found.memory_bytes == best.memory_bytes


@pytest.mark.parametrize("text", ["(A B C)", "((A B) C)", "(A (B C))"])
def test_best_orders_given_cost_the_same(text):
    model = CostModel(FIGURE_4_1, DEFAULT_PRICES, slots=3)
    node = tree(text)
    orders = {}
    for each in nodes_of(node):
        inputs = tuple(sum(1 << i for i in leaves(child)) for child in each.inputs)
        orders[each] = model.node(inputs).orders
    found, given = model.plan(states_of(node)), model.plan_with_orders(node, orders)
    assert (found.cpu_s, found.memory_bytes) == pytest.approx((given.cpu_s, given.memory_bytes))


def leaves(child) -> list[int]:
    return [i for each in child.inputs for i in leaves(each)] if isinstance(child, Join) else [child.stream]


def test_probes_are_rows_that_go_to_a_store():
    """Every hop begins with a probe: rows that arrive, and what they have found so far, but not the results."""
    model = CostModel(FIGURE_4_1, Prices(0, 0, 0, probe_s=1), keeping="paper", cartesian=False)
    a, b, c = RATES.values()
    found = model.plan(states_of(tree("(A B C)")))
    assert found.cpu_s == pytest.approx(a + b + c + 2 * a * b * AB * WINDOW + b * c * BC * WINDOW)
    found = model.plan(states_of(tree("((A B) C)")))
    assert found.cpu_s == pytest.approx(a + b + c + 2 * a * b * AB * WINDOW)


def test_this_engine_keeps_results_for_the_shortest_window_and_until_their_bucket_has_ended():
    streams = (StreamFigures("A", 1, 10, 8), StreamFigures("B", 2, 30, 16), StreamFigures("C", 1, 10, 8))
    graph = JoinGraph(streams, (Predicate(0b111, 0.5),), delay_s=5)
    found = {keeping: CostModel(graph, keeping=keeping).kept_bytes(0b11) for keeping in KEEPING}
    # Of pairs half a second old, 0.975 have not ended (for A it takes 10 s, for B 30, and B's is the latest row of 1 in
    # 4), of those two seconds old 0.9; a bucket has rows of several micro-batches, so all are merged once.
    kept_s = 10 + 30 / 8 + 5
    seconds = kept_s * 0.975 - (kept_s - 2) * (0.975 - 0.9)
    # 1 x 60 + 2 x 10 pairs a second, of which a half is equal; of 24 bytes, 8 and 8 were event times
    assert found["engine"] == pytest.approx(40 * seconds * (24 - 16 + 16 + 8 + 2))
    assert found["paper"] == pytest.approx(10 * 60 * 0.5 * 24)


def test_results_keep_what_is_read_above_them():
    """A and B each have a number, values of x and y, and a column that only a predicate between them reads."""
    a, b, c = StreamFigures("A", 1, 8, 32), StreamFigures("B", 1, 8, 32), StreamFigures("C", 1, 8, 16)
    classes = (Predicate(0b011, 1.0), Predicate(0b111, 1.0))
    graph = JoinGraph((a, b, c), classes, (Predicate(0b011, 1.0, read_bytes=16),))
    model = CostModel(graph)
    assert model.kept_bytes(0b001) == pytest.approx(1 * (8 + 1) * (32 + 8))
    # two numbers, the interval, the value of y, and two groups; x and what the predicate read are gone
    seconds = 9 * (1 - 0.5 / 8) - 7 * (2 - 0.5) / 8
    assert model.kept_bytes(0b011) == pytest.approx(2 * 8 * seconds * (2 * 8 + 16 + 8 + 2 * 2))


def test_a_time_bucket_is_as_wide_as_the_windows_of_its_stage_ask_for():
    streams = tuple(StreamFigures(name, 1, window, 8) for name, window in zip("ABC", (8, 8, 32), strict=True))
    model = CostModel(JoinGraph(streams, (Predicate(0b011, 1.0), Predicate(0b110, 1.0))))
    row_bytes = 8 + 8
    assert model.kept_bytes(0b001, 0b011) == pytest.approx((8 + 8 / 8 + 1) * row_bytes)
    assert model.kept_bytes(0b001, 0b111) == model.kept_bytes(0b001) == pytest.approx((8 + 32 / 8 + 1) * row_bytes)
    binary = model.plan(states_of(tree("((A B) C)")))
    stores = [(0b001, 0b011), (0b010, 0b011), (0b011, 0b111), (0b100, 0b111)]
    assert binary.memory_bytes == pytest.approx(sum(model.kept_bytes(*each) for each in stores))
    mixed = model.plan(frozenset())
    indexes = [(0b001, 0b011), (0b010, 0b011), (0b010, 0b110), (0b100, 0b110)]  # B is indexed under both keys
    assert mixed.memory_bytes == pytest.approx(sum(model.kept_bytes(*each) for each in indexes))


def test_results_that_have_ended_are_let_go_when_their_bucket_is_merged():
    """With one micro-batch for many windows, nothing is merged before it expires; with many, nearly all is."""
    streams = tuple(StreamFigures(name, 1, 8, 8) for name in "ABC")
    graph = JoinGraph(streams, (Predicate(0b011, 1.0), Predicate(0b110, 1.0)))
    rare, frequent = CostModel(graph, batches_per_s=1 / 100), CostModel(graph, batches_per_s=2)
    row_bytes = 16 + 8 + 2
    assert rare.kept_bytes(0b011) == pytest.approx(16 * (8 + 1 + 100) * row_bytes)
    kept_s = 8 + 1 + 0.5
    assert frequent.kept_bytes(0b011) == pytest.approx(16 * (kept_s - (kept_s - 1) * 0.4 * 0.5 / 8) * row_bytes)


ONE_KEY = JoinGraph(tuple(StreamFigures(n, 10, 10) for n in "ABCD"), (Predicate(0b1111, 0.01),))
TWO_KEYS = JoinGraph(
    tuple(StreamFigures(n, 10, 10) for n in "ABCD"), (Predicate(0b0111, 0.01), Predicate(0b1100, 0.02))
)


def distributed(graph: JoinGraph, text: str, **prices: float):
    return CostModel(graph, Prices(0, 0, 0, **prices)).plan(states_of(tree(text, "ABCD"))).cpu_s


@pytest.mark.parametrize("text", ["(A B C D)", "((A B) C D)", "(((A B) C) D)"])
def test_nodes_with_one_key_are_one_stage(text):
    assert distributed(ONE_KEY, text, stage_s=1) == 1
    assert distributed(ONE_KEY, text, exchange_s=1) == 40


@pytest.mark.parametrize("text", ["((A B C) D)", "(((A B) C) D)"])
def test_results_are_sent_where_the_key_changes(text):
    assert distributed(TWO_KEYS, text, stage_s=1) == 2
    assert distributed(TWO_KEYS, text, exchange_s=1) == pytest.approx(40 + TWO_KEYS.found(0b111))


def test_a_mixed_node_is_walked_from_key_to_key():
    """Over A, C, D: x makes A and C equal, y C and D. A goes by x then y, C by x then y, D by y then x: three stages.

    A and D are indexed once, C under both keys, and C's rows are sent to both.
    """
    graph = JoinGraph(tuple(StreamFigures(n, 10, 10) for n in "ACD"), (Predicate(0b011, 0.01), Predicate(0b110, 0.02)))
    everything = states_of(tree("(A B C)"))
    model = CostModel(graph, Prices(0, 0, 0, stage_s=1), cartesian=False)
    assert model.node((1, 2, 4)).key.is_mixed
    assert model.plan(everything).cpu_s == 3
    sent = CostModel(graph, Prices(0, 0, 0, exchange_s=1), cartesian=False).plan(everything).cpu_s
    on_the_way = graph.found(0b011, 0b011) + graph.found(0b110, 0b100)
    assert sent == pytest.approx(10 + 2 * 10 + 10 + on_the_way)
    kept_s, kept_bytes = 10 + 10 / 8 + 1, 1 + 8  # with a time bucket and a micro-batch, and with the key
    assert model.plan(everything).memory_bytes == pytest.approx(4 * 10 * kept_s * kept_bytes)
    assert replace(model, keeping="paper").plan(everything).memory_bytes == pytest.approx(3 * 10 * 10)


def test_a_mixed_node_has_the_probe_orders_that_meet_fewest():
    """A may go to C only. C goes with it if D has more to offer, and otherwise to D first; stages are as many."""
    graph = JoinGraph(tuple(StreamFigures(n, 10, 10) for n in "ACD"), (Predicate(0b011, 0.01), Predicate(0b110, 0.02)))
    assert CostModel(graph).node((1, 2, 4)).orders == ((1, 2), (0, 2), (1, 0))
    swapped = JoinGraph(graph.streams, (Predicate(0b110, 1e-6), Predicate(0b011, 1.0)))
    assert CostModel(swapped).node((1, 2, 4)).orders == ((1, 2), (2, 0), (1, 0))


def test_a_mixed_node_has_the_orders_of_the_engine_where_others_take_more_stages():
    graph, inputs = random_graph(4, "clique", random.Random(1)), (1, 2, 4, 8)
    by_rule, ordered = hop_walks(graph, inputs), walks_along(graph, inputs, order_probes(graph, inputs).orders)
    assert ordered.stages > by_rule.stages
    assert CostModel(graph, Prices(0, 0, 0, stage_s=1)).node(inputs).orders == by_rule.orders


@pytest.mark.parametrize(("text", "stores"), [("(A B C D)", 4), ("((A B) C D)", 5), ("(((A B) C) D)", 6)])
def test_stores_and_stages_cost_something_in_every_micro_batch(text, stores):
    often = CostModel(ONE_KEY, Prices(0, 0, 0, stage_s=10, store_s=1), batches_per_s=3)
    assert often.plan(states_of(tree(text, "ABCD"))).cpu_s == 3 * (10 + stores)


def test_keys_are_looked_up_in_all_other_inputs():
    assert distributed(ONE_KEY, "(A B C D)", lookup_s=1) == 4 * 3 * 10
    ab = ONE_KEY.found(0b11)
    assert distributed(ONE_KEY, "((A B) C D)", lookup_s=1) == pytest.approx(2 * 10 + 2 * (ab + 10 + 10))


def test_residual_predicates_are_tested_pair_by_pair():
    streams = tuple(StreamFigures(n, 10, 10) for n in "AB")
    graph = JoinGraph(streams, (Predicate(0b11, 0.01),), (Predicate(0b11, 0.25),))
    pairs = {keeping: CostModel(graph, Prices(0, 0, 1), keeping=keeping).plan(frozenset()) for keeping in KEEPING}
    assert pairs["engine"].cpu_s == pytest.approx(20)
    assert pairs["paper"].cpu_s == pytest.approx(5)


def test_arrivals_go_to_every_key_that_they_probe_or_are_probed_under():
    """x makes A and C equal, y A and B, w B and C. A begins under x, but B and C reach it under x and y together."""
    graph = JoinGraph(
        tuple(StreamFigures(n, 10, 10) for n in "ABC"),
        (Predicate(0b101, 0.1), Predicate(0b011, 0.2), Predicate(0b110, 0.3)),
    )
    node = tree("(A B C)")
    orders = {node: ((2, 1), (2, 0), (1, 0))}
    found = CostModel(graph, Prices(0, 0, 0, exchange_s=1)).plan_with_orders(node, orders)
    arrivals = 10 * (2 + 2 + 2)
    on_the_way = graph.found(0b101, 0b001) + graph.found(0b110, 0b110)
    assert found.cpu_s == pytest.approx(arrivals + on_the_way)


def test_work_under_a_key_is_shared_by_the_slots():
    prices = Prices(1, 1, 1, 1)
    one, four = (CostModel(ONE_KEY, prices, slots=slots).plan(frozenset()) for slots in (1, 4))
    assert (four.cpu_s, four.memory_bytes) == pytest.approx((one.cpu_s / 4, one.memory_bytes / 4))
    unkeyed = JoinGraph(ONE_KEY.streams, (), (Predicate(0b1111, 0.01),))
    one, four = (CostModel(unkeyed, prices, slots=slots).plan(frozenset()) for slots in (1, 4))
    assert (four.cpu_s, four.memory_bytes) == pytest.approx((one.cpu_s, one.memory_bytes))
