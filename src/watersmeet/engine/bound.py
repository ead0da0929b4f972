"""The rows of one input that partial results have bound: row numbers, until somebody reads a column.

A partial holds an index into the rows that were bound together, and those lie in one run or in several. Gathering is
left to whoever reads a column, so rows that were dropped by then are never gathered:

| bound rows lie            | a column is gathered                                                          |
|---------------------------|-------------------------------------------------------------------------------|
| in one run                | by the partials' row numbers, at once                                         |
| in several, index ascends | run by run: nothing has been bound since, so partials are in the rows' order  |
| in several, in any order  | run by run, each row that is left once; then each partial takes its own       |
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
    """What partial results hold of one bound input: the rows that were bound, and for each partial its row among them.

    Immutable but for the note of where its rows lie, which is made when the first column is read.
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
    """The rows to gather, and, unless it is simply its own, the gathered row of each partial."""
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
    """Some of the rows, in order, cut into those of each run; at least one piece, though it may be empty."""
    cuts = np.searchsorted(index, edges)
    found = [
        (payload, rows[index[low:high] - first])
        for (payload, rows), first, low, high in zip(pieces, edges, cuts, cuts[1:], strict=False)
        if high > low
    ]
    return found or [(pieces[0][0], pieces[0][1][:0])]
