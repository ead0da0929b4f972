"""The best probe orders of a node, by dynamic programming over all sets of its inputs.

Along the probe order Y1, Y2, ... a row of input X meets live(X u Y1), live(X u Y1 u Y2), ... combinations for each
second of its stream. The remaining combinations depend on the set of bound inputs, not on their order. So

    rest(T) = min over inputs Y not in T of live(T u Y) + rest(T u Y)

gives the orders of all inputs at once, in k 2^k steps for a node of k inputs. It is exact for any predicates, and fast
enough for small nodes. Small nodes and the exhaustive search use it, and the polynomial ordering is measured against
it.
"""

from __future__ import annotations

from watersmeet.optimizer.join_graph import JoinGraph, Streams
from watersmeet.optimizer.shapes import Inputs
from watersmeet.plan.probe_orders import ProbeOrder


def exact_orders(graph: JoinGraph, inputs: Inputs, *, cartesian: bool = True) -> tuple[ProbeOrder, ...]:
    """For every input the order in which it meets fewest combinations.

    Without `cartesian`, the next input is linked to the bound ones by a predicate, if there is such an input.
    """
    count = len(inputs)
    if count == 2:
        return ((1,), (0,))
    everyone = (1 << count) - 1
    bound = [0] * (everyone + 1)
    for members in range(1, everyone + 1):
        low = members & -members
        bound[members] = bound[members ^ low] | inputs[low.bit_length() - 1]
    rest = [0.0] * (everyone + 1)
    step = [0] * (everyone + 1)
    live = graph.live
    for members in range(everyone - 1, 0, -1):
        following = range(count) if cartesian else _linked(graph, inputs, members, bound[members])
        best, chosen = float("inf"), -1
        for j in following:
            more = members | 1 << j
            if more != members:
                cost = live(bound[more]) + rest[more]
                if cost < best or chosen < 0:
                    best, chosen = cost, j
        rest[members], step[members] = best, chosen
    return tuple(_follow(step, i, everyone) for i in range(count))


def _follow(step: list[int], origin: int, everyone: int) -> ProbeOrder:
    members, order = 1 << origin, []
    while members != everyone:
        order.append(step[members])
        members |= 1 << step[members]
    return tuple(order)


def _linked(graph: JoinGraph, inputs: Inputs, members: int, bound: Streams) -> list[int]:
    others = [j for j in range(len(inputs)) if not members >> j & 1]
    return [j for j in others if graph.linked(bound, inputs[j])] or others
