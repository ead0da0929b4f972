"""The probe order of each input of a node (O2; Zhu 2006, 5.1).

The best order meets the fewest combinations. It does not depend on the prices of a probe or a pair: every order makes
one probe for each combination it meets, except for those of the whole node, which are the same for all orders.

| node                          | how                                              | how good                          |
|-------------------------------|--------------------------------------------------|-----------------------------------|
| EXACT_INPUTS_MAX at most      | all sets of its inputs (`exact_ordering.py`)     | optimal                           |
| linked as a tree, and no      | by rank (`rank_ordering.py`)                     | optimal                           |
| Cartesian products            |                                                  |                                   |
| otherwise                     | by rank along a minimum spanning tree, with and  | the best of these for each input, |
|                               | without Cartesian edges (`links.py`), or greedily| so never worse than without them  |

Deviations. The paper adds Cartesian edges to the graph and trusts the spanning tree to leave out the harmful ones. It
does not, since the tree is chosen by weights of pairs, once for all inputs. With Cartesian edges, two thirds of the
inputs of random stars of 8 streams got a worse order, and 2 % a better one; in chains a third and two thirds
(`benchmarks/optimizer_quality.py`). So orders with and without them are compared, and the greedy order as a third: on
cyclic graphs a spanning tree ignores selectivities that a greedy order uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.optimizer.combinations_met import met_along
from watersmeet.optimizer.exact_ordering import exact_orders
from watersmeet.optimizer.greedy_ordering import greedy_orders
from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.links import input_graph, is_complete, is_tree, spanning_links
from watersmeet.optimizer.rank_ordering import rank_orders
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.probe_orders import ProbeOrder

EXACT_INPUTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Probing:
    """By input of a node: its probe order, and the combinations met for each second of its stream."""

    orders: tuple[ProbeOrder, ...]
    met: tuple[float, ...]


def order_probes(
    graph: JoinGraph, inputs: Inputs, *, cartesian: bool = True, exact_inputs_max: int = EXACT_INPUTS_MAX
) -> Probing:
    """Good orders for all inputs of a node. Without `cartesian`, rows probe a linked input if there is one."""
    if len(inputs) <= exact_inputs_max:
        return probing(graph, inputs, exact_orders(graph, inputs, cartesian=cartesian))
    node = input_graph(graph, inputs)
    linked = is_tree(node) and not node.others
    candidates = [rank_orders(node.live, node.links if linked else spanning_links(node, cartesian=False))]
    if cartesian and not is_complete(node):
        candidates.append(rank_orders(node.live, spanning_links(node, cartesian=True)))
    if cartesian or not linked:
        candidates.append(greedy_orders(graph, inputs, cartesian=cartesian))
    met = met_along(graph, inputs, [order for orders in candidates for order in orders]).sum(axis=1)
    met = met.reshape(len(candidates), -1)
    best = np.argmin(met, axis=0)
    return Probing(
        tuple(candidates[which][i] for i, which in enumerate(best)),
        tuple(float(met[which, i]) for i, which in enumerate(best)),
    )


def probing(graph: JoinGraph, inputs: Inputs, orders: tuple[ProbeOrder, ...]) -> Probing:
    """Given orders, with the combinations that they meet."""
    return Probing(orders, tuple(_met(graph, inputs, i, order) for i, order in enumerate(orders)))


def _met(graph: JoinGraph, inputs: Inputs, origin: int, order: ProbeOrder) -> float:
    bound, total = inputs[origin], 0.0
    for j in order:
        bound |= inputs[j]
        total += graph.live(bound)
    return total
