"""The progress of a committed epoch, computed from its manifest, its reports and its times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.adaptation.memories import Memories
from watersmeet.epoch.after import counts_of
from watersmeet.epoch.events import Event
from watersmeet.epoch.kinds import Backfill, Build, Cleaning, Closing, Complete, Epoch, Switch
from watersmeet.epoch.owing import groups_left
from watersmeet.epoch.task import Outcome, SlotReport, intake_of, no_intake
from watersmeet.observe.progress import EpochProgress
from watersmeet.observe.statistic_fields import Observed, statistics
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import LATE, MEMORY_BYTES, NO_EVENT_TIME, NULL_KEY, Counts


class Times(NamedTuple):
    """When an epoch was started, joined, committed and sent, by the monotonic clock."""

    started: float
    joined: float
    committed: float = 0.0
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class Ran:
    """An epoch that ran: the state before it, its outcome, and its adaptations."""

    epoch: Epoch
    before: Manifest
    outcome: Outcome
    events: Sequence[Event]
    times: Times


def progress_of(
    query: JoinQuery, plan: JoinPlan, ran: Ran, after: Manifest, since: float | None, coordinator: Coordinator
) -> EpochProgress:
    """The progress of an epoch, which the coordinator has noted; `since` is the start of the epoch before."""
    times, reports, intake = ran.times, ran.outcome.reports, ran.outcome.intake
    seconds = times.started - since if since is not None else times.sent - times.started
    counts = counts_of(reports, is_shown=after.outbox.shows).counters()
    return EpochProgress(
        epoch=after.epoch,
        batch=-1 if after.batch is None else after.batch,
        slots=after.slots,
        rows=dict(zip((s.name for s in query.streams), intake.rows, strict=True)),
        counts=counts.with_values(after.totals.gauges()),
        slot_counts=tuple(report.counts for report in reports),
        totals=after.totals,
        watermark_us=after.watermark_us,
        times_max_us=after.times_max_us,
        segments=len(after.segments),
        join_ms=round((times.joined - times.started) * 1000),
        commit_ms=round((times.committed - times.joined) * 1000),
        sink_ms=round((times.sent - times.committed) * 1000),
        statistics=_statistics(query, plan, ran, after, seconds, coordinator),
        events=tuple(ran.events),
        is_cleaning=isinstance(ran.epoch, Cleaning | Build | Backfill | Complete | Switch),
        is_closing=isinstance(ran.epoch, Closing),
        owing_groups=groups_left(plan, after),
        watermark_used_us=ran.before.watermark_us,
        rows_kept=_kept(plan, reports, counts),
    )


def resting(query: JoinQuery, plan: JoinPlan, manifest: Manifest, coordinator: Coordinator) -> EpochProgress:
    """The state at the start of a run, before its first epoch: no segment is in memory."""
    return EpochProgress(
        epoch=manifest.epoch,
        batch=-1 if manifest.batch is None else manifest.batch,
        slots=manifest.slots,
        rows={stream.name: 0 for stream in query.streams},
        counts=manifest.totals.gauges().without(MEMORY_BYTES),
        slot_counts=(),
        totals=manifest.totals,
        watermark_us=manifest.watermark_us,
        times_max_us=manifest.times_max_us,
        segments=len(manifest.segments),
        join_ms=0,
        commit_ms=0,
        sink_ms=0,
        statistics=_statistics(query, plan, None, manifest, 0.0, coordinator),
        owing_groups=groups_left(plan, manifest),
        watermark_used_us=manifest.watermark_us,
        is_resting=True,
    )


def _kept(plan: JoinPlan, reports: Sequence[SlotReport], counts: Counts) -> int:
    """Rows that slots received and did not drop."""
    dropped = sum(counts.sum(reason) for reason in (LATE, NULL_KEY, NO_EVENT_TIME))
    return max(0, sum(intake_of(plan, reports).rows) - dropped)


def _statistics(
    query: JoinQuery, plan: JoinPlan, ran: Ran | None, after: Manifest, seconds: float, coordinator: Coordinator
) -> dict[str, Any]:
    """The statistics after an epoch; `ran` is None if no epoch has run yet."""
    outcome = Outcome((), no_intake(plan)) if ran is None else ran.outcome
    before = after if ran is None else ran.before
    times = list(zip(before.times_max_us, after.times_max_us, strict=True))
    groups, memories = coordinator.ledger.summary(), coordinator.memories or Memories(query)
    rows, reports, budget = outcome.intake.rows, outcome.reports, coordinator.budget
    seen = Observed(query, plan, after.totals, after.slots, rows, times, seconds, reports, groups, memories, budget)
    optimizer = {} if coordinator.reoptimizer is None else {"optimizer": coordinator.reoptimizer.summary()}
    return {**statistics(seen), **optimizer}
