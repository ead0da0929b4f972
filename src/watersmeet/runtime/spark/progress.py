"""What a committed epoch did, put together from its manifest, its reports and its times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from watersmeet.adaptation.clean_up import groups_left
from watersmeet.epoch.events import Event
from watersmeet.epoch.task import SlotReport
from watersmeet.observe.progress import EpochProgress
from watersmeet.observe.statistics import arrivals, costs, selectivities, stores
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.epoch import Intake, counts_of
from watersmeet.state.manifest import Manifest


class Times(NamedTuple):
    """When an epoch was started, joined, committed and sent, by the monotonic clock."""

    started: float
    joined: float
    committed: float
    sent: float


def progress_of(
    query: JoinQuery,
    plan: JoinPlan,
    before: Manifest,
    after: Manifest,
    intake: Intake,
    reports: Sequence[SlotReport],
    times: Times,
    since: float | None,
    events: Sequence[Event],
    groups: list[dict[str, Any]],
) -> EpochProgress:
    """The progress of an epoch; `since` is when the one before was started, `groups` a
    summary of what is known of partition groups."""
    seconds = times.started - since if since is not None else times.sent - times.started
    return EpochProgress(
        epoch=after.epoch,
        batch=-1 if after.batch is None else after.batch,
        slots=before.slots,
        rows=dict(zip((s.name for s in query.streams), intake.rows, strict=True)),
        counts=counts_of(reports),
        slot_counts=tuple(dict(report.counts) for report in reports),
        totals=dict(after.totals),
        watermark_us=after.watermark_us,
        times_max_us=after.times_max_us,
        segments=len(after.segments),
        join_ms=round((times.joined - times.started) * 1000),
        commit_ms=round((times.committed - times.joined) * 1000),
        sink_ms=round((times.sent - times.committed) * 1000),
        statistics=_statistics(query, plan, before, after, intake, seconds, groups),
        events=tuple(events),
        is_cleaning=after.cleaning,
        owing_groups=groups_left(after),
    )


def _statistics(
    query: JoinQuery,
    plan: JoinPlan,
    before: Manifest,
    after: Manifest,
    intake: Intake,
    seconds: float,
    groups: list[dict[str, Any]],
) -> dict[str, Any]:
    times = list(zip(before.times_max_us, after.times_max_us, strict=True))
    return {
        "arrivals": arrivals(plan.names, intake.rows, times, seconds),
        "selectivities": selectivities(query, plan, after.totals),
        "stores": stores(after.totals),
        "costsNs": costs(after.totals),
        "partitionGroups": groups,
    }
