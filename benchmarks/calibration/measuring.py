"""Trees on the real engine, in process and on one slot: CPU seconds per second of event time, and bytes of state.

All trees of a query are fed each micro-batch in turn, so that what else the machine does slows all of them alike. Their
results must be equal, as count and checksum, batch by batch. Measured from FULL windows on, when rows expire as fast as
they arrive, in REPEATS stretches of the longest window each: CPU of the process, and the bytes of all stores as the
engine reports them (key, time and columns of every stored row, expired or not), of which the most is taken.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.calibration.queries import Workload
from benchmarks.calibration.trees import Compared
from benchmarks.join_shapes import checksum
from benchmarks.state_growth import mixed
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import STORE_BYTES

FULL = 1.25
"""Windows after which the state no longer grows: one, and the time buckets that straddle its end."""
REPEATS = 3
COUNTS = ("matched", "inserted", "intermediate", "expired")


@dataclass(frozen=True, slots=True)
class Measured:
    """A tree at steady state."""

    repeats_cpu_s: tuple[float, ...]
    """CPU seconds per second of event time, by stretch."""
    state_bytes_max: int
    """Of all stores, after any measured micro-batch."""
    file_bytes_max: int
    """Of the files they are in, with all that makes them searchable and what has not been merged away yet."""
    counts: Mapping[str, int]
    """What the engine counted itself, per second."""
    results: int

    @property
    def cpu_s(self) -> float:
        return statistics.median(self.repeats_cpu_s)


@dataclass(slots=True)
class _Running:
    engine: InProcessQuery
    cpu_s: list[float] = field(default_factory=list)
    """By micro-batch."""
    state_bytes: list[int] = field(default_factory=list)
    file_bytes: list[int] = field(default_factory=list)
    before: Counter[str] = field(default_factory=Counter)
    results: int = 0

    def run(self, batch: Mapping[str, pa.Table], *, is_measured: bool) -> tuple[int, int]:
        """Count and checksum of what a micro-batch yields."""
        began = time.process_time()
        results = self.engine.run(batch)
        spent = time.process_time() - began
        if is_measured:
            self.cpu_s.append(spent)
            after = self.engine.manifest
            self.state_bytes.append(after.totals.sum(STORE_BYTES))
            self.file_bytes.append(sum(each.bytes for each in after.segments.values()))
            self.results += results.num_rows
        else:
            self.before = Counter(self.engine.manifest.totals.by_name())
        return checksum(results)

    def measured(self) -> Measured:
        seconds = len(self.cpu_s)
        length = seconds // REPEATS
        stretches = (self.cpu_s[i * length : (i + 1) * length] for i in range(REPEATS))
        totals = self.engine.manifest.totals.by_name()
        return Measured(
            repeats_cpu_s=tuple(sum(each) / length for each in stretches),
            state_bytes_max=max(self.state_bytes),
            file_bytes_max=max(self.file_bytes),
            counts={name: (totals.get(name, 0) - self.before[name]) // seconds for name in COUNTS},
            results=self.results,
        )


def run_all(workload: Workload, trees: Sequence[Compared]) -> list[Measured]:
    """All trees over the same data, in turn, micro-batch by micro-batch."""
    warm = math.ceil(FULL * workload.window_s_max)
    with ExitStack() as cleanup:
        running = [_Running(_start(workload, tree, cleanup)) for tree in trees]
        for number, batch in enumerate(workload.batches(warm + REPEATS * workload.window_s_max)):
            sums = [each.run(batch, is_measured=number >= warm) for each in running]
            assert len(set(sums)) == 1, f"trees of {workload.name} disagree in batch {number}: {sums}"
        return [each.measured() for each in running]


def _start(workload: Workload, tree: Compared, cleanup: ExitStack) -> InProcessQuery:
    folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="watersmeet-bench-"))
    memory = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="watersmeet-bench-", dir="/dev/shm"))
    query = workload.query()
    return InProcessQuery(
        query, Path(folder), memory=Path(memory), hash_keys=mixed, trees=[tree.tree], orders=tree.orders_by_node
    )
