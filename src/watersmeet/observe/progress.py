"""Progress of an epoch, and its form under Spark's own field names.

It extends Spark's progress of the underlying query: the join is one entry of `stateOperators`, figures that Spark does
not have are in its `customMetrics`, and the parts of an epoch are added to `durationMs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.epoch.events import Event
from watersmeet.observe.statistic_fields import idle
from watersmeet.state.measures import (
    EXPIRE_NS,
    EXPIRED,
    INSERT_NS,
    INTAKE,
    LATE,
    MEASURES,
    MEMORY_BYTES,
    OWED_GROUPS,
    RESULTS,
    SEGMENTS,
    STATE_ROWS,
    Counts,
    Figure,
    Measure,
)
from watersmeet.units import iso_time


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """The progress of one epoch: counts over all slots and, by stage, per slot; totals over the life of the
    checkpoint."""

    epoch: int
    batch: int
    slots: int
    rows: Mapping[str, int]
    counts: Counts
    slot_counts: Sequence[Counts]
    totals: Counts
    watermark_us: int | None
    times_max_us: Sequence[int | None]
    segments: int
    join_ms: int
    commit_ms: int
    sink_ms: int
    events: Sequence[Event] = ()
    """The adaptations."""
    is_cleaning: bool = False
    """Whether the epoch took in no rows, and emitted owed results."""
    is_closing: bool = False
    """Whether the epoch took in no rows, and emitted windows that have ended."""
    owing_groups: int = 0
    """The number of partition groups, over all stages, that may owe results after the epoch."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """Rates, selectivities, stores and costs, see `observe/statistics.py`, and a summary of the partition groups."""
    watermark_used_us: int | None = None
    """The watermark that decided which rows of the epoch were late: that of the epoch before."""
    is_resting: bool = False
    """Whether this is not an epoch, but the state at the start of a run."""
    rows_kept: int = 0
    """Stored rows: those that passed the filters, were not late, and had an event time and a key."""

    def count(self, measure: Measure) -> int:
        """A figure of the epoch, over all subjects."""
        return self.counts.sum(measure)

    def figures(self) -> Counts:
        """The counts of the slots, with the driver's own figures."""
        intake = {Figure(INTAKE, stream): rows for stream, rows in self.rows.items()}
        known = {Figure(OWED_GROUPS): self.owing_groups, Figure(SEGMENTS): self.segments}
        return self.counts.with_values(Counts({**intake, **known}))


def with_closing(progress: EpochProgress, closing: EpochProgress) -> EpochProgress:
    """The progress of an epoch, combined with that of the epoch right after it that closed windows."""
    counts = progress.counts.with_values(closing.counts.without(RESULTS))
    results = Counts({Figure(RESULTS): progress.count(RESULTS) + closing.count(RESULTS)})
    return replace(
        progress,
        epoch=closing.epoch,
        counts=counts.with_values(results),
        totals=closing.totals,
        segments=closing.segments,
        join_ms=progress.join_ms + closing.join_ms,
        commit_ms=progress.commit_ms + closing.commit_ms,
        sink_ms=progress.sink_ms + closing.sink_ms,
    )


def at_rest(progress: EpochProgress) -> EpochProgress:
    """The state after an epoch, without activity: the progress of a trigger without new rows."""
    return replace(
        progress,
        rows=dict.fromkeys(progress.rows, 0),
        counts=progress.counts.gauges(),
        statistics=idle(progress.statistics),
        watermark_used_us=progress.watermark_us,
        join_ms=0,
        commit_ms=0,
        sink_ms=0,
        events=(),
        is_cleaning=False,
        is_closing=False,
        rows_kept=0,
    )


