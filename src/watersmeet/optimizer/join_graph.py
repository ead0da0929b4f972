"""The join graph: arrival rates, windows and selectivities, and how many rows follow from them.

All figures are taken to be independent and steady. Let sel(S) be the product of the selectivities that a set S of
streams binds. Then, for the windows of this engine, where max(t) - t_i < W_i:

    live(S)     = sel(S) x product of r_i W_i            combinations that are within their windows at any moment
    found(S, O) = live(S) x sum over i in O of 1 / W_i   combinations a second whose latest row came in by O

Two kinds of predicates:

| predicate                         | selectivity of a set that holds m of its streams | why                         |
|-----------------------------------|--------------------------------------------------|-----------------------------|
| key class, over k >= 2 streams    | s^(m - 1)                                        | equalities are transitive:  |
|                                   |                                                  | each further one costs s    |
| any other, over k >= 1 streams    | s if m = k, otherwise 1                          | it needs all its columns    |

So a class over k streams is a clique whose edges are not independent. The graphs of the papers, whose edges are, have
classes of two streams only. A stream by itself is not filtered: what is over one stream counts from the first join on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from watersmeet.errors import OptionError

Streams: TypeAlias = int
"""A set of streams: bit i stands for the stream with ordinal i. Sets of streams are what a search handles by the
thousand, and union, intersection and a key of a dictionary cost one instruction this way."""


Pair: TypeAlias = tuple[Streams, int, int, float]
RATE_MAX = 1e12
"""Rows a second: beyond what any stream has, and so little that products over all streams stay finite."""
LEAST = 1e-300
"""Stands for a rate or selectivity of 0, which has no logarithm."""


@lru_cache(maxsize=8192)
def bits(streams: Streams) -> tuple[int, ...]:
    """The ordinals in a set, ascending."""
    return tuple([i for i in range(streams.bit_length()) if streams >> i & 1])


def as_streams(ordinals: Iterable[int]) -> Streams:
    """A set of streams from their ordinals."""
    found = 0
    for ordinal in ordinals:
        found |= 1 << ordinal
    return found


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """A stream as the optimiser sees it; its window is finite (without one: as long as the query runs)."""

    name: str
    rate: float
    """Rows a second, after filters."""
    window_s: float
    row_bytes: float = 1.0
    """Of a stored row; the papers count tuples, and so does 1."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """The streams a predicate is over, and the share of combinations that it lets pass."""

    streams: Streams
    selectivity: float
    read_bytes: float = 0.0
    """Of the columns, over all its streams, that nothing else reads: results have them no longer."""


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """Streams and predicates. It remembers what it has computed, which no caller can see."""

    streams: tuple[StreamFigures, ...]
    classes: tuple[Predicate, ...] = ()
    others: tuple[Predicate, ...] = ()
    delay_s: float = 0.0
    """The largest delay of a stream: for so long stored rows are kept beyond their windows."""
    endless: Streams = 0
    """Streams without a window: `window_s` is how long the query has run, and nothing of them alone is ever let go."""
    pairs: tuple[Pair, ...] = field(init=False, repr=False, compare=False)
    """Predicates over two streams, of both kinds, since for these there is no difference: the streams as a set and by
    ordinal, and the selectivity. Most graphs have no others, and a search asks for these most."""
    shares: tuple[tuple[float, ...], ...] = field(init=False, repr=False, compare=False)
    log_shares: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)
    """The same as a table: by two streams, the product of their selectivities, and its logarithm."""
    log_other_shares: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)
    """Without those of key classes."""
    wide_classes: tuple[Predicate, ...] = field(init=False, repr=False, compare=False)
    wide_others: tuple[Predicate, ...] = field(init=False, repr=False, compare=False)
    """Those over more streams, or over one."""
    windows_s: tuple[float, ...] = field(init=False, repr=False, compare=False)
    volumes: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """By stream: its window, and the rows within it."""
    log_volumes: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)
    stream_classes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """By stream: the key classes that it has a column of, as bits; the first class is the highest."""
    window_s_max: float = field(init=False, repr=False, compare=False)
    has_common_class: bool = field(init=False, repr=False, compare=False)
    """Whether one key class is over all streams."""
    _neighbours: tuple[Streams, ...] = field(init=False, repr=False, compare=False)
    """By stream: those that it shares a key class with."""
    _classes: dict[Streams, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _live: dict[Streams, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _arrivals: dict[Streams, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _longest: dict[Streams, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _connected: dict[Streams, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for stream in self.streams:
            if not (0 <= stream.rate <= RATE_MAX and 0 < stream.window_s < math.inf and stream.row_bytes >= 0):
                raise OptionError(
                    f"cannot plan with {stream.rate} rows a second and a window of {stream.window_s} s "
                    f"for stream '{stream.name}'",
                    hint=f"rates must be from 0 to {RATE_MAX:g}, windows more than 0 and finite",
                )
        for predicate in (*self.classes, *self.others):
            if not 0 <= predicate.selectivity <= 1:
                raise OptionError(f"a selectivity is a share from 0 to 1, not {predicate.selectivity}")
        pairs, other_pairs = _pairs((*self.classes, *self.others)), _pairs(self.others)
        shares = _table(len(self.streams), pairs)
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "shares", tuple(map(tuple, shares.tolist())))
        object.__setattr__(self, "log_shares", np.log(np.maximum(shares, LEAST)))
        others = _table(len(self.streams), other_pairs)
        object.__setattr__(self, "log_other_shares", np.log(np.maximum(others, LEAST)))
        for name, given in (("wide_classes", self.classes), ("wide_others", self.others)):
            object.__setattr__(self, name, tuple(each for each in given if each.streams.bit_count() != 2))
        own, near = [0] * len(self.streams), [0] * len(self.streams)
        for number, each in enumerate(reversed(self.classes)):
            for i in bits(each.streams):
                own[i] |= 1 << number
                near[i] |= each.streams
        object.__setattr__(self, "windows_s", tuple(each.window_s for each in self.streams))
        object.__setattr__(self, "volumes", tuple(each.rate * each.window_s for each in self.streams))
        object.__setattr__(self, "log_volumes", np.log(np.maximum(self.volumes, LEAST)))
        object.__setattr__(self, "stream_classes", tuple(own))
        object.__setattr__(self, "_neighbours", tuple(near))
        object.__setattr__(self, "window_s_max", self.longest_s(self.everyone))
        object.__setattr__(self, "has_common_class", any(each.streams == self.everyone for each in self.classes))

    @property
    def everyone(self) -> Streams:
        return (1 << len(self.streams)) - 1

    def selectivity(self, streams: Streams) -> float:
        share = 1.0
        if streams.bit_count() < 2:
            return share
        if self.pairs:
            members = bits(streams)
            for place, i in enumerate(members):
                of_pair = self.shares[i]
                for j in members[:place]:
                    share *= of_pair[j]
        for each in self.wide_classes:
            bound = (each.streams & streams).bit_count()
            if bound > 1:
                share *= each.selectivity ** (bound - 1)
        for other in self.wide_others:
            if other.streams & streams == other.streams:
                share *= other.selectivity
        return share

    def live(self, streams: Streams) -> float:
        """Combinations of the streams that are within their windows at any moment."""
        known = self._live.get(streams)
        if known is None:
            volume = math.prod([self.volumes[i] for i in bits(streams)])
            known = self._live[streams] = self.selectivity(streams) * volume
        return known

    def arrivals(self, origin: Streams) -> float:
        """The sum of 1 / W: for every live combination, so many a second are found whose latest row is of `origin`."""
        known = self._arrivals.get(origin)
        if known is None:
            known = self._arrivals[origin] = sum([1 / self.windows_s[i] for i in bits(origin)])
        return known

    def found(self, streams: Streams, origin: Streams | None = None) -> float:
        """Combinations a second; with an origin, those whose latest row came in by one of its streams."""
        if streams.bit_count() == 1:
            return self.streams[streams.bit_length() - 1].rate
        return self.live(streams) * self.arrivals(streams if origin is None else origin)

    def longest_s(self, streams: Streams) -> float:
        """The longest of their windows, of streams that have one if there are any."""
        known = self._longest.get(streams)
        if known is None:
            ending = streams & ~self.endless or streams
            known = self._longest[streams] = max([self.windows_s[i] for i in bits(ending)])
        return known

    def kept_seconds(self, streams: Streams) -> float:
        """The lifetime of a row of a store, if it ends at all. A result ends with the first of its parts."""
        return min([self.windows_s[i] for i in bits(streams & ~self.endless)]) + self.delay_s

    def row_bytes(self, streams: Streams) -> float:
        """The width of a row: that of its parts together."""
        return sum([self.streams[i].row_bytes for i in bits(streams)])

    def classes_of(self, streams: Streams) -> int:
        """The key classes that some of these streams have a column of, as bits."""
        known = self._classes.get(streams)
        if known is None:
            known = 0
            for i in bits(streams):
                known |= self.stream_classes[i]
            self._classes[streams] = known
        return known

    def shared_classes(self, one: Streams, other: Streams) -> int:
        """The key classes that two sets both have a column of, as bits."""
        return self.classes_of(one) & self.classes_of(other)

    def linked(self, one: Streams, other: Streams) -> bool:
        """Whether some predicate applies when these two sets are joined; if not, they make a Cartesian product."""
        if self.shared_classes(one, other):
            return True
        both = one | other
        return any(p.streams & both == p.streams and p.streams & one and p.streams & other for p in self.others)

    def connected(self, streams: Streams) -> bool:
        """Whether predicates connect these streams with each other."""
        known = self._connected.get(streams)
        if known is None:
            reached, ahead = 0, streams & -streams
            while ahead:
                reached |= ahead
                near = 0
                for i in bits(ahead):
                    near |= self._neighbours[i]
                for other in self.others:
                    if other.streams & streams == other.streams and other.streams & reached:
                        near |= other.streams
                ahead = near & streams & ~reached
            known = self._connected[streams] = reached == streams
        return known


def _pairs(predicates: Iterable[Predicate]) -> tuple[Pair, ...]:
    """The predicates over two streams."""
    two = [(each, tuple(bits(each.streams))) for each in predicates if each.streams.bit_count() == 2]
    return tuple((each.streams, i, j, each.selectivity) for each, (i, j) in two)


def _table(count: int, pairs: Iterable[Pair]) -> npt.NDArray[np.float64]:
    shares = np.ones((count, count))
    for _, i, j, selectivity in pairs:
        shares[i, j] *= selectivity
        shares[j, i] = shares[i, j]
    return shares


def pairwise_graph(
    rates: Mapping[str, float], edges: Mapping[str, float], window_s: float | Sequence[float] = 1.0
) -> JoinGraph:
    """A graph as the papers draw it: `{"A": 10, "B": 20}`, and a selectivity for every edge `"AB"`."""
    names = list(rates)
    windows = [window_s] * len(names) if isinstance(window_s, int | float) else list(window_s)
    streams = tuple(StreamFigures(name, rates[name], float(w)) for name, w in zip(names, windows, strict=True))
    classes = tuple(Predicate(as_streams(names.index(name) for name in edge), share) for edge, share in edges.items())
    return JoinGraph(streams, classes)
