"""An epoch seen from the driver, without IO: what each slot is told, and what its reports make of the manifest.

Both runners use these functions, so the rules for watermarks and commits exist once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.adaptation.frontiers import debts, frontier, frontier_of_stage, holds
from watersmeet.adaptation.memory_shares import MemoryShares
from watersmeet.engine.task import SlotReport, SlotTask, orders_of_stage
from watersmeet.errors import CheckpointError
from watersmeet.plan.stages import Index, JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef, Manifest, Order, reassign
from watersmeet.state.shares import byte_shares

GAUGES = (
    "memory_bytes",
    "state_bytes",
    "active_bytes",
    "closed_bytes",
    "closed_rows",
    "state_rows",
    "store_bytes",
)
"""Counts that describe the moment; all others add up over the life of the query."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What a batch brought, per stream and before any filter: rows, and the latest event time."""

    rows: tuple[int, ...]
    times_max_us: tuple[int | None, ...]


def intake_of(plan: JoinPlan, reports: Iterable[SlotReport]) -> Intake:
    """What a batch brought, as the slots saw it: all of it, unless filters kept rows from them."""
    rows, times = dict.fromkeys(plan.names, 0), dict[str, int | None].fromkeys(plan.names)
    for report in reports:
        for name, (count, latest_us) in report.seen.items():
            rows[name] += count
            times[name] = _later(times[name], latest_us)
    return Intake(tuple(rows.values()), tuple(times.values()))


def resumed(plan: JoinPlan, manifest: Manifest, slots: int, assignment: Sequence[int] | None = None) -> Manifest:
    """The state dealt out over the slots of this run, evenly or as the assignment says."""
    if manifest.slots != slots and any(len(set(stage.shapes)) > 1 for stage in plan.stages):
        raise CheckpointError(
            f"the checkpoint has {manifest.slots} slots with plans of their own, this run {slots}",
            hint="keep the number of slots, or give all slots one plan from the start",
        )
    return reassign(manifest, slots, assignment)


def slot_tasks(
    plan: JoinPlan, manifest: Manifest, stage: int, orders: Iterable[Order] = (), memory: MemoryShares | None = None
) -> list[SlotTask]:
    """The tasks of one stage of the epoch after `manifest`, one per slot; the attempt fills in its own name."""
    tasks = []
    owed = debts(plan, manifest)
    given = orders_of_stage(plan, stage, orders)
    shares = byte_shares(manifest.extents[stage])
    groups = plan.aggregate is not None and stage == plan.aggregate.stage
    for slot, extents in enumerate(manifest.extents[stage]):
        order = given.get(slot, Order(stage, slot))
        tasks.append(
            SlotTask(
                epoch=manifest.epoch + 1,
                stage=stage,
                slot=slot,
                attempt="",
                watermark_us=manifest.closed_us if groups else manifest.watermark_us,
                extents=extents,
                segments=manifest.segments,
                groups=Groups.of(manifest.assignment, slot),
                reads=() if groups else _reads(plan, manifest, stage, slot),
                holds=() if groups else holds(plan, stage, slot, owed),
                frontier_us=None if groups else frontier_of_stage(plan, stage, slot, manifest.watermark_us, owed),
                spill=order.spill,
                clean=order.clean,
                keep=order.keep,
                memory_bytes=None if memory is None else memory[slot][stage],
                shares=shares[slot],
            )
        )
    return tasks


def closing_tasks(plan: JoinPlan, manifest: Manifest, memory: MemoryShares | None = None) -> list[SlotTask]:
    """The tasks of an epoch without rows, which closes windows of the aggregation."""
    assert plan.aggregate is not None
    tasks = slot_tasks(plan, manifest, plan.aggregate.stage, memory=memory)
    return [replace(task, closing_us=frontier(manifest, debts(plan, manifest))) for task in tasks]


def must_close(plan: JoinPlan, manifest: Manifest) -> bool:
    """Whether the frontier of results has passed the end of windows that are to be shown now."""
    if plan.aggregate is None or plan.aggregate.window is None or plan.aggregate.mode != "append":
        return False
    window, reached, closed = plan.aggregate.window, frontier(manifest, debts(plan, manifest)), manifest.closed_us
    if reached is None or not any(manifest.extents[plan.aggregate.stage]):
        return False
    # Windows end at length + a multiple of slide.
    return (
        closed is None
        or (reached - window.length_us) // window.slide_us > (closed - window.length_us) // window.slide_us
    )


def _reads(plan: JoinPlan, manifest: Manifest, stage: int, slot: int) -> tuple[tuple[ExtentRef, ...], ...]:
    return tuple(_kept_elsewhere(manifest, index, stage, slot) for index in plan.stages[stage].indexes)


def _kept_elsewhere(manifest: Manifest, index: Index, stage: int, slot: int) -> tuple[ExtentRef, ...]:
    keeper, store = index.kept_in
    return () if keeper == stage else tuple(e for e in manifest.extents[keeper][slot] if e.store == store)


def named(task: SlotTask, attempt: str) -> SlotTask:
    return replace(task, attempt=attempt)


def one_report_per_task(reports: Sequence[SlotReport], stages: Iterable[int], slots: int) -> list[SlotReport]:
    """Accept one report of each slot and stage: a task that ran twice says the same twice, under other file names."""
    accepted: dict[tuple[int, int], SlotReport] = {}
    for report in reports:
        accepted.setdefault((report.stage, report.slot), report)
    tasks = [(stage, slot) for stage in stages for slot in range(slots)]
    missing = [task for task in tasks if task not in accepted]
    if missing:
        raise RuntimeError(f"(stage, slot) {missing} sent no report")
    return [accepted[task] for task in tasks]


