"""A sieve: a bit per range of hashes that says whether a run has keys there, so that most absent keys need no search.

Hashes are spread evenly, so with `RANGES_PER_KEY` ranges for every key seven of eight absent keys fall into an empty
one. A search in a long run costs several cache misses per key, a look into the sieve one. A sieve is made when a
segment is mapped and lives as long as the mapping: a byte or two per distinct key that no file holds.

The range of a hash depends only on the width of the ranges, and the width on the density of keys in a run. So a delta
that is looked up in the sieves of many runs computes its ranges once per width. There are few widths: see `Lookup`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RANGES_PER_KEY = 8
KEYS_MIN = 1 << 12
"""Below this a search stays in the cache anyway."""


class Lookup:
    """Hashes that are looked up in several sieves."""

    def __init__(self, hashes: npt.NDArray[np.uint64]) -> None:
        self.hashes = hashes
        self._places: dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]] = {}

    def places(self, shift: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """The byte and the bit in it of every hash, in a sieve over all hashes with ranges of 2**shift."""
        found = self._places.get(shift)
        if found is None:
            ranges = self.hashes >> np.uint64(shift)
            bits = np.left_shift(1, ranges & np.uint64(7), dtype=np.uint8, casting="unsafe")
            found = self._places[shift] = (ranges >> np.uint64(3)).view(np.int64), bits
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Sieve:
    """Whether there are keys in the range number hash >> shift: bit (number mod 8) of byte (number // 8 - first)."""

    first: int
    shift: int
    bits: npt.NDArray[np.uint8]

    def may_have(self, lookup: Lookup, low: int, high: int) -> npt.NDArray[np.int64]:
        """Which of the hashes low .. high may be among those of the sieve; all must lie between its ends."""
        places, bits = lookup.places(self.shift)
        if high - low < len(places):
            places, bits = places[low:high], bits[low:high]
        if self.first:
            places = places - self.first
        found = ((self.bits.take(places) & bits) != 0).nonzero()[0]
        return found + low if low else found


def sieve_of(hashes: npt.NDArray[np.uint64]) -> Sieve | None:
    """The sieve of ascending hashes; None where it would not pay."""
    if len(hashes) < KEYS_MIN:
        return None
    low, high = int(hashes[0]), int(hashes[-1])
    shift = max(0, (high - low).bit_length() - (RANGES_PER_KEY * len(hashes)).bit_length())
    first, last = low >> shift + 3, high >> shift + 3
    if 8 * first < last:
        first = 0  # costs a few bytes, and saves a subtraction per hash
    marks = np.zeros((last - first + 1) * 8, dtype=np.bool_)
    marks[(hashes >> np.uint64(shift)) - np.uint64(first << 3)] = True
    return Sieve(first, shift, np.packbits(marks, bitorder="little"))
