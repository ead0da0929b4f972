"""Partition groups: how key hashes become groups, and groups slots (S1; Liu et al. 2006, 2.1).

A stream is split into many more groups than there are slots, so that state can later be spilled and moved group by
group without ever re-hashing. A group is a *contiguous range of the hash space*, numbered in hash order:

    group = floor(upper 32 bits of the hash * partitions / 2**32)

so a run that is sorted by hash is also sorted by group, and the rows of any range of groups are one slice of it.
`runtime/spark/frames.py` has the same formula as a Spark expression; a test keeps the two equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

DEFAULT_PARTITIONS = 256
PARTITIONS_MAX = 1 << 16


def group_of(hashes: npt.NDArray[np.uint64], partitions: int) -> npt.NDArray[np.int64]:
    """The partition group of every hash."""
    return (((hashes >> np.uint64(32)) * np.uint64(partitions)) >> np.uint64(32)).astype(np.int64)


def first_hash(group: int, partitions: int) -> int:
    """The least hash of a group; `first_hash(partitions, partitions)` is one past the last hash."""
    return -(-(group << 32) // partitions) << 32


def even_assignment(partitions: int, slots: int) -> tuple[int, ...]:
    """The slot of every group, with contiguous, equal shares."""
    return tuple(group * slots // partitions for group in range(partitions))
