"""A binary tree with little intermediate state, built from the top: divide the streams into two parts of small state.

`min_state.py` builds from the bottom and always makes the smallest next state. Where joins make ever more rows, nearly
all bytes are in the two states below the topmost node, and these are left to chance: on one key that all streams share,
they are several times the minimum. So here a tree is divided from the top:

- Start with two divisions: that of another tree, and all streams but the one whose removal leaves least.
- Move a stream to the other part, or swap two, whichever saves most, until nothing does.
- Take the better of both, and divide its parts in turn.

A single stream counts nothing: it is stored in any tree. Without `cartesian`, parts are connected.
`benchmarks/optimizer_quality.py` compares the smaller of both trees with the minimum. Ours; the dissertation builds
from the bottom only.
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.optimizer.cost import CostModel
from watersmeet.optimizer.join_graph import Streams, bits
from watersmeet.optimizer.min_state import min_state
from watersmeet.optimizer.shapes import States

SPLIT_STREAMS_MAX = 12
"""With 20 streams there would be thousands of states, which takes as long as all the rest of a search."""
SAVED_MIN = 1e-9
"""As a share: less is rounding."""


def small_tree(model: CostModel, *, cartesian: bool) -> States:
    """The states of the smaller of two binary trees: by `min_state`, and divided from the top."""
    smallest_first = min_state(model, cartesian=cartesian)
    if len(model.graph.streams) > SPLIT_STREAMS_MAX:
        return smallest_first
    from_the_top = split_states(model, smallest_first, cartesian=cartesian)
    return min(smallest_first, from_the_top, key=lambda states: sum(map(model.kept_bytes, states)))


def split_states(model: CostModel, tree: States, *, cartesian: bool) -> States:
    """The states of a binary tree that is divided from the top, starting from the divisions of another tree."""
    splitting = _Splitting(model, cartesian or not model.graph.connected(model.graph.everyone))
    found: set[Streams] = set()
    ahead = [model.graph.everyone]
    while ahead:
        streams = ahead.pop()
        if streams.bit_count() > 2:
            largest = max(
                (state for state in tree if state & streams == state != streams), key=int.bit_count, default=0
            )
            part = splitting.best(streams, largest)
            parts = [each for each in (part, streams ^ part) if each.bit_count() > 1]
            found.update(parts)
            ahead += parts
    return frozenset(found)


class _Splitting:
    """Divisions of some streams into two parts, each named by one of its parts, and the bytes of both."""

    def __init__(self, model: CostModel, cartesian: bool) -> None:
        self._model, self._cartesian = model, cartesian

    def best(self, streams: Streams, other: Streams) -> Streams:
        """A good division, found from that of another tree and from the best single stream to leave out."""
        starts = [1 << i for i in bits(streams) if self._allows(streams, 1 << i)]
        starts = sorted(starts, key=lambda part: self._taken(streams, part))[:1]
        if self._allows(streams, other):
            starts.append(other)
        return min((self._improved(streams, part) for part in starts), key=lambda part: self._taken(streams, part))

    def _improved(self, streams: Streams, part: Streams) -> Streams:
        taken = self._taken(streams, part)
        while True:
            best, least = 0, taken * (1 - SAVED_MIN)
            for moved in _moves(streams, part):
                if self._allows(streams, part ^ moved) and (now := self._taken(streams, part ^ moved)) < least:
                    best, least = part ^ moved, now
            if not best:
                return part
            part, taken = best, least

    def _allows(self, streams: Streams, part: Streams) -> bool:
        rest = streams ^ part
        if not part or not rest or part & ~streams:
            return False
        connected = self._model.graph.connected
        return self._cartesian or (connected(part) and connected(rest))

    def _taken(self, streams: Streams, part: Streams) -> float:
        return sum(self._model.kept_bytes(each) for each in (part, streams ^ part) if each.bit_count() > 1)


def _moves(streams: Streams, part: Streams) -> Iterator[Streams]:
    """The possible moves: one stream changes sides, or one of each side."""
    yield from (1 << i for i in bits(streams))
    for i in bits(part):
        yield from (1 << i | 1 << j for j in bits(streams ^ part))
