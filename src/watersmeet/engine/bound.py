"""The rows of one input that partial results have bound: row numbers, until a column is read.

A partial holds an index into the rows that were bound together, from one run or several. Columns are gathered when they
are read, so rows that were dropped before are never gathered:

| bound rows lie            | a column is gathered                                                          |
|---------------------------|-------------------------------------------------------------------------------|
| in one run                | by the partials' row numbers, at once                                         |
| in several, index ascends | run by run: no later input is bound, so partials are in the order of the rows |
| in several, in any order  | run by run, each remaining row once; then each partial takes its own row      |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.state.run import Ints, Mask, take

Piece = tuple[pa.RecordBatch, Ints]
"""Rows of one run: its payload, and their numbers in it."""


@dataclass(slots=True, eq=False)
class Bound:
    """One bound input of partial results: the rows that were bound, and for each partial its index among them.

    Immutable, except for the cached places of its rows, which are found when the first column is read.
    """

    pieces: Sequence[Piece]
    times: Ints | None
    index: Ints
    _located: tuple[list[Piece], Ints | None] | None = field(default=None, init=False, repr=False)

    def narrowed(self, rows: Ints | Mask | slice) -> Bound:
        return Bound(self.pieces, self.times, self.index[rows])

    def column(self, number: int) -> pa.Array:
        """The values of a payload column, one per partial."""
        if self._located is None:
            self._located = _locate(self.pieces, self.index)
        pieces, places = self._located
        parts = [take(payload.column(number), rows) for payload, rows in pieces]
        gathered = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return gathered if places is None else take(gathered, places)


def _locate(pieces: Sequence[Piece], index: Ints) -> tuple[list[Piece], Ints | None]:
    """The rows to gather, and for each partial the number of its gathered row; None if they are in the same order."""
    if len(pieces) == 1:
        payload, rows = pieces[0]
        return [(payload, rows[index])], None
    edges = np.cumsum([0, *(len(rows) for _, rows in pieces)])
    if (index[1:] >= index[:-1]).all():
        return _cut(pieces, edges, index), None
    is_used = np.zeros(edges[-1], dtype=np.bool_)
    is_used[index] = True
    used = np.flatnonzero(is_used)
    place = np.empty(edges[-1], dtype=np.int64)
    place[used] = np.arange(len(used))
    return _cut(pieces, edges, used), place[index]


def _cut(pieces: Sequence[Piece], edges: Ints, index: Ints) -> list[Piece]:
    """Some of the rows, in order, cut by run; at least one piece, perhaps empty."""
    cuts = np.searchsorted(index, edges)
    found = [
        (payload, rows[index[low:high] - first])
        for (payload, rows), first, low, high in zip(pieces, edges, cuts, cuts[1:], strict=False)
        if high > low
    ]
    return found or [(pieces[0][0], pieces[0][1][:0])]
