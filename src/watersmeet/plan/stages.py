"""The physical plan: nodes of the join tree, fused into stages by key, with one exchange between two stages.

A node is keyed by the key classes that all its inputs have a column of. A child with the same key as its parent runs
in the same stage, on the same slot, without an exchange; a child with another key makes a stage of its own, whose
results are sent on within the same micro-batch. A node whose inputs share no class runs on one slot, under a constant
key.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from watersmeet.errors import OptionError
from watersmeet.plan.frame import Frame, frame_of
from watersmeet.plan.layout import Field, StoreLayout, field_type, lay_out
from watersmeet.plan.tree import Join, Leaf, Tree, nodes_of, streams_of, tree_text
from watersmeet.query.expressions import Expression, columns_of
from watersmeet.query.logical import JoinQuery, internal_name

CONSTANT_KEY = pa.int8()
"""The type of the one key value of a stage that has no key."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A predicate beyond the key, and the inputs that must be bound before it can be applied."""

    predicate: Expression
    inputs: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClassEquality:
    """Two inputs of a node must agree on a key class that is not part of its key."""

    key_class: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One join node: its inputs, in which order each probes the others, and what is checked and handed on."""

    tree: Join
    inputs: tuple[StoreLayout, ...]
    children: tuple[int | None, ...]
    """Per input: the node of the same shape whose results it takes; None for an input of the stage."""
    stage_inputs: tuple[int | None, ...]
    """Per input: the input of the stage that it is; None for results of another node of the shape."""
    first_store: int
    probe_orders: tuple[tuple[int, ...], ...]
    residuals: tuple[Residual, ...]
    equalities: tuple[ClassEquality, ...]
    windowed: bool
    names: tuple[str, ...]
    """The names of the query's streams, by ordinal."""

    def input_of(self, stream: str) -> int:
        ordinal = self.names.index(stream)
        return next(i for i, layout in enumerate(self.inputs) if ordinal in streams_of(layout.tree))


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Nodes that share a key, children first, and where the results of the last one go."""

    key: tuple[int, ...]
    key_types: tuple[pa.DataType, ...]
    inputs: tuple[StoreLayout, ...]
    shapes: tuple[tuple[NodePlan, ...], ...]
    """The nodes by slot: slot s runs shape s modulo their number."""
    feeds: tuple[int, int] | None
    """The stage and the input of it that the results are; None for the results of the query."""

    def shape(self, slot: int) -> tuple[NodePlan, ...]:
        return self.shapes[slot % len(self.shapes)]

    @property
    def on_one_slot(self) -> bool:
        return not self.key


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A result column."""

    name: str
    field: Field
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """All that slots must know to run the join; it holds no state and no decision that may change the results."""

    stages: tuple[StagePlan, ...]
    frame: Frame
    output: tuple[OutputColumn, ...]
    partitions: int
    delays_us: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def windowed(self) -> bool:
        return self.frame.time_type is not None

    def entry(self, stream: int) -> tuple[int, int]:
        """The stage that a stream's rows go to, and which input of it they are."""
        leaf = Leaf(stream)
        found = (
            (number, ordinal)
            for number, stage in enumerate(self.stages)
            for ordinal, layout in enumerate(stage.inputs)
            if layout.tree == leaf
        )
        return next(found)

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.output])


def plan_join(query: JoinQuery, trees: tuple[Join, ...], partitions: int) -> JoinPlan:
    """The plan for a tree; with several trees, slots take them in turn, and they may differ only within stages."""
    drafts = [_draft(query, tree) for tree in trees]
    first = drafts[0]
    for other in drafts[1:]:
        if _exchanges(other) != _exchanges(first):
            raise _different_stages(query, trees)
    stages = tuple(
        StagePlan(s.key, s.key_types, s.inputs, tuple(draft[i].nodes for draft in drafts), s.feeds)
        for i, s in enumerate(first)
    )
    time_type = None
    if query.windowed:
        stream = query.streams[0]
        time_type = stream.schema.field(stream.event_time).type
    refs = dict.fromkeys(ref for item in query.select for ref in item.refs)
    return JoinPlan(
        stages=stages,
        frame=frame_of([(stage.key_types, stage.inputs) for stage in stages], time_type),
        output=tuple(OutputColumn(internal_name(ref), ref, field_type(query, ref)) for ref in refs),
        partitions=partitions,
        delays_us=tuple(stream.delay_us for stream in query.streams),
        names=tuple(stream.name for stream in query.streams),
    )


def node_key(query: JoinQuery, node: Join) -> tuple[int, ...]:
    """The key classes that all inputs of a node have a column of."""
    inputs = [streams_of(child) for child in node.inputs]
    return tuple(i for i, c in enumerate(query.classes) if all(c.streams & streams for streams in inputs))


