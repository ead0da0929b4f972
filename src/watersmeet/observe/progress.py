"""Progress of an epoch, and its form under Spark's own field names.

Ours extends what Spark reports of the underlying query: the join is one entry of `stateOperators`, with what Spark has
no name for in its `customMetrics`, and the parts of an epoch are added to `durationMs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from watersmeet.epoch.events import Event

ADDED = ("results",)
"""Counts of an epoch that closes windows which add to those of the one before it."""


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """What one epoch did; counts of all slots together and, stage by stage, per slot; totals over the life of the
    checkpoint."""

    epoch: int
    batch: int
    slots: int
    rows: Mapping[str, int]
    counts: Mapping[str, int]
    slot_counts: Sequence[Mapping[str, int]]
    totals: Mapping[str, int]
    watermark_us: int | None
    times_max_us: Sequence[int | None]
    segments: int
    join_ms: int
    commit_ms: int
    sink_ms: int
    events: Sequence[Event] = ()
    """What was adapted."""
    is_cleaning: bool = False
    """Whether the epoch took in no rows, and emitted what was owed."""
    is_closing: bool = False
    """Whether the epoch took in no rows, and showed windows that have ended."""
    owing_groups: int = 0
    """Partition groups, of all stages, that may owe results after the epoch."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """Rates, selectivities, stores and costs, see `observe/statistics.py`, and a summary of the partition groups."""

    def count(self, name: str) -> int:
        """A count, over all streams if it is kept per stream (`late.bank1`, `late.bank2`)."""
        return sum(value for key, value in self.counts.items() if key.split(".")[0] == name)


def with_closing(progress: EpochProgress, closing: EpochProgress) -> EpochProgress:
    """The progress of an epoch together with that of the one right after it that closed windows."""
    counts = {**progress.counts, **{name: n for name, n in closing.counts.items() if name not in ADDED}}
    counts |= {name: progress.counts.get(name, 0) + closing.counts.get(name, 0) for name in ADDED}
    return replace(
        progress,
        epoch=closing.epoch,
        counts=counts,
        totals=closing.totals,
        segments=closing.segments,
        join_ms=progress.join_ms + closing.join_ms,
        commit_ms=progress.commit_ms + closing.commit_ms,
        sink_ms=progress.sink_ms + closing.sink_ms,
    )


class ProgressDict(dict[str, Any]):
    """A progress report as Spark gives it: a dict with `json` and `prettyJson`."""

    @property
    def json(self) -> str:
        return json.dumps(self)

    @property
    def prettyJson(self) -> str:
        return json.dumps(self, indent=2)


def merged_progress(spark_progress: Mapping[str, Any], epochs: Sequence[EpochProgress], sink: str) -> ProgressDict:
    """Spark's progress of a batch with ours added to it: that of its epoch, and of the clean-up that followed it."""
    merged = ProgressDict(spark_progress)
    if not epochs:
        return merged
    epoch = next((e for e in epochs if not e.is_cleaning), epochs[0])
    merged["epoch"] = epochs[-1].epoch
    merged["stateOperators"] = [state_operator(epoch, epochs[-1])]
    merged["adaptations"] = [event.to_dict() for e in epochs for event in e.events]
    merged["statistics"] = dict(epoch.statistics)
    merged["sink"] = {"description": sink, "numOutputRows": sum(e.count("results") for e in epochs)}
    if epoch.watermark_us is not None:
        merged["eventTime"] = {**merged.get("eventTime", {}), "watermark": iso_time(epoch.watermark_us)}
    parts = {"join": epoch.join_ms, "commitState": epoch.commit_ms, "writeSink": epoch.sink_ms}
    merged["durationMs"] = {**merged.get("durationMs", {}), **parts}
    return merged


def state_operator(epoch: EpochProgress, last: EpochProgress) -> dict[str, Any]:
    """The join as an entry of `stateOperators`: what an epoch did, and what is the case after the last one."""
    return {
        "operatorName": "watersmeetJoin",
        "numRowsTotal": epoch.count("state_rows"),
        "numRowsUpdated": sum(epoch.rows.values()),
        "numRowsDroppedByWatermark": epoch.count("late"),
        "memoryUsedBytes": last.count("memory_bytes"),
        "numShufflePartitions": epoch.slots,
        "commitTimeMs": epoch.commit_ms,
        "customMetrics": {
            "results": epoch.count("results"),
            "resultsTotal": last.totals.get("results", 0),
            "stateBytes": last.count("state_bytes"),
            "spilledBytes": last.count("closed_bytes"),
            "spilledRows": last.count("closed_rows"),
            "spilledBytesTotal": last.totals.get("spilled_bytes", 0),
            "owedGroups": last.owing_groups,
            "owedResultsTotal": last.totals.get("owed", 0),
            "fetchedColdBytes": epoch.count("fetched_bytes"),
            "segments": epoch.segments,
            "rowsDroppedNullKey": epoch.count("null_key"),
            "rowsDroppedNoEventTime": epoch.count("no_event_time"),
            **{f"rows.{stream}": rows for stream, rows in epoch.rows.items()},
            **{
                key.replace("state_rows", "stateRows"): n
                for key, n in epoch.counts.items()
                if key.startswith("state_rows.")
            },
            **{f"memoryBytes.slot{slot}": _memory(epoch, slot) for slot in range(epoch.slots)},
        },
    }


def _memory(epoch: EpochProgress, slot: int) -> int:
    return sum(counts.get("memory_bytes", 0) for counts in epoch.slot_counts[slot :: epoch.slots])


def iso_time(micros: int) -> str:
    """Microseconds since 1970 in the form Spark's progress uses."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
