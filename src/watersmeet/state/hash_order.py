"""The order of hashes, several times faster than a general sort, because hashes are spread evenly.

NumPy sorts 16-bit numbers by radix. So hashes are first brought into the order of their highest 16 bits. They are then
nearly sorted, and the sort that merges what is in order already has little left to do. If the hashes are not spread
evenly the order is still right, and that sort takes longer (`tests/unit/state/test_hash_order.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

HASHES_MIN = 512
"""Below this a general sort is as fast."""
_SHIFT = np.uint64(48)


def sorted_hashes(
    hashes: npt.NDArray[np.uint64], *, in_pieces: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """The order that sorts the hashes, and the sorted hashes. `in_pieces`: they are a few sorted pieces, one after the
    other, which only have to be merged."""
    if in_pieces or len(hashes) < HASHES_MIN:
        order = np.argsort(hashes, kind="stable" if in_pieces else None)
        return order, hashes.take(order)
    highest = np.right_shift(hashes, _SHIFT, out=np.empty(len(hashes), dtype=np.uint16), casting="unsafe")
    nearly = np.argsort(highest, kind="stable")
    ordered = hashes.take(nearly)
    rest = np.argsort(ordered, kind="stable")
    return nearly.take(rest), ordered.take(rest)