def commit(
    plan: JoinPlan,
    before: Manifest,
    reports: Sequence[SlotReport],
    intake: Intake,
    *,
    batch: int | None,
    now_ms: int,
    idle_timeout_ms: int | None = None,
    orders: Iterable[Order] = (),
) -> Manifest:
    """The manifest after an epoch with rows, which carried out some orders."""
    times = tuple(_later(a, b) for a, b in zip(before.times_max_us, intake.times_max_us, strict=True))
    seen = tuple(now_ms if rows else last for rows, last in zip(intake.rows, before.last_seen_ms, strict=True))
    idle = [idle_timeout_ms is not None and last > 0 and now_ms - last > idle_timeout_ms for last in seen]
    segments = {**before.segments, **{ref.name: ref for report in reports for ref in report.segments}}
    used = {extent.segment for report in reports for extent in report.extents}
    return Manifest(
        epoch=before.epoch + 1,
        batch=batch,
        watermark_us=_watermark(plan, before.watermark_us, times, idle),
        times_max_us=times,
        last_seen_ms=seen,
        assignment=before.assignment,
        segments={name: ref for name, ref in segments.items() if name in used},
        extents=_by_stage(reports, plan.stage_count),
        totals=_totals(before.totals, reports) | _arrived(plan, before, intake),
        closed_us=_closed(plan, before),
        ran=tuple(orders),
        join=before.join,
    )


def commit_cleaning(
    plan: JoinPlan, before: Manifest, reports: Sequence[SlotReport], orders: Iterable[Order]
) -> Manifest:
    """The manifest after an epoch without rows that carried out some orders."""
    nothing = Intake((0,) * len(plan.names), (None,) * len(plan.names))
    after = commit(plan, before, reports, nothing, batch=before.batch, now_ms=0, orders=orders)
    return replace(after, watermark_us=before.watermark_us, last_seen_ms=before.last_seen_ms, cleaning=True)


def arrived(plan: JoinPlan, manifest: Manifest) -> list[int]:
    """The rows of every stream that have arrived so far, where intervals are made of them."""
    return [manifest.totals.get(f"arrived.{name}", 0) for name in plan.names]


def _arrived(plan: JoinPlan, before: Manifest, intake: Intake) -> dict[str, int]:
    if plan.aggregate is None or plan.aggregate.confidence is None:
        return {}
    rows = zip(plan.names, arrived(plan, before), intake.rows, strict=True)
    return {f"arrived.{name}": known + new for name, known, new in rows}


def _closed(plan: JoinPlan, before: Manifest) -> int | None:
    """Windows that are shown when they close stay open until then; others close as the watermark passes them."""
    if plan.aggregate is None or plan.aggregate.window is None:
        return None
    if plan.aggregate.mode == "append":
        return before.closed_us
    return _later(before.closed_us, frontier(before, debts(plan, before)))


def commit_closing(plan: JoinPlan, before: Manifest, reports: Sequence[SlotReport]) -> Manifest:
    """The manifest after an epoch without rows: the groups have changed, the join has not."""
    assert plan.aggregate is not None
    extents = (*before.extents[: plan.aggregate.stage], tuple(report.extents for report in reports))
    segments = {**before.segments, **{ref.name: ref for report in reports for ref in report.segments}}
    used = {extent.segment for stage in extents for slot in stage for extent in slot}
    return replace(
        before,
        epoch=before.epoch + 1,
        segments={name: ref for name, ref in segments.items() if name in used},
        extents=extents,
        totals=_totals(before.totals, reports, gauges_of=before.totals),
        closed_us=frontier(before, debts(plan, before)),
        closing=True,
        cleaning=False,
        ran=(),
        base=None,
    )


def _by_stage(reports: Sequence[SlotReport], stages: int) -> tuple[tuple[tuple[ExtentRef, ...], ...], ...]:
    return tuple(tuple(r.extents for r in reports if r.stage == stage) for stage in range(stages))


def counts_of(reports: Sequence[SlotReport]) -> dict[str, int]:
    """The counts of all slots together."""
    total: Counter[str] = Counter()
    for report in reports:
        total.update(report.counts)
    return dict(total)


def _totals(
    before: Mapping[str, int], reports: Sequence[SlotReport], gauges_of: Mapping[str, int] | None = None
) -> dict[str, int]:
    """What adds up, and the gauges of these reports (or of others, where not all slots and stages reported)."""
    counts = counts_of(reports)
    gauges = {name: value for name, value in (gauges_of or counts).items() if name.split(".")[0] in GAUGES}
    kept = {name: value for name, value in before.items() if name.split(".")[0] not in GAUGES}
    sums = Counter(kept)
    sums.update({name: value for name, value in counts.items() if name.split(".")[0] not in GAUGES})
    return {**sums, **gauges}


def _watermark(
    plan: JoinPlan, before: int | None, times_max_us: Sequence[int | None], idle: Sequence[bool]
) -> int | None:
    """The least, over streams that are not idle, of the latest event time minus the delay; it never falls.

    A stream that has not been seen holds it back, idle or not: nobody knows yet where its times begin.
    """
    if not plan.windowed:
        return None
    active = [i for i, is_idle in enumerate(idle) if not is_idle]
    latest = [times_max_us[i] for i in active]
    if not active or any(t is None for t in latest):
        return before
    reached = min(t - plan.delays_us[i] for i, t in zip(active, latest, strict=True) if t is not None)
    return reached if before is None else max(before, reached)


def _later(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
