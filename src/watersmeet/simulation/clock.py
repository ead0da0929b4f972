"""A virtual clock: an epoch takes as long as its slowest slot, and then the network (DESIGN 1).

| work of a slot                              | price          |
|---------------------------------------------|----------------|
| a row stored                                | `stored_s`     |
| a key looked up in a store                  | `looked_up_s`  |
| a combination that a probe meets            | `met_s`        |
| a result                                    | `result_s`     |
| a byte written to disk, or read to clean up | `disk_byte_s`  |
| a row sent to the slot                      | `sent_row_s`   |
| a byte of state that comes or goes          | `moved_byte_s` |
| the stages of an epoch, whatever they do    | `stage_s`      |

Sent rows and moved bytes are the network's: the slot with most of them ends last. A batch holds the rows that arrived
since the last one was taken. So a slow epoch makes the next batch larger, up to `batch_s_max`; beyond that, rows wait
at the source and results lag.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from watersmeet.optimizer.cost import DEFAULT_PRICES
from watersmeet.planning.planner import SPARK_PRICES

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockPrices:
    """Seconds per unit of work. CPU prices are the optimiser's; 200 MB/s for disks and 125 MB/s for the network are
    assumptions, and so is the price of a result."""

    stored_s: float = DEFAULT_PRICES.insert_s
    looked_up_s: float = DEFAULT_PRICES.lookup_s
    met_s: float = DEFAULT_PRICES.join_s
    result_s: float = 1e-7
    disk_byte_s: float = 1 / 200e6
    sent_row_s: float = SPARK_PRICES.exchange_s
    moved_byte_s: float = 1 / 125e6
    stage_s: float = SPARK_PRICES.stage_s


@dataclass(slots=True, eq=False)
class Work:
    """What every slot did in an epoch: arrays by slot."""

    stored: Floats
    looked_up: Floats
    met: Floats
    results: Floats
    disk_bytes: Floats
    sent_rows: Floats
    moved_bytes: Floats
    """Came or went."""

    @staticmethod
    def none(slots: int) -> Work:
        return Work(*(np.zeros(slots) for _ in fields(Work)))


def insert_s(prices: ClockPrices, stored: float) -> float:
    """The CPU time of storing rows, as a slot reports it."""
    return stored * prices.stored_s


def probe_s(prices: ClockPrices, looked_up: float, met: float, results: float) -> float:
    """The CPU time of joining, as a slot reports it."""
    return looked_up * prices.looked_up_s + met * prices.met_s + results * prices.result_s


def epoch_s(prices: ClockPrices, work: Work, stages: int) -> float:
    """The length of an epoch."""
    joining = work.looked_up * prices.looked_up_s + work.met * prices.met_s + work.results * prices.result_s
    busy = work.stored * prices.stored_s + joining + work.disk_bytes * prices.disk_byte_s
    sent = work.sent_rows * prices.sent_row_s + work.moved_bytes * prices.moved_byte_s
    return float(stages * prices.stage_s + busy.max() + sent.max())


@dataclass(slots=True)
class VirtualClock:
    """When batches are taken, and the rows that each of them holds, as a span of arrival times."""

    interval_s: float
    """A batch is taken at most so often."""
    batch_s_max: float | None = None
    now_s: float = 0.0
    taken_s: float = 0.0
    """Rows that arrived before are in batches."""

    def next_batch(self) -> tuple[float, float]:
        """Wait until a batch is due and take it: the span of its arrivals."""
        self.now_s = max(self.now_s, self.taken_s + self.interval_s)
        since, until = self.taken_s, self.now_s
        if self.batch_s_max is not None:
            until = min(until, since + max(self.interval_s, self.batch_s_max))
        self.taken_s = until
        return since, until

    def spend(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def lag_s(self) -> float:
        """How long the first row that is not in a batch yet has waited."""
        return self.now_s - self.taken_s
