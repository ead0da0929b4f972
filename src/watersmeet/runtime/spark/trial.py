"""The first micro-batches of a query on Spark: what they show together, and their rows, kept until the plan is settled.

The rule is `adaptation/trial.py`; what becomes of a state whose plan has changed is `runtime/replay.py`. Rows are kept
in the source frame, which no plan has a part in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from watersmeet.epoch.events import Event
from watersmeet.adaptation.trial import ROWS_ENOUGH, has_ended
from watersmeet.epoch.task import SlotReport
from watersmeet.failpoints import failpoint
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.epoch import Intake
from watersmeet.runtime.replay import replayed, without_foresight
from watersmeet.runtime.spark.job import Duties, EpochJob
from watersmeet.runtime.spark.planning import Planner
from watersmeet.runtime.spark.slot_work import Folders
from watersmeet.state.manifest import FirstBatch, Manifest, SegmentRef
from watersmeet.state.trial_files import TrialFiles

KEPT_DDL = "name string, bytes bigint, crc bigint, rows bigint"


class Kept(NamedTuple):
    """The rows of a micro-batch in a file, and how many they are."""

    file: SegmentRef
    rows: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the micro-batches so far say of the plan."""

    chosen: tuple[JoinPlan, Event] | None
    """The plan to go on with, and how it came about; None: no other."""
    kept: Kept | None
    """The rows of the present one, which the manifest is to name with the others; None: the plan is settled."""


class Trial:
    """Decides when a plan is chosen by rows, and keeps them as long as it may have to be chosen again."""

    def __init__(self, planner: Planner, files: TrialFiles, batches: int, *, has_plan: bool) -> None:
        """`has_plan`: the checkpoint is for one already, though it may be on trial."""
        self._planner, self._files, self._batches, self._has_plan = planner, files, batches, has_plan

    def look(self, batch: DataFrame, last: Manifest | None) -> Verdict:
        """To be called before a micro-batch is joined."""
        first, epoch = ((), 0) if last is None else (last.first, last.epoch + 1)
        if self._batches == 1:
            return Verdict(None if self._has_plan else self._planner.plan_for(batch), None)
        present = self._keep(batch)
        seen, rows = len(first) + 1, present.rows + sum(known.rows for known in first)
        is_over = has_ended(seen, rows, self._batches)
        chosen: tuple[JoinPlan, Event] | None = None
        if not self._has_plan:
            chosen = self._planner.plan_for(self._all(batch, present, first))
        elif is_over and first:
            chosen = self._planner.plan_after(self._all(batch, present, first), seen, epoch)
            if chosen is None and rows <= ROWS_ENOUGH:  # filters leave too few
                is_over = has_ended(seen, 0, self._batches)
        self._has_plan = True
        if is_over:
            self._files.remove([present.file.name])
        return Verdict(chosen, None if is_over else present)

    def _keep(self, batch: DataFrame) -> Kept:
        """Write the rows of a micro-batch to a file, but one more than enough at most. They do not pass the driver:
        nobody knows how wide they are."""
        files = self._files

        def write(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            file, count = files.put_rows(rows)
            told = [pa.array([value]) for value in (file.name, file.bytes, file.crc, count)]
            yield pa.RecordBatch.from_arrays(told, names=["name", "bytes", "crc", "rows"])

        told = batch.limit(ROWS_ENOUGH + 1).coalesce(1).mapInArrow(write, KEPT_DDL).collect()
        if not told:  # a batch that Spark knows to be empty has no partition
            return Kept(*files.put_rows(()))
        (row,) = told
        return Kept(SegmentRef(row["name"], row["bytes"], row["crc"]), row["rows"])

    def _all(self, batch: DataFrame, present: Kept, first: Sequence[FirstBatch]) -> DataFrame:
        """The rows of all micro-batches so far."""
        if present.rows <= ROWS_ENOUGH:
            return self.again([*(known.file for known in first), present.file], batch)
        return self.again([known.file for known in first], batch).union(batch) if first else batch

    def replay(
        self,
        plan: JoinPlan,
        nothing: Manifest,
        first: Sequence[FirstBatch],
        batch: DataFrame,
        folders: Folders,
    ) -> Manifest:
        """The state after the first micro-batches by another plan. Nothing of it stays in memory yet: what the plan
        before has there leaves it with the next epoch. `batch` is like them."""
        nowhere = [[0] * plan.stage_count] * nothing.slots

        def job(before: Manifest, rows: DataFrame | SparkSession, *, is_closing: bool = False) -> EpochJob:
            duties = Duties(closing=is_closing, memory=nowhere)
            return EpochJob(self._planner.query, without_foresight(plan), before, rows, folders, duties=duties)

        def join(before: Manifest, number: int) -> tuple[Sequence[SlotReport], Intake]:
            rows = self.again([first[number].file], batch)
            with closing(job(before, rows)) as running:
                return running.reports(), running.intake()

        def close(before: Manifest) -> Sequence[SlotReport]:
            with closing(job(before, batch.sparkSession, is_closing=True)) as running:
                return running.reports()

        found = replayed(plan, nothing, first, join, close)
        failpoint("after-replay")
        return found

    def again(self, kept: Sequence[SegmentRef], batch: DataFrame) -> DataFrame:
        """Rows that were kept, of micro-batches like this one."""
        files = self._files

        def read(nothing: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            deque(nothing, maxlen=0)  # Spark gives up a worker that leaves something unread
            schema: pa.Schema | None = None
            for rows in (rows for file in kept for rows in files.rows(file)):
                schema = schema or rows.schema  # one run may have named another time zone than the next
                yield rows if rows.schema.equals(schema) else rows.cast(schema)

        return batch.sparkSession.range(0, 1, 1, 1).mapInArrow(read, batch.schema)
