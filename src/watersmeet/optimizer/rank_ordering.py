"""Probe orders by rank: optimal for acyclic join graphs (O2; Zhu 2006, 5.1.1; Ibaraki and Kameda 1984).

The graph is a tree of *links*. With the probing input as the root, every other input has one parent, which must be
bound first. Binding an input multiplies the number of combinations by a factor T: its own live rows times the
selectivity of its link. For a sequence of inputs, T is the product of its factors, and C is the sum of the products of
its prefixes. Then

    rank = (T - 1) / C

says how early the sequence should come: of two sequences that may come in either order, the one with the lower rank
goes first. If a parent has a higher rank than its successor, the two become one sequence. Then branches are merged by
rank. A greedy order would take the least factor first, and ignore what follows a large one.

A link may have more than two inputs: all that have a column of one key class. Whichever of them is bound first is the
parent of all others, and each of these costs the selectivity once. So a class needs no choice of edges. If it is the
only link, the order is by ascending live rows.

The branches behind a link are the same for all inputs on the other side of it. So each branch is ordered once, and all
inputs together take O(k^2) steps after sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from watersmeet.plan.probe_orders import ProbeOrder


@dataclass(frozen=True, slots=True)
class Link:
    """Inputs of a node that a predicate connects. Each but the first bound one multiplies by `selectivity`."""

    inputs: tuple[int, ...]
    selectivity: float


RankedSequence: TypeAlias = tuple[float, float, float, ProbeOrder]
"""Rank, product T, sum C, and the inputs."""
_RANK = itemgetter(0)


def rank_orders(live: Sequence[float], links: Sequence[Link]) -> tuple[ProbeOrder, ...]:
    """The best order for every input among those that follow the links, which must be a tree over all inputs."""
    return tuple([tuple([j for each in sequences for j in each[3]]) for sequences in rank_sequences(live, links)])


def rank_sequences(live: Sequence[float], links: Sequence[Link]) -> list[list[RankedSequence]]:
    """The same orders, each as a list of sequences by ascending rank."""
    of_input: list[list[int]] = [[] for _ in live]
    for number, link in enumerate(links):
        for i in link.inputs:
            of_input[i].append(number)
    known: dict[tuple[int, int], list[RankedSequence]] = {}

    def branch(i: int, came_by: int) -> list[RankedSequence]:
        """An input and everything behind it, in sequences of ascending rank."""
        found = known.get((i, came_by))
        if found is None:
            found = _headed(live[i] * links[came_by].selectivity, i, behind(i, came_by))
            known[i, came_by] = found
        return found

    def behind(i: int, came_by: int) -> list[RankedSequence]:
        """Everything that becomes reachable with an input, in order of rank."""
        found: list[RankedSequence] = []
        for number in of_input[i]:
            if number != came_by:
                for j in links[number].inputs:
                    if j != i:
                        found += known.get((j, number)) or branch(j, number)
        found.sort(key=_RANK)
        return found

    return [behind(i, -1) for i in range(len(live))]


def _headed(factor: float, i: int, following: list[RankedSequence]) -> list[RankedSequence]:
    """Sequences by ascending rank, after putting an input that must come first before them."""
    product, total, taken = factor, factor, 0
    members: ProbeOrder = (i,)
    rank = _ranked(product, total)
    while taken < len(following) and following[taken][0] < rank:
        _, more_product, more_total, more = following[taken]
        total += product * more_total
        product *= more_product
        members += more
        rank = _ranked(product, total)
        taken += 1
    return [(rank, product, total, members), *following[taken:]]


def _ranked(product: float, total: float) -> float:
    return (product - 1) / total if total > 0 else float("-inf")
