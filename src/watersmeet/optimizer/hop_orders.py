"""In which order the inputs of a mixed node probe each other: the engine's own rule, said of sets of streams.

A node over several keys is probed hop by hop, and its hops follow from its keys (`plan/hops.py`): the input that has
come least far goes on, under the key that takes most others along. So an optimiser has nothing to choose here, and a
cost by any other order would be of a plan that does not run.

Inputs whose rows have come to hold the same go on together from there: they are one *party*. The keys under which it
can go on change only when it has taken a step. So a node of 20 inputs takes one to four milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.optimizer.shapes import Inputs
from watersmeet.optimizer.stage_keys import Key, Walk, Walks


def hop_walks(graph: JoinGraph, inputs: Inputs) -> Walks:
    """By input, the others in the order in which its rows meet them."""
    progress = _Progress([graph.classes_of(each) for each in inputs])
    stages = 0
    while progress.parties:
        progress.take(progress.next_key())
        stages += 1
    return Walks(tuple([each.walk() for each in progress.starts]), stages)


@dataclass(slots=True, eq=False)
class _Party:
    """Inputs whose rows hold the same inputs by now."""

    first: int
    """The first of its members."""
    held: int
    """The inputs that their rows hold, as bits."""
    classes: int
    ahead: dict[int, Key]
    """Which inputs are still to be probed, and under which keys that could be done now."""
    keys: set[Key]
    """These keys, each once."""
    size: int = 1
    turn: tuple[int, int, int] = (0, 0, 0)
    """The least of all goes on first."""
    way: Walk = field(default_factory=lambda: Walk([], [], []))
    """What it has probed since it came to be."""
    joined: tuple[_Party, int] | None = None
    """The party that it has become part of, and how many probes that had behind it."""

    def walk(self) -> Walk:
        """From here to the end."""
        way, party = self.way, self
        while party.joined is not None:
            party, start = party.joined
            way = way.followed_by(party.way, start)
        return way


_TURN = attrgetter("turn")


class _Progress:
    """How far the rows of every input have come."""

    def __init__(self, own: list[int]) -> None:
        self._own = own
        self.starts: list[_Party] = []
        """By input, the party that it was by itself."""
        self.parties: dict[int, _Party] = {}
        """By what they hold, those that have not come to the end."""
        for i, mine in enumerate(own):
            ahead = {j: mine & other for j, other in enumerate(own) if j != i}
            party = _Party(i, 1 << i, mine, ahead, set(ahead.values()) - {0})
            self.starts.append(party)
            self.parties[party.held] = party
            self._set_turn(party)

    def next_key(self) -> Key:
        """Of those of the party whose turn it is, the one under which most inputs can go on, of several the first; 0 if
        no party has any."""
        party = min(self.parties.values(), key=_TURN)
        served: dict[Key, int] = {}
        for other in self.parties.values():
            if other is not party and not party.keys.isdisjoint(other.keys):
                for key in party.keys & other.keys:
                    served[key] = served.get(key, 0) + other.size
        if not served:
            return _first(party.keys)
        most = max(served.values())
        return _first([key for key, count in served.items() if count == most])

    def take(self, key: Key) -> None:
        """A stage: all inputs that can go on under a key do."""
        own, parties = self._own, self.parties
        able = [party for party in parties.values() if not key or key in party.keys]
        for party in able:
            del parties[party.held]
        for party in able:
            ahead, held, classes = party.ahead, party.held, party.classes
            targets = [j for j, by in ahead.items() if by == key][: None if key else 1]
            for j in targets:
                del ahead[j]
                held |= 1 << j
                classes |= own[j]
            party.way.add(key, targets)
            party.held = held
            same = parties.get(held)
            if same is not None:
                self._merge(party, same)
            elif ahead:
                parties[held] = party
                if classes == party.classes:
                    party.keys.discard(key)
                else:
                    party.classes, party.ahead = classes, {j: classes & own[j] for j in ahead}
                    party.keys = set(party.ahead.values()) - {0}
                self._set_turn(party)

    def _set_turn(self, party: _Party) -> None:
        """Whoever holds fewest goes first, of several who has fewest keys, and last who has none."""
        keys = party.keys
        party.turn = (party.held.bit_count() if keys else len(self._own), len(keys), party.first)

    def _merge(self, party: _Party, same: _Party) -> None:
        """Two parties hold the same, and are one from now on."""
        party.joined = same, len(same.way.targets)
        same.size += party.size
        same.first = min(same.first, party.first)
        self._set_turn(same)


def _first(keys: Sequence[Key] | set[Key]) -> Key:
    """As the engine sorts keys, by the numbers of their classes: (0), (0 1), (0 2), (1). The first class is the highest
    bit, so the greatest number is the first key, unless that begins with another one."""
    found = beginning = max(keys, default=0)
    if len(keys) > 1:
        while beginning := beginning & (beginning - 1):
            if beginning in keys:
                found = beginning
    return found
