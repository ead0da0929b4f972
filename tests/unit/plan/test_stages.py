"""Plans: nodes that share a key share a stage, others are fed by an exchange, and each predicate has one node."""

import pyarrow as pa
import pytest

from watersmeet.errors import OptionError
from watersmeet.plan.keys import node_key
from watersmeet.plan.layout import field_name
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.stages import CONSTANT_KEY, JoinPlan, Place, StagePlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query

UTC = pa.timestamp("us", tz="UTC")
FIVE = "ABCDE"
WITH_E, WITH_D, ABC = 0, 1, 2
"""The key classes, in their order: D.second = E.first, C.second = D.first, A.first = B.first = C.first."""


def five(where: tuple[str, ...] = (), within: str | None = "1 minute") -> JoinQuery:
    """A, B and C on their first columns, D on C's second, E on D's second."""
    schema = pa.schema([("first", pa.int64()), ("second", pa.int64()), ("ts", UTC), ("v", pa.float64())])
    equalities = "A.first = B.first AND B.first = C.first AND C.second = D.first AND D.second = E.first"
    return build_query(
        [Stream(name, schema, "ts") for name in FIVE],
        where=[equalities, *where],
        within=within,
        windows={},
        select=["A.v", "B.first", "C.ts", "E.second"],
    )


def plan(*texts: str, query: JoinQuery | None = None) -> JoinPlan:
    trees = tuple(parse_tree(text, FIVE) for text in texts)
    return plan_join(query or five(), trees, partitions=8)


def outline(stage: StagePlan, slot: int = 0) -> list[dict[str, list[str]]]:
    """Per node: the stores by label, and what each keeps beside its key."""
    return [
        {
            layout.label: [field_name(f) for f, source in layout.sources if source.kind != "key"]
            for layout in node.inputs
        }
        for node in stage.shape(slot)
    ]


def test_classes_are_numbered_as_the_tests_below_say():
    columns = [c.columns for c in five().classes]
    assert columns[WITH_E] == (None, None, None, "second", "first")
    assert columns[WITH_D] == (None, None, "second", "first", None)
    assert columns[ABC] == ("first", "first", "first", None, None)


def test_a_hybrid_has_a_stage_per_key():
    stages = plan("(((A B C) D) E)").stages
    assert [stage.key for stage in stages] == [(ABC,), (WITH_D,), (WITH_E,)]
    assert [stage.feeds for stage in stages] == [(Place(1, 0),), (Place(2, 0),), ()]
    assert [[layout.label for layout in stage.inputs] for stage in stages] == [
        ["A", "B", "C"],
        ["(A B C)", "D"],
        ["((A B C) D)", "E"],
    ]
    assert [outline(stage) for stage in stages] == [
        [{"A": ["A.v"], "B": [], "C": ["C.ts", "#1"]}],
        [{"(A B C)": ["A.v", "B.first", "C.ts"], "D": ["#0"]}],
        [{"((A B C) D)": ["A.v", "B.first", "C.ts"], "E": ["E.second"]}],
    ]


def test_a_bjtree_fuses_the_nodes_of_one_key():
    stages = plan("((((A B) C) D) E)").stages
    assert [stage.key for stage in stages] == [(ABC,), (WITH_D,), (WITH_E,)]
    assert [stage.feeds for stage in stages] == [(Place(1, 0),), (Place(2, 0),), ()]
    assert outline(stages[0]) == [{"A": ["A.v"], "B": []}, {"(A B)": ["A.v"], "C": ["C.ts", "#1"]}]
    below, top = stages[0].shape(0)
    assert (below.children, below.stage_inputs, below.first_store) == ((None, None), (0, 1), 0)
    assert (top.children, top.stage_inputs, top.first_store) == ((0, None), (None, 2), 2)
    assert [layout.label for layout in stages[0].inputs] == ["A", "B", "C"]


def test_slots_may_shape_a_stage_in_their_own_way():
    both = plan("(((A B C) D) E)", "((((A B) C) D) E)")
    assert [len(stage.shapes) for stage in both.stages] == [2, 2, 2]
    hybrid, bjtree = plan("(((A B C) D) E)"), plan("((((A B) C) D) E)")
    for stage, first, second in zip(both.stages, hybrid.stages, bjtree.stages, strict=True):
        assert [stage.shape(slot) for slot in range(3)] == [first.shape(0), second.shape(0), first.shape(0)]
        assert (stage.key, stage.feeds) == (first.key, first.feeds) == (second.key, second.feeds)
    assert both.frame == hybrid.frame == bjtree.frame


@pytest.mark.parametrize(
    "texts",
    [("(((A B C) D) E)", "((A B C) (D E))"), ("(((A B C) D) E)", "(A B C D E)"), ("((A B C D) E)", "(A B C D E)")],
)
def test_other_exchanges_for_other_slots_are_refused(texts):
    with pytest.raises(OptionError) as caught:
        plan(*texts)
    assert str(caught.value) == (
        f"[INVALID_PLAN] option plan '{' | '.join(texts)}' gives slots different exchanges. "
        "plans of different slots may differ only within one key class"
    )


def test_what_no_key_covers_runs_on_one_slot():
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    streams = [Stream(name, schema) for name in "abc"]
    where = ["a.x < b.x AND b.y < c.y"]
    (stage,) = plan_join(
        build_query(streams, where=where, within=None, windows={}, select=["a.x"]), (parse_tree("(a b c)", "abc"),), 8
    ).stages
    assert (stage.key, stage.key_types, stage.on_one_slot) == ((), (CONSTANT_KEY,), True)
    (node,) = stage.shape(0)
    assert [residual.inputs for residual in node.residuals] == [{0, 1}, {1, 2}]


