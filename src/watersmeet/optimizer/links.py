"""The join graph between the inputs of a node, as a tree, for ordering by rank (O2; Zhu 2006, 5.1.2, 5.1.3).

Inputs may be streams or intermediate results. They are linked by key classes and by predicates that span several
inputs; several over the same inputs make one link. If the links are a tree, it is used. Otherwise a minimum spanning
tree is chosen from the pairs of inputs. The weight of a pair is the number of its combinations live(X u Y):

    the paper's weight    rate_X rate_Y s_XY           (one window for all)
    here                  live_X live_Y s_XY           (so windows count, and X and Y may be results)

With Cartesian edges, pairs without a link may be chosen too, with selectivity 1; without, only if the graph is not
connected. Pairs chosen from one key class become one link again, since the class does not fix their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from watersmeet.optimizer.join_graph import JoinGraph, Streams, bits
from watersmeet.optimizer.rank_ordering import Link
from watersmeet.optimizer.shapes import Inputs

NOWHERE = -1
"""The input of a stream that the node does not join."""


@dataclass(frozen=True, slots=True)
class InputGraph:
    """The inputs of a node with their live rows, the classes and pairs between them, and predicates over three or more
    inputs, which apply when the last one is bound and are not part of any tree."""

    live: tuple[float, ...]
    links: tuple[Link, ...]
    others: tuple[Link, ...]


def input_graph(graph: JoinGraph, inputs: Inputs) -> InputGraph:
    owners = [NOWHERE] * len(graph.streams)
    for number, streams in enumerate(inputs):
        for i in bits(streams):
            owners[i] = number
    between: dict[tuple[int, ...], float] = {}
    others: list[Link] = []
    for _, i, j, share in graph.pairs:
        one, other = owners[i], owners[j]
        if one != other and one >= 0 and other >= 0:
            pair = (one, other) if one < other else (other, one)
            between[pair] = between.get(pair, 1.0) * share
    for each in graph.wide_classes:
        touched = _touched(each.streams, owners)
        if len(touched) > 1:
            between[touched] = between.get(touched, 1.0) * each.selectivity
    for each in graph.wide_others:
        touched = _touched(each.streams, owners)
        if all(owners[i] >= 0 for i in bits(each.streams)) and len(touched) > 1:
            if len(touched) == 2:
                between[touched] = between.get(touched, 1.0) * each.selectivity
            else:
                others.append(Link(touched, each.selectivity))
    links = tuple(Link(touched, share) for touched, share in between.items())
    return InputGraph(tuple(graph.live(streams) for streams in inputs), links, tuple(others))


def is_tree(node: InputGraph) -> bool:
    """Whether the links connect all inputs, and none twice."""
    groups = _Groups(len(node.live))
    return all(groups.unite(link.inputs) for link in node.links) and groups.count == 1


def is_complete(node: InputGraph) -> bool:
    """Whether every pair of inputs is linked, so that there is no Cartesian product to make."""
    pairs = {pair for link in node.links for pair in combinations(link.inputs, 2)}
    return len(pairs) == len(node.live) * (len(node.live) - 1) // 2


def spanning_links(node: InputGraph, *, cartesian: bool) -> tuple[Link, ...]:
    """A tree of the lightest pairs, with or without Cartesian edges."""
    live, links = node.live, node.links
    pairs: dict[tuple[int, int], list[int]] = {}
    for number, link in enumerate(links):
        for pair in combinations(link.inputs, 2):
            pairs.setdefault(pair, []).append(number)
    nearest: dict[int, tuple[bool, float, tuple[int, int]]] = {}
    chosen, last, left = [], 0, set(range(1, len(live)))
    while left:  # Prim 1957
        for i in left:
            pair = (last, i) if last < i else (i, last)
            weight = live[last] * live[i]
            between = pairs.get(pair, ())
            for number in between:
                weight *= links[number].selectivity
            edge = (not (between or cartesian), weight, pair)
            if i not in nearest or edge < nearest[i]:
                nearest[i] = edge
        last = min(left, key=nearest.__getitem__)
        left.remove(last)
        chosen.append(nearest[last][2])
    return _relinked(node, [(pair, pairs.get(pair, [])) for pair in chosen])


def _relinked(node: InputGraph, chosen: Sequence[tuple[tuple[int, int], list[int]]]) -> tuple[Link, ...]:
    found: list[Link] = []
    by_class: dict[int, list[tuple[int, int]]] = {}
    for pair, numbers in chosen:
        if len(numbers) == 1 and len(node.links[numbers[0]].inputs) > 2:
            by_class.setdefault(numbers[0], []).append(pair)
        else:
            share = 1.0
            for number in numbers:
                share *= node.links[number].selectivity
            found.append(Link(pair, share))
    for number, pairs in by_class.items():
        groups = _Groups(len(node.live))
        for pair in pairs:
            groups.unite(pair)
        found += [Link(members, node.links[number].selectivity) for members in groups.members() if len(members) > 1]
    return tuple(found)


def _touched(streams: Streams, owners: Sequence[int]) -> tuple[int, ...]:
    """The inputs that hold some of the streams."""
    return tuple(sorted({owners[i] for i in bits(streams)} - {NOWHERE}))


class _Groups:
    """Which inputs are connected so far."""

    def __init__(self, count: int) -> None:
        self._group = list(range(count))
        self.count = count

    def unite(self, inputs: Sequence[int]) -> bool:
        """Connect some inputs. False if two of them were already connected."""
        touched = {self._group[i] for i in inputs}
        if len(touched) > 1:
            first = min(touched)
            self._group = [first if group in touched else group for group in self._group]
        self.count -= len(touched) - 1
        return len(touched) == len(inputs)

    def members(self) -> list[tuple[int, ...]]:
        groups: dict[int, list[int]] = {}
        for i, group in enumerate(self._group):
            groups.setdefault(group, []).append(i)
        return [tuple(each) for each in groups.values()]
