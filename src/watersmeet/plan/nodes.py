"""A join node as a physical plan: inputs, probe orders, and the predicates that it is the first to bind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from watersmeet.plan.keys import Key
from watersmeet.plan.layout import StoreLayout, field_type, lay_out
from watersmeet.plan.probe_orders import NO_ORDERS, ProbeOrders, default_orders
from watersmeet.plan.residual_order import evaluation_order
from watersmeet.plan.tree import Join, Tree, streams_of, tree_text, without_words
from watersmeet.query.expressions import Expression, columns_of
from watersmeet.query.logical import JoinQuery


@dataclass(frozen=True, slots=True)
class Residual:
    """A predicate beyond the key, by its number in the query, and the inputs that must be bound before it can be
    applied."""

    number: int
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
    """One join node: its inputs, their probe orders, the predicates, and the fields of its results."""

    tree: Join
    key: Key
    inputs: tuple[StoreLayout, ...]
    children: tuple[int | None, ...]
    """Per input: the node of the same shape whose results it takes; None for an input of the stage."""
    stage_inputs: tuple[int | None, ...]
    """Per input: its number among the inputs of the stage; None for results of another node of the shape."""
    first_store: int
    probe_orders: tuple[tuple[int, ...], ...]
    residuals: tuple[Residual, ...]
    """In the order in which they are applied, after the equalities, which are cheap and cannot fail."""
    equalities: tuple[ClassEquality, ...]
    windowed: bool
    names: tuple[str, ...]
    """The names of the query's streams, by ordinal."""

    def input_of(self, stream: str) -> int:
        ordinal = self.names.index(stream)
        return next(i for i, layout in enumerate(self.inputs) if ordinal in streams_of(layout.tree))


def plan_node(
    query: JoinQuery,
    tree: Join,
    key: Key,
    *,
    children: Sequence[int | None],
    stage_inputs: Sequence[int | None],
    first_store: int,
    orders: ProbeOrders = NO_ORDERS,
) -> NodePlan:
    """The plan of a node under a key. Every input probes the others in their order, unless `orders` says otherwise."""
    return NodePlan(
        tree=tree,
        key=key,
        inputs=tuple(lay_out(query, child, key, label_of(query, child)) for child in tree.inputs),
        children=tuple(children),
        stage_inputs=tuple(stage_inputs),
        first_store=first_store,
        probe_orders=orders[tree] if tree in orders else default_orders(tree),
        residuals=_residuals(query, tree),
        equalities=_equalities(query, tree, key),
        windowed=query.windowed,
        names=tuple(stream.name for stream in query.streams),
    )


def label_of(query: JoinQuery, tree: Tree) -> str:
    """The shape of a tree, by which its rows are counted, whatever its stores keep."""
    return tree_text(without_words(tree), [stream.name for stream in query.streams])


def _residuals(query: JoinQuery, node: Join) -> tuple[Residual, ...]:
    """The residual predicates that this node is the first to bind, in the order in which they are applied: those over
    several inputs, and those over one stream that is itself an input."""
    ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
    inputs = [streams_of(child) for child in node.inputs]
    joined = [streams_of(child) for child in node.inputs if isinstance(child, Join)]
    found = []
    for number, predicate in enumerate(query.residuals):
        streams = {ordinal[column.stream] for column in columns_of(predicate)}
        if streams <= streams_of(node) and not any(streams <= inside for inside in joined):
            found.append(
                Residual(number, predicate, frozenset(i for i, inside in enumerate(inputs) if streams & inside))
            )
    order = evaluation_order([residual.predicate for residual in found], partial(field_type, query))
    return tuple(found[i] for i in order)


def _equalities(query: JoinQuery, node: Join, key: Key) -> tuple[ClassEquality, ...]:
    found = []
    for number, key_class in enumerate(query.classes):
        if number in key:
            continue
        having = [i for i, child in enumerate(node.inputs) if key_class.streams & streams_of(child)]
        found += [ClassEquality(number, left, right) for left, right in pairwise(having)]
    return tuple(found)
