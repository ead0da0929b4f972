"""In which order each input of a node probes the others.

By default it is the order in which the tree names them. Other orders can be given to every node; results do not depend
on them, so they are no part of what a checkpoint is made for, but it remembers them. Only of a node over several keys
they are: there they decide in which stages it is probed, and which indexes it keeps (`plan/hops.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from watersmeet.plan.tree import Join, nodes_of, tree_text

ProbeOrder: TypeAlias = tuple[int, ...]
ProbeOrders: TypeAlias = Mapping[Join, tuple[ProbeOrder, ...]]
"""By node, for each of its inputs: the others, by number."""
NO_ORDERS: ProbeOrders = {}


def default_orders(node: Join) -> tuple[ProbeOrder, ...]:
    everyone = range(len(node.inputs))
    return tuple(tuple(j for j in everyone if j != i) for i in everyone)


def orders_as_texts(orders: ProbeOrders, names: Sequence[str]) -> dict[str, list[list[int]]]:
    """Orders by the text of their node, as a checkpoint keeps them."""
    return {tree_text(node, names): [list(order) for order in mine] for node, mine in orders.items()}


def orders_from_texts(
    texts: Mapping[str, Sequence[Sequence[int]]], trees: Iterable[Join], names: Sequence[str]
) -> ProbeOrders:
    """The orders that were kept, for the nodes of these trees."""
    nodes = {tree_text(node, names): node for tree in trees for node in nodes_of(tree)}
    return {nodes[text]: tuple(map(tuple, orders)) for text, orders in texts.items() if text in nodes}