def merged_progress(
    spark_progress: Mapping[str, Any], epochs: Sequence[EpochProgress], resting: EpochProgress, sink: str, resent: int
) -> dict[str, Any]:
    """Spark's progress of a trigger, with the progress of the epoch of its batch and of the epochs after it.

    Without an epoch the fields are the same, from the state at rest. `resent` is the number of results sent for the
    batch because an earlier run did not send them.
    """
    merged = dict(spark_progress)
    found = list(epochs) or [at_rest(resting)]
    epoch = next((e for e in found if not e.is_cleaning), found[0])
    merged |= _input_rows(merged, epoch)
    merged["epoch"] = found[-1].epoch
    merged["stateOperators"] = [state_operator(epoch, found[-1])]
    merged["adaptations"] = [event.to_dict() for e in found for event in e.events]
    merged["statistics"] = dict(epoch.statistics)
    merged["sink"] = {"description": sink, "numOutputRows": sum(e.count(RESULTS) for e in found) + resent}
    watermark = {} if epoch.watermark_used_us is None else {"watermark": iso_time(epoch.watermark_used_us)}
    merged["eventTime"] = {**merged.get("eventTime", {}), **watermark}
    parts = {"join": epoch.join_ms, "commitState": epoch.commit_ms, "writeSink": epoch.sink_ms}
    merged["durationMs"] = {**merged.get("durationMs", {}), **parts}
    return merged


def _input_rows(spark_progress: Mapping[str, Any], epoch: EpochProgress) -> dict[str, Any]:
    """Input rows, each counted once: Spark counts a row at every read, and the batch that decides the plan is read more
    than once."""
    rows, counted = sum(epoch.rows.values()), spark_progress.get("numInputRows") or 0
    if not any(event.kind == "plan" for event in epoch.events) or not 0 < rows < counted:
        return {}
    sources = spark_progress.get("sources", ())
    if len(sources) == len(epoch.rows):  # streams are united in the order of their names
        sources = [_scaled(source, count) for source, count in zip(sources, epoch.rows.values(), strict=True)]
    return {**_scaled(spark_progress, rows), "sources": sources}


def _scaled(progress: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Counts and rates of an entry, scaled to this number of rows."""
    counted = progress.get("numInputRows") or 0
    rates = {
        name: progress[name] * rows / counted
        for name in ("inputRowsPerSecond", "processedRowsPerSecond")
        if counted and progress.get(name) is not None
    }
    return {**progress, "numInputRows": rows, **rates}


def state_operator(epoch: EpochProgress, last: EpochProgress) -> dict[str, Any]:
    """The join as an entry of `stateOperators`: the activity of an epoch, and the state after the last one."""
    return {
        "operatorName": "watersmeetJoin",
        "numRowsTotal": epoch.count(STATE_ROWS),
        "numRowsUpdated": epoch.rows_kept,
        "numRowsRemoved": epoch.count(EXPIRED),
        "allUpdatesTimeMs": epoch.count(INSERT_NS) // 1_000_000,
        "allRemovalsTimeMs": epoch.count(EXPIRE_NS) // 1_000_000,
        "numStateStoreInstances": epoch.segments,
        "numRowsDroppedByWatermark": epoch.count(LATE),
        "memoryUsedBytes": last.count(MEMORY_BYTES),
        "numShufflePartitions": epoch.slots,
        "commitTimeMs": epoch.commit_ms,
        "customMetrics": custom_metrics(epoch, last),
    }


def custom_metrics(epoch: EpochProgress, last: EpochProgress) -> dict[str, int]:
    """All figures that `MEASURES` shows: counters of an epoch, gauges and totals after the last one."""
    during, now = epoch.figures(), last.figures()
    found: dict[str, int] = {}
    for measure in MEASURES:
        figures = now if measure.is_gauge else during
        prefix, _, subject = measure.shown.partition("<")
        if subject:
            found |= {f"{prefix}{of}": value for of, value in figures.by(measure).items()}
        elif measure.shown:
            found[measure.shown] = figures.sum(measure)
        if measure.shown_in_total:
            found[measure.shown_in_total] = last.totals.sum(measure)
        if measure.shown_by_slot:
            prefix, _, _ = measure.shown_by_slot.partition("<")
            found |= {f"{prefix}{slot}": _on(slot, epoch, measure) for slot in range(epoch.slots)}
    return found


def _on(slot: int, epoch: EpochProgress, measure: Measure) -> int:
    """A figure of one slot, over all stages."""
    return sum(counts.sum(measure) for counts in epoch.slot_counts[slot :: epoch.slots])
