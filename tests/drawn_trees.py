"""Hypothesis strategies for join trees: any shape over the streams of a query, and shapes for the slots in turn."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.scenarios import Scenario
from watersmeet.adaptation.migration import STRATEGIES
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.keys import node_key
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import Join, Leaf, Tree, streams_of, tree_text
from watersmeet.query.logical import JoinQuery

migration_ways = st.sampled_from(STRATEGIES).map(lambda name: f" {name}")
"""How a migration to a tree is carried out, as in `rehearse`."""


@st.composite
def trees(
    draw: st.DrawFn, query: JoinQuery, kinds: Sequence[str] = ("default", "any", "any", "one node", "by slot")
) -> tuple[str, ...]:
    """The default tree, one of any shape, or shapes for the slots in turn: such that differ within stages only."""
    names = [stream.name for stream in query.streams]
    kind = draw(st.sampled_from(kinds))
    if kind == "default":
        return ()
    leaves = [Leaf(i) for i in range(len(names))]
    tree = Join(tuple(draw(st.permutations(leaves)))) if kind == "one node" else draw(_shapes(query, leaves))
    trees = [tree]
    if kind == "by slot":
        others = [draw(_reshaped(query, tree)) for _ in range(draw(st.integers(1, 2)))]
        trees += [other for other in others if _stage_order(query, other) == _stage_order(query, tree)]
        plan_join(query, tuple(trees), partitions=1)  # must be accepted
    return tuple(tree_text(t, names) for t in trees)


@st.composite
def with_weights(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """The scenario with plans in which some streams keep combined rows, or rows with weights."""
    names = [stream.name for stream in scenario.streams]
    words = draw(_words(names))
    trees = scenario.trees or (tree_text(default_tree(scenario.query), names),)
    schedule = (replace(epoch, migrate=_worded(epoch.migrate, draw(_words(names)))) for epoch in scenario.schedule)
    return replace(scenario, trees=tuple(_worded(tree, words) for tree in trees), schedule=tuple(schedule))


def _words(names: Sequence[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({name: st.sampled_from(("", "", "group", "group", "weighted")) for name in names})


def _worded(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\b[a-e]\b", lambda name: f"{words[name[0]]}({name[0]})" if words[name[0]] else name[0], text)


@st.composite
def _shapes(draw: st.DrawFn, query: JoinQuery, inputs: Sequence[Tree]) -> Join:
    """A tree over inputs: mjoin, bjtree, bushy or between; mostly along the keys, sometimes across them."""
    items = list(draw(st.permutations(inputs)))
    style = draw(st.sampled_from(("any", "any", "mjoin", "bjtree")))
    along_keys = draw(st.sampled_from((True, True, True, False)))
    while len(items) > 1:
        size = {"mjoin": len(items), "bjtree": 2}.get(style) or draw(st.integers(2, len(items)))
        keyed = [x for x in items if any(node_key(query, Join((x, y))) for y in items if y is not x)]
        taken = [draw(st.sampled_from(keyed if along_keys and keyed else items))]
        items.remove(taken[0])
        while len(taken) < size:
            near = [item for item in items if node_key(query, Join((*taken, item)))]
            if along_keys and not near and len(taken) > 1:
                break
            taken.append(draw(st.sampled_from(near if along_keys and near else items)))
            items.remove(taken[-1])
        items.append(Join(tuple(taken)))
    (tree,) = items
    assert isinstance(tree, Join)
    return tree


@st.composite
def _reshaped(draw: st.DrawFn, query: JoinQuery, tree: Join) -> Join:
    """The tree with the nodes of each stage arranged anew; inputs that another arrangement of keys would send
    elsewhere stay where they are."""
    stages = plan_join(query, (tree,), partitions=1).stages
    made: dict[Tree, Tree] = {}
    for number, stage in enumerate(stages):
        root = stage.node
        if stage.hops:  # such a node keeps its shape
            made[root] = Join(tuple(made.get(i, i) for i in root.inputs))
            continue
        inputs = [layout.tree for layout in stage.inputs]
        for candidate in (draw(_shapes(query, [made.get(i, i) for i in inputs])), _rebuilt(root, made)):
            if all(node_key(query, node) == stage.key for node in _own_nodes(candidate, made, inputs)):
                made[root] = candidate
                break
        assert root in made, number
    found = made[tree]
    assert isinstance(found, Join)
    return found


def _stage_order(query: JoinQuery, tree: Join) -> list[frozenset[int]]:
    """Stages that do not feed each other run in the order of the text, which must be the same for all slots."""
    return [streams_of(stage.node) for stage in plan_join(query, (tree,), partitions=1).stages]


def _own_nodes(tree: Tree, made: dict[Tree, Tree], inputs: list[Tree]) -> Iterator[Join]:
    """The nodes of a stage's new tree, without those of the stages that feed it."""
    if isinstance(tree, Join) and tree not in [made.get(i, i) for i in inputs]:
        yield tree
        for child in tree.inputs:
            yield from _own_nodes(child, made, inputs)


def _rebuilt(tree: Tree, made: dict[Tree, Tree]) -> Tree:
    if isinstance(tree, Leaf) or tree in made:
        return made.get(tree, tree)
    return Join(tuple(_rebuilt(child, made) for child in tree.inputs))