def test_a_node_without_a_common_class_is_probed_hop_by_hop():
    made = plan("(A B C D E)")
    assert [stage.key for stage in made.stages] == [(ABC,), (WITH_E,), (WITH_D,), (ABC,), (WITH_E,)]
    probed = [[[layout.label for layout in hop.node.inputs] for hop in stage.hops] for stage in made.stages]
    assert probed == [
        [["A", "B", "C"], ["B", "A", "C"], ["C", "A", "B"]],
        [["D", "E"], ["E", "D"]],
        [["(A B C)", "D"], ["(B A C)", "D"], ["(C A B)", "D"], ["(D E)", "C"], ["(E D)", "C"]],
        [["((D E) C)", "A", "B"], ["((E D) C)", "A", "B"]],
        [["((A B C) D)", "E"], ["((B A C) D)", "E"], ["((C A B) D)", "E"]],
    ]


def test_each_input_sees_what_is_new_to_the_inputs_before_it_and_no_other():
    names = "ABCDE"
    for stage in plan("(A B C D E)").stages:
        for hop in stage.hops:
            origin = names.index(next(c for c in hop.node.inputs[0].label if c in names))
            for target in hop.targets:
                index = stage.indexes[target.index]
                assert target.with_arrivals == (names.index(index.layout.label) < origin)
                assert index.arrivals is not None or not target.with_arrivals


def test_an_index_is_kept_by_one_stage_and_gets_all_rows_there():
    made = plan("(A B C D E)")
    kept = [
        (number, made.stages[number].key, index.layout.label)
        for number, stage in enumerate(made.stages)
        for index in stage.indexes
        if index.kept_in[0] == number
    ]
    assert kept == [(0, (ABC,), "B"), (0, (ABC,), "C"), (0, (ABC,), "A"), (1, (WITH_E,), "E"), (1, (WITH_E,), "D"),
                    (2, (WITH_D,), "D"), (2, (WITH_D,), "C")]  # fmt: skip
    for number, _, label in kept:
        assert label in [layout.label for layout in made.stages[number].inputs]
        assert [i.layout.label for i in made.stages[number].indexes if i.arrivals is None] == []


def test_a_bushy_tree_feeds_one_stage_from_two():
    stages = plan("((A B C) (D E))").stages
    assert [stage.key for stage in stages] == [(ABC,), (WITH_E,), (WITH_D,)]
    assert [stage.feeds for stage in stages] == [(Place(2, 0),), (Place(2, 1),), ()]


@pytest.mark.parametrize("text", ["(((A B C) D) E)", "((((A B) C) D) E)", "((A B C) (D E))", "(E (D (C A B)))"])
def test_every_class_and_predicate_is_checked_by_the_nodes_that_bind_it(text):
    query = five(where=("A.v < E.v", "A.v + B.v < C.v", "C.v < D.v"))
    check_predicates(query, [node for stage in plan(text, query=query).stages for node in stage.shape(0)])


@pytest.mark.parametrize("origin", FIVE)
def test_every_class_and_predicate_is_checked_on_the_path_of_every_input(origin):
    query = five(where=("A.v < E.v", "A.v + B.v < C.v", "C.v < D.v"))
    hops = [hop for stage in plan("(A B C D E)", query=query).stages for hop in stage.hops]
    check_predicates(query, [hop.node for hop in hops if hop.node.inputs[0].label.strip("(")[0] == origin])


def check_predicates(query: JoinQuery, nodes: list[NodePlan]) -> None:
    assert sorted(str(r.predicate) for n in nodes for r in n.residuals) == sorted(map(str, query.residuals))
    for number, key_class in enumerate(query.classes):
        links = sum(len(n.inputs) - 1 for n in nodes if number in node_key(query, n.tree))
        links += sum(equality.key_class == number for n in nodes for equality in n.equalities)
        assert links == len(key_class.streams) - 1


def test_a_predicate_waits_for_its_inputs():
    stages = plan("(((A B C) D) E)", query=five(where=("A.v < D.v",))).stages
    assert [len(stage.shape(0)[0].residuals) for stage in stages] == [0, 1, 0]
    assert stages[1].shape(0)[0].residuals[0].inputs == {0, 1}


@pytest.mark.parametrize("text", ["(((A B C) D) E)", "(A B C D E)", "((E D) (C (B A)))"])
def test_every_stream_enters_stages_as_itself(text):
    made = plan(text)
    assert len({place for stream in range(5) for place in made.places(stream)}) >= 5
    for stream in range(5):
        for place in made.places(stream):
            assert made.stages[place.stage].inputs[place.input].label == FIVE[stream]


def test_the_key_of_a_node_is_what_all_its_inputs_share():
    query = five(where=("A.second = B.second",))
    tree = parse_tree("(((A B) C) (D E))", FIVE)
    inner = tree.inputs[0].inputs[0]
    assert [query.classes[i].columns[:2] for i in node_key(query, inner)] == [("first", "first"), ("second", "second")]


def test_the_output_has_the_selected_columns_once():
    made = plan("(A B C D E)")
    assert made.output_schema == pa.schema(
        [("A_v", pa.float64()), ("B_first", pa.int64()), ("C_ts", UTC), ("E_second", pa.int64())]
    )
    assert made.windowed
    assert not plan("(A B C D E)", query=five(within=None)).windowed
