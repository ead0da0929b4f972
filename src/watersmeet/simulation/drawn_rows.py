"""Rows for the real engine, drawn from a load by a seed: the same seed and spans give the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.adaptation.figures import Ints
from watersmeet.plan.partitioning import group_of
from watersmeet.runtime.inprocess_frames import pandas_hash
from watersmeet.simulation.clock import Floats
from watersmeet.simulation.load import Load


class KeyPool:
    """Key values by their partition group."""

    def __init__(self, partitions: int, per_group: Sequence[int]) -> None:
        """`per_group` is how many values each group has."""
        counts = np.asarray(per_group, dtype=np.int64)
        values = np.arange(max(1024, 4 * int(counts.max()) * partitions))
        groups = group_of(pandas_hash([pa.array(values)]), partitions)
        order = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[order], np.arange(partitions + 1))
        if (np.diff(starts) < counts).any():
            raise ValueError("too few values for some group")
        self.values, self.starts, self.counts = values[order], starts[:-1], counts

    def draw(self, groups: Ints, rng: np.random.Generator) -> Ints:
        """A value of each group."""
        found: Ints = self.values[self.starts[groups] + rng.integers(0, self.counts[groups])]
        return found


class DrawnRows:
    """Streams with columns k (the key), n (the number of the row) and ts, in that order, joined on k.

    The key of the load is the one key of the query. A group with `per_group` values matches with weight mean / values.
    """

    def __init__(self, names: Sequence[str], load: Load, key: str, pool: KeyPool, seed: int) -> None:
        self.names, self.load, self.key, self.pool = names, load, key, pool
        self._rng = np.random.default_rng(seed)
        self._owed = np.zeros(len(names))
        self._numbers = [0] * len(names)

    def __call__(self, since_s: float, until_s: float) -> Mapping[str, pa.Table]:
        shares = self.load.shares(self.key, since_s, until_s)
        return {name: self._rows(i, shares, since_s, until_s) for i, name in enumerate(self.names)}

    def _rows(self, stream: int, shares: Floats, since_s: float, until_s: float) -> pa.Table:
        self._owed[stream] += self.load.rows(stream, since_s, until_s)
        count = int(self._owed[stream])
        self._owed[stream] -= count
        places = np.sort((np.arange(count) + self._rng.random(count)) / max(1, count))
        groups = np.minimum(np.searchsorted(np.cumsum(shares), places, side="right"), len(shares) - 1)
        keys = self.pool.draw(self._rng.permutation(groups), self._rng)
        first = self._numbers[stream]
        self._numbers[stream] += count
        times = np.round((since_s + (until_s - since_s) * (np.arange(count) + 1) / max(1, count)) * 1e6)
        return pa.table(
            {
                "k": keys,
                "n": np.arange(first, first + count),
                "ts": pa.array(times.astype(np.int64)).cast(pa.timestamp("us", "UTC")),
            }
        )
