"""Probe orders: the order in which each input of a node probes the others.

The default is the order of the tree. Other orders can be given for every node. Results do not depend on them, so a
checkpoint remembers them but may be continued with others. The exception is a node over several keys: there the orders
decide its stages and indexes (`plan/hops.py`), so only a migration changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from watersmeet.errors import CheckpointError
from watersmeet.plan.tree import Join, nodes_of, tree_text

ProbeOrder: TypeAlias = tuple[int, ...]
ProbeOrders: TypeAlias = Mapping[Join, tuple[ProbeOrder, ...]]
"""By node, for each of its inputs: the others, by number."""
NO_ORDERS: ProbeOrders = {}


def default_orders(node: Join) -> tuple[ProbeOrder, ...]:
    everyone = range(len(node.inputs))
    return tuple(tuple(j for j in everyone if j != i) for i in everyone)


def orders_as_texts(orders: ProbeOrders, names: Sequence[str]) -> dict[str, list[list[int]]]:
    """The orders by the text of their node, as checkpoints store them."""
    return {tree_text(node, names): [list(order) for order in mine] for node, mine in orders.items()}


def orders_from_texts(
    texts: Mapping[str, Sequence[Sequence[int]]], trees: Iterable[Join], names: Sequence[str]
) -> ProbeOrders:
    """The stored orders of the nodes of these trees; CheckpointError if they do not fit the inputs."""
    nodes = {tree_text(node, names): node for tree in trees for node in nodes_of(tree)}
    found = {text: tuple(map(tuple, orders)) for text, orders in texts.items() if text in nodes}
    for text, orders in found.items():
        if [sorted(order) for order in orders] != [list(order) for order in default_orders(nodes[text])]:
            raise CheckpointError(
                f"the checkpoint has probe orders that do not fit the inputs of {text}",
                hint="restore the checkpoint from a backup, or start with a new checkpointLocation",
                error_class="CHECKPOINT_DAMAGED",
            )
    return {nodes[text]: orders for text, orders in found.items()}
