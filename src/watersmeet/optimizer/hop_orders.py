"""The default probe orders of a mixed node: the engine's own rule (`plan/hops.py`), applied to sets of streams.

A node over several keys is probed hop by hop. Without probe orders a rule makes the hops: the input that has taken the
fewest steps goes next, under the key that takes most other inputs along. That makes few stages. Orders that meet fewer
combinations may need more stages; `cost.py` compares.

Inputs whose rows have bound the same streams continue together: they are one *party*. Hops are recorded by party, not
by input, and the possible next keys of a party are computed only after it has taken a step. So a node of 20 inputs
takes one or two milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from watersmeet.optimizer.join_graph import JoinGraph, Streams
from watersmeet.optimizer.shapes import Inputs
from watersmeet.optimizer.stage_keys import Hop, Key, Walks
from watersmeet.plan.probe_orders import ProbeOrder


def hop_walks(graph: JoinGraph, inputs: Inputs) -> Walks:
    """The walks of all inputs by the engine's rule."""
    progress = _Progress(inputs, [graph.classes_of(each) for each in inputs])
    stages = 0
    while progress.parties:
        progress.take(progress.next_key())
        stages += 1
    return Walks(progress.hops, stages, tuple([each.order() for each in progress.starts]))


@dataclass(slots=True, eq=False)
class _Party:
    """Inputs whose rows have bound the same streams."""

    first: int
    """The number of the first of its members."""
    origins: Streams
    """Its members."""
    held: Streams
    """The streams that their rows have bound."""
    classes: int
    ahead: list[int]
    """Which inputs are still to be probed, ascending."""
    under: dict[Key, list[int]] = field(default_factory=dict)
    """Those that could be probed now, by the keys under which."""
    size: int = 1
    turn: tuple[int, int, int] = (0, 0, 0)
    """The least of all goes on first."""
    probed: list[int] = field(default_factory=list)
    """Since it came to be."""
    joined: tuple[_Party, int] | None = None
    """The party that it has become part of, and how many probes that had behind it."""

    def take_turn(self) -> None:
        """Set the turn: first the party that has bound the fewest streams, then the one with the fewest keys. Parties
        without a key come last."""
        keys = len(self.under)
        self.turn = (-len(self.ahead) if keys else 0, keys, self.first)

    def absorb(self, other: _Party) -> None:
        """Merge another party that has bound the same streams into this one."""
        other.joined = self, len(self.probed)
        self.size += other.size
        self.origins |= other.origins
        self.first = min(self.first, other.first)
        self.take_turn()

    def order(self) -> ProbeOrder:
        """The rest of the probe order, from this party on."""
        probed, party = self.probed, self
        while party.joined is not None:
            party, start = party.joined
            probed = probed + party.probed[start:]
        return tuple(probed)


_TURN = attrgetter("turn")


class _Progress:
    """The parties of all inputs, and their progress."""

    def __init__(self, inputs: Inputs, own: list[int]) -> None:
        self._inputs, self._own = inputs, own
        self._able: dict[Key, list[_Party]] = {}
        """By key: the parties that can go on under it."""
        self.hops: list[Hop] = []
        self.starts: list[_Party] = []
        """By input, the party that it was by itself."""
        self.parties: dict[Streams, _Party] = {}
        """By what they hold, those that have not come to the end."""
        for i, (streams, mine) in enumerate(zip(inputs, own, strict=True)):
            party = _Party(i, streams, streams, mine, [j for j in range(len(own)) if j != i])
            self._look_ahead(party)
            self.starts.append(party)
            self.parties[streams] = party

    def next_key(self) -> Key:
        """The next key: of the keys of the party whose turn it is, the first under which the most inputs can step. 0 if
        no party has a key."""
        able, most, found = self._able, 0, [0]
        for key in min(self.parties.values(), key=_TURN).under:
            count = 0
            for party in able[key]:
                count += party.size
            if count > most:
                most, found = count, [key]
            elif count == most:
                found.append(key)
        return _first(found)

    def take(self, key: Key) -> None:
        """One stage: all inputs that can step under a key do so."""
        parties, able = self.parties, self._able
        going = able.pop(key) if key else list(parties.values())
        for party in going:
            del parties[party.held]
        for party in going:
            classes, under = party.classes, party.under
            self._step(party, key)
            same = parties.get(party.held)
            if same is not None:
                same.absorb(party)
            elif party.ahead:
                parties[party.held] = party
                if party.classes == classes:
                    party.take_turn()
                    continue
                self._look_ahead(party)
            for each in under:
                able[each].remove(party)

    def _step(self, party: _Party, key: Key) -> None:
        targets = party.under.pop(key) if key else party.ahead[:1]
        is_sent, is_new = True, not party.probed
        for j in targets:
            self.hops.append(Hop(party.origins, party.held, key, j, is_sent, is_new))
            is_sent = is_new = False
            party.ahead.remove(j)
            party.held |= self._inputs[j]
            party.classes |= self._own[j]
        party.probed += targets

    def _look_ahead(self, party: _Party) -> None:
        """Update the possible next keys of a party that has bound more key classes."""
        own, classes, able = self._own, party.classes, self._able
        under: dict[Key, list[int]] = {}
        for j in party.ahead:
            key = classes & own[j]
            if key in under:
                under[key].append(j)
            elif key:
                under[key] = [j]
                if key in able:
                    able[key].append(party)
                else:
                    able[key] = [party]
        party.under = under
        party.take_turn()


def _first(keys: list[Key]) -> Key:
    """The first key in the engine's order, which is by class numbers: (0), (0 1), (0 2), (1). The first class is the
    highest bit, so the greatest number is the first key, unless another key is a prefix of it."""
    found = beginning = max(keys)
    while beginning := beginning & (beginning - 1):
        if beginning in keys:
            found = beginning
    return found
