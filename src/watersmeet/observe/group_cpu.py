"""CPU time of partition groups, derived from counts: the cost of their rows and results at the mean of all groups.

    cpu = rows stored x (time to store and to expire / rows stored) + results x (time to probe / results)

Times are measured over the life of the checkpoint. Rows and results of a group are those that spill policies see, aged
by `spillUpkeep`: with `ewma`, of a recent epoch. So the figures of all groups add up to about the CPU time of an epoch.
Known limitation: the cost of probes without a match is charged to groups with matches.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.adaptation.group_loads import Prices
from watersmeet.state.measures import Counts


def with_cpu(groups: pa.Table, totals: Counts) -> pa.Table:
    """The table of a ledger (`adaptation/ledger.py`) with a column `cpu_ns`."""
    arrived = np.array([sum(rows) for rows in groups["upkept_arrived"].to_pylist()], dtype=np.float64)
    cpu = Prices.of(totals).cpu_ns(arrived, groups["upkept_local"].to_numpy())
    return groups.append_column("cpu_ns", pa.array(np.rint(cpu).astype(np.int64)))
