"""A sieve: a bit per range of hashes that says whether a run has keys there, so that most absent keys need no search.

Hashes are spread evenly, so with `RANGES_PER_KEY` ranges for every key seven of eight absent keys fall into an empty
one. A search in a long run costs several cache misses per key, a look into the sieve one. A sieve is made when a
segment is mapped and lives as long as the mapping: a byte or two per distinct key that no file holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RANGES_PER_KEY = 8
KEYS_MIN = 1 << 12
"""Below this a search stays in the cache anyway."""


@dataclass(frozen=True, slots=True, eq=False)
class Sieve:
    """Whether there are keys in the range number (hash - first) >> shift."""

    first: np.uint64
    shift: np.uint64
    bits: npt.NDArray[np.uint8]

    def may_have(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """False where a hash is none of those that the sieve was made of; they must lie between first and last."""
        ranges = (hashes - self.first) >> self.shift
        found: npt.NDArray[np.bool_] = (self.bits[ranges >> np.uint64(3)] >> (ranges & np.uint64(7))) & 1 != 0
        return found


def sieve_of(hashes: npt.NDArray[np.uint64]) -> Sieve | None:
    """The sieve of ascending hashes; None where it would not pay."""
    if len(hashes) < KEYS_MIN:
        return None
    first, span = hashes[0], int(hashes[-1]) - int(hashes[0])
    shift = np.uint64(max(0, span.bit_length() - (RANGES_PER_KEY * len(hashes)).bit_length()))
    marks = np.zeros((span >> int(shift)) + 1, dtype=np.bool_)
    marks[(hashes - first) >> shift] = True
    return Sieve(first, shift, np.packbits(marks, bitorder="little"))
