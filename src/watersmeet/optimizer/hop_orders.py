"""In which order the inputs of a mixed node probe each other: the engine's own rule, said of sets of streams.

A node over several keys is probed hop by hop, and its hops follow from its keys (`plan/hops.py`): each stage has the
key under which most inputs can go on, and each of these takes all the probes that this key allows. So there is nothing
to choose, and a cost by any other order would be of a plan that does not run.

Inputs whose rows have come to hold the same go on together from there: they are one *party*. The keys under which it
can go on change only when it has taken a step, so they are kept from stage to stage, in a queue by how many inputs
each would serve. So a node of 20 inputs and 190 keys takes milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import Inputs
from watersmeet.optimizer.stage_keys import Key, Walk, Walks

_FIRST_CLASSES_FIRST = str.maketrans("01", "10")


def hop_walks(graph: JoinGraph, inputs: Inputs) -> Walks:
    """By input, the others in the order in which its rows meet them."""
    node = _Node([graph.classes_of(each) for each in inputs])
    stages = 0
    while node.parties:
        node.take(node.next_key())
        stages += 1
    return Walks(tuple(node.walks), stages)


@dataclass(slots=True, eq=False)
class _Party:
    """Inputs whose rows hold the same inputs by now."""

    members: list[int]
    held: int
    """The inputs that their rows hold, as bits."""
    classes: int
    ahead: dict[int, Key]
    """Which inputs are still to be probed, and under which keys that could be done now."""
    keys: set[Key]
    """These keys, each once."""
    first: Key = 0
    """Of those that it had for itself, the first, which was put into the queue; 0 if there was none."""


class _Node:
    """How far the rows of every input have come; parties that have come to the end are gone."""

    def __init__(self, own: list[int]) -> None:
        self._own = own
        self.walks = [Walk([], [], []) for _ in own]
        self.parties: dict[int, _Party] = {}
        """By what they hold."""
        self._seen: dict[Key, list[_Party]] = {}
        """By key: the parties that can go on under it, and some that no longer can."""
        self._queue: list[tuple[int, str, Key]] = []
        """Keys that may be next, by how many inputs may go on, at most, then as the engine sorts them."""
        for i, mine in enumerate(own):
            ahead = {j: mine & other for j, other in enumerate(own) if j != i}
            self.parties[1 << i] = party = _Party([i], 1 << i, mine, ahead, set())
            self._look_ahead(party)

    def next_key(self) -> Key:
        """The one under which most inputs can go on, of several the first; 0 if there is none."""
        queue, seen = self._queue, self._seen
        while queue:
            most, place, key = heappop(queue)
            able = [party for party in seen[key] if key in party.keys]
            served = sum([len(party.members) for party in able])
            if served == -most:
                seen[key] = able
                return key
            if able:
                heappush(queue, (-served, place, key))
        return 0

    def take(self, key: Key) -> None:
        """A stage: all inputs that can go on under a key do."""
        able = self._seen[key] if key else list(self.parties.values())
        for party in able:
            del self.parties[party.held]
        for party in able:
            targets = [j for j, by in party.ahead.items() if by == key][: None if key else 1]
            for i in party.members:
                self.walks[i].add(key, targets)
            self._advance(party, targets)
            same = self.parties.get(party.held)
            if same is not None or not party.ahead:
                party.keys = set()
            if same is not None:
                same.members += party.members
                self._enqueue(same, same.keys)
            elif party.ahead:
                self.parties[party.held] = party
                self._look_ahead(party)

    def _advance(self, party: _Party, targets: list[int]) -> None:
        own, classes = self._own, party.classes
        for j in targets:
            del party.ahead[j]
            party.held |= 1 << j
            classes |= own[j]
        if classes != party.classes:
            party.classes, party.ahead = classes, {j: classes & own[j] for j in party.ahead}

    def _look_ahead(self, party: _Party) -> None:
        """Find the keys that a party can go on under."""
        before, party.keys = party.keys, set(party.ahead.values())
        party.keys.discard(0)
        fresh = party.keys - before
        for key in fresh:
            self._seen.setdefault(key, []).append(party)
        if fresh or (party.first and party.first not in party.keys):
            self._enqueue(party, fresh)

    def _enqueue(self, party: _Party, more: set[Key]) -> None:
        """Queue those keys of a party that may be next: of those it has for itself the first, and of the others those
        that more inputs can go on under than before."""
        seen, first = self._seen, 0
        own: list[Key] = []
        for key in party.keys:
            able = seen[key]
            if len(able) > 1:
                if key in more:
                    heappush(self._queue, (-sum([len(each.members) for each in able]), _place(key), key))
                continue
            low = key & -key
            if not own or low < first:
                first, own = low, [key]
            elif low == first:
                own.append(key)
        party.first = 0
        if own:
            party.first = own[0] if len(own) == 1 else min(own, key=_place)
            heappush(self._queue, (-len(party.members), _place(party.first), party.first))


def _place(key: Key) -> str:
    """Texts that sort as the engine sorts keys, by the numbers of their classes: (0), (0 1), (0 2), (1)."""
    return bin(key)[:1:-1].translate(_FIRST_CLASSES_FIRST)