@dataclass(frozen=True, slots=True)
class _Stage:
    key: tuple[int, ...]
    key_types: tuple[pa.DataType, ...]
    inputs: tuple[StoreLayout, ...]
    nodes: tuple[NodePlan, ...]
    feeds: tuple[int, int] | None


def _draft(query: JoinQuery, tree: Join) -> list[_Stage]:
    """The stages of one tree, in the order they run."""
    roots = _stage_roots(query, tree)
    position = {root: i for i, root in enumerate(roots)}
    trees = {root: sorted(_stage_inputs(query, root, position), key=lambda t: sorted(streams_of(t))) for root in roots}
    feeds = {
        source: (position[root], inputs.index(source))
        for root, inputs in trees.items()
        for source in inputs
        if isinstance(source, Join)
    }
    stages = []
    for root in roots:
        key = node_key(query, root)
        types = tuple(query.classes[i].type for i in key) or (CONSTANT_KEY,)
        layouts = {source: lay_out(query, source, key, _label(query, source)) for source in trees[root]}
        nodes = _nodes(query, root, key, trees[root])
        stages.append(_Stage(key, types, tuple(layouts[t] for t in trees[root]), nodes, feeds.get(root)))
    return stages


def _exchanges(stages: list[_Stage]) -> list[object]:
    """What all slots must agree on: which fields go where under which key, and not how a stage is shaped inside."""
    return [(s.key, s.feeds, [(streams_of(layout.tree), layout.sources) for layout in s.inputs]) for s in stages]


def _stage_roots(query: JoinQuery, tree: Join) -> list[Join]:
    """The topmost node of every stage, inner stages first."""
    parents = {child: node for node in nodes_of(tree) for child in node.inputs if isinstance(child, Join)}
    return [n for n in nodes_of(tree) if n not in parents or node_key(query, parents[n]) != node_key(query, n)]


def _stage_inputs(query: JoinQuery, root: Join, roots: dict[Join, int]) -> list[Tree]:
    found: list[Tree] = []
    for child in root.inputs:
        if isinstance(child, Leaf) or child in roots:
            found.append(child)
        else:
            found += _stage_inputs(query, child, roots)
    return found


def _nodes(query: JoinQuery, root: Join, key: tuple[int, ...], inputs: list[Tree]) -> tuple[NodePlan, ...]:
    members = [node for node in nodes_of(root) if not any(_is_inside(node, i) for i in inputs if isinstance(i, Join))]
    index = {node: i for i, node in enumerate(members)}
    plans: list[NodePlan] = []
    store = 0
    for node in members:
        layouts = tuple(lay_out(query, child, key, _label(query, child)) for child in node.inputs)
        everyone = range(len(layouts))
        plans.append(
            NodePlan(
                tree=node,
                inputs=layouts,
                children=tuple(index.get(child) if isinstance(child, Join) else None for child in node.inputs),
                stage_inputs=tuple(inputs.index(child) if child in inputs else None for child in node.inputs),
                first_store=store,
                probe_orders=tuple(tuple(j for j in everyone if j != i) for i in everyone),
                residuals=_residuals(query, node),
                equalities=_equalities(query, node, key),
                windowed=query.windowed,
                names=tuple(stream.name for stream in query.streams),
            )
        )
        store += len(layouts)
    return tuple(plans)


def _is_inside(node: Join, tree: Join) -> bool:
    return node in nodes_of(tree)


def _residuals(query: JoinQuery, node: Join) -> tuple[Residual, ...]:
    """The residual predicates that this node is the first to bind."""
    ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
    inputs = [streams_of(child) for child in node.inputs]
    found = []
    for predicate in query.residuals:
        streams = {ordinal[column.stream] for column in columns_of(predicate)}
        if streams <= streams_of(node) and not any(streams <= inside for inside in inputs):
            found.append(Residual(predicate, frozenset(i for i, inside in enumerate(inputs) if streams & inside)))
    return tuple(found)


def _equalities(query: JoinQuery, node: Join, key: tuple[int, ...]) -> tuple[ClassEquality, ...]:
    found = []
    for number, key_class in enumerate(query.classes):
        if number in key:
            continue
        having = [i for i, child in enumerate(node.inputs) if key_class.streams & streams_of(child)]
        found += [ClassEquality(number, left, right) for left, right in pairwise(having)]
    return tuple(found)


def _label(query: JoinQuery, tree: Tree) -> str:
    return tree_text(tree, [stream.name for stream in query.streams])


def _different_stages(query: JoinQuery, trees: tuple[Join, ...]) -> OptionError:
    texts = " | ".join(_label(query, tree) for tree in trees)
    return OptionError(
        f"option plan '{texts}' gives slots different exchanges",
        hint="plans of different slots may differ only within one key class",
        error_class="INVALID_PLAN",
    )
