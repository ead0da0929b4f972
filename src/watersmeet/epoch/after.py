"""The manifest after an epoch, made by one function from the previous manifest and the reports of the slots.

Stages that did not run keep their extents and gauges. Without rows, the watermark, the times of the streams and the
idle streams do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from watersmeet.epoch.events import Event
from watersmeet.epoch.frontiers import debts, frontier
from watersmeet.epoch.kinds import Backfill, Batch, Build, Cleaning, Closing, Complete, Epoch, Switch, Takeover, shows
from watersmeet.epoch.migrating import fed_up_to, switched, without_other_stores
from watersmeet.epoch.pairs import with_pairs
from watersmeet.epoch.task import Intake, Outcome, SlotReport, later
from watersmeet.errors import CheckpointError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.completion import to_complete
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.placement import Placement
from watersmeet.plan.probe_orders import orders_as_texts, orders_from_texts
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.state_matching import differs_by_slot, shape_count, store_names
from watersmeet.plan.transition import in_transition, parallel_since, side_by_side
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery
from watersmeet.state.manifest import (
    ExtentRef,
    Manifest,
    Outbox,
    PlanText,
    ResultFile,
    SegmentRef,
    SlotState,
    before_first_epoch,
    placed,
)
from watersmeet.state.measures import ARRIVED, RESULTS, Counts, Figure, total
from watersmeet.state.moments import before_us


@dataclass(frozen=True, slots=True)
class Clock:
    """The time on the driver, the time after which a silent stream no longer holds the watermark back, and the start
    of the run: time before the start does not count as silence."""

    now_ms: int = 0
    idle_timeout_ms: int | None = None
    started_ms: int = 0

    def is_idle(self, seen_ms: int) -> bool:
        """Whether a stream that was last seen at `seen_ms` (0: never) is idle."""
        timeout = self.idle_timeout_ms
        return timeout is not None and seen_ms > 0 and self.now_ms - max(seen_ms, self.started_ms) > timeout


def plan_as_text(plan: JoinPlan) -> PlanText:
    """A plan as text, for a manifest."""
    towards, since = (None if other is None else plan_as_text(other) for other in (plan.towards, plan.since))
    orders = orders_as_texts(plan.orders, plan.names)
    return PlanText(plan_text(plan), orders, towards, since, parallel_since(plan))


def plan_from_text(query: JoinQuery, words: PlanText, partitions: int, mode: OutputMode | None) -> JoinPlan:
    """The plan that a manifest names."""
    names = [stream.name for stream in query.streams]
    trees = tuple(parse_tree(part, names) for part in words.trees.split("|"))
    plan = plan_join(query, trees, partitions, mode, orders_from_texts(words.orders, trees, names))
    if words.since is not None:
        return to_complete(plan_from_text(query, words.since, partitions, mode), plan)
    if words.towards is None:
        return plan
    new = plan_from_text(query, words.towards, partitions, mode)
    began = words.parallel_since
    return in_transition(plan, new) if began is None else side_by_side(plan, new, began)


def initial_manifest(plan: JoinPlan, slots: int, asked: str | None = None) -> Manifest:
    """The state before the first epoch; `asked` is the option `plan`."""
    found = before_first_epoch(plan_as_text(plan), len(plan.names), _keys(plan), plan.partitions, slots)
    return replace(found, asked=asked)


def resumed(plan: JoinPlan, manifest: Manifest, placed_by: Callable[[Manifest], Placement]) -> Manifest:
    """The state placed on the slots of this run. Where slots have stores of their own, it stays where it is until an
    epoch can move it (`epoch/relocation.py`). State without a store in the plan is refused: its results would be
    lost."""
    _require_stores(plan, manifest)
    _require_places(plan, manifest)
    if any(manifest.extents) and differs_by_slot(plan):
        return manifest
    placement = placed_by(manifest)
    return placed(manifest, placement)


def _require_stores(plan: JoinPlan, manifest: Manifest) -> None:
    held = {name for slot in manifest.extents for name in slot}
    known = {name for slot in range(shape_count(plan)) for name in store_names(plan, slot)}
    if unknown := sorted(held - known):
        stores = "; ".join(f"of {name.streams} by {name.key}: {name.layout}" for name in unknown)
        raise CheckpointError(
            f"the checkpoint has state that this query does not keep ({stores})",
            hint="the select list and its order may not change: use a new checkpointLocation",
            error_class="DIFFERENT_JOIN",
        )


def _require_places(plan: JoinPlan, manifest: Manifest) -> None:
    """Refuse a manifest whose keys, groups or streams differ from those of its plan."""
    owners = manifest.placement.owners
    is_placed = all(len(owners.get(key, ())) == plan.partitions for key in _keys(plan))
    streams = {len(plan.names), len(manifest.times_max_us), len(manifest.last_seen_ms)}
    if not is_placed or len(streams) > 1:
        raise CheckpointError(
            f"the manifest of epoch {manifest.epoch} does not fit the plan that it names",
            hint="restore the checkpoint from a backup, or start with a new checkpointLocation",
            error_class="CHECKPOINT_DAMAGED",
        )


def _keys(plan: JoinPlan) -> list[str]:
    return [plan.key_of_stage(stage) for stage in range(plan.stage_count)]


def manifest_after(
    plan: JoinPlan,
    before: Manifest,
    epoch: Epoch,
    outcome: Outcome,
    clock: Clock,
    *,
    events: Sequence[Event] = (),
    results_in: Literal["sink", "checkpoint"] = "checkpoint",
) -> Manifest:
    """The state after an epoch that ran on `before`, with the files of its results, if it shows any."""
    reports, intake = outcome.reports, outcome.intake
    extents = _extents(plan, before, reports)
    is_shown = shows(plan, epoch, reports)
    files = tuple(file for report in reports for file in report.files) if is_shown else ()
    after = replace(
        before,
        epoch=before.epoch + 1,
        plan=plan_as_text(plan),
        segments=_segments(before, reports, extents),
        extents=extents,
        counters=_counters(before.counters, reports, is_shown).with_values(_arrived(plan, before, intake)),
        gauges=_gauges(plan, before.gauges, reports),
        closed_us=_closed(plan, before, epoch),
        outbox=Outbox(is_shown, results_in, files),
        events=tuple(event.to_dict() for event in events),
        rehearsed=_rehearsed(before, epoch),
        asked=epoch.asked if isinstance(epoch, Build | Switch) and epoch.asked is not None else before.asked,
    )
    match epoch:
        case Batch(number, _, offsets, completes):
            if completes is not None:
                after = fed_up_to(after, plan, completes[1])
            return _with_times(plan, replace(after, batch=number, offsets=offsets), intake, clock)
        case Cleaning() | Closing() | Takeover():
            return after
        case Build():
            return without_other_stores(replace(after, migration=None), plan)
        case Backfill(_, high, _) | Complete(_, high):
            return fed_up_to(after, plan, high)
        case Switch():
            return switched(after, epoch)


def _rehearsed(before: Manifest, epoch: Epoch) -> int:
    number = epoch.entry if isinstance(epoch, Build | Switch | Cleaning) else None
    return before.rehearsed if number is None else number + 1


def left_over(outcome: Outcome, after: Manifest) -> list[ResultFile]:
    """Result files that the manifest does not name, because the epoch shows nothing."""
    return [] if after.outbox.shows else [file for report in outcome.reports for file in report.files]


def arrived(plan: JoinPlan, manifest: Manifest) -> list[int]:
    """The rows of every stream that have arrived so far, if confidence intervals need them."""
    return [manifest.counters.of(ARRIVED, name) for name in plan.names]


def counts_of(reports: Sequence[SlotReport], *, is_shown: bool = True) -> Counts:
    """The counts of one epoch over all slots, with the pairs of rows whose keys were compared. Rows that an epoch emits
    but does not show do not count as results."""
    counts = with_pairs(reports)
    return counts if is_shown else counts.without(RESULTS)


def _extents(plan: JoinPlan, before: Manifest, reports: Sequence[SlotReport]) -> tuple[SlotState, ...]:
    """The extents of every slot: unchanged in stages that did not run, and as reported in the others."""
    states = [dict(slot) for slot in before.extents]
    for report in reports:
        layouts = plan.layouts(report.stage, report.slot)
        found: list[list[ExtentRef]] = [[] for _ in layouts]
        for extent in report.extents:
            found[extent.store].append(extent)
        state = states[report.slot]
        for layout, extents in zip(layouts, found, strict=True):
            if extents:
                state[layout.name] = tuple(extents)
            else:
                state.pop(layout.name, None)
    return tuple(states)


def _segments(before: Manifest, reports: Sequence[SlotReport], extents: Sequence[SlotState]) -> dict[str, SegmentRef]:
    """The segments in which some slot has an extent."""
    used = {extent.segment for slot in extents for mine in slot.values() for extent in mine}
    segments = {**before.segments, **{ref.name: ref for report in reports for ref in report.segments}}
    for name in segments.keys() - used:
        del segments[name]
    return segments


def _with_times(plan: JoinPlan, after: Manifest, intake: Intake, clock: Clock) -> Manifest:
    times = tuple(later(a, b) for a, b in zip(after.times_max_us, intake.times_max_us, strict=True))
    seen = tuple(clock.now_ms if rows else last for rows, last in zip(intake.rows, after.last_seen_ms, strict=True))
    idle = [clock.is_idle(last) for last in seen]
    watermark = _watermark(plan, after.watermark_us, times, idle)
    return replace(after, times_max_us=times, last_seen_ms=seen, watermark_us=watermark)


def _arrived(plan: JoinPlan, before: Manifest, intake: Intake) -> Counts:
    if plan.aggregate is None or plan.aggregate.confidence is None:
        return Counts()
    rows = zip(plan.names, arrived(plan, before), intake.rows, strict=True)
    return Counts({Figure(ARRIVED, name): known + new for name, known, new in rows})


def _closed(plan: JoinPlan, before: Manifest, epoch: Epoch) -> int | None:
    """Up to where windows are closed. In append mode a closing epoch closes them; otherwise they close when the
    frontier of results passes them."""
    if plan.aggregate is None or plan.aggregate.window is None:
        return None
    if isinstance(epoch, Closing):
        return epoch.until_us
    if plan.aggregate.mode == "append":
        return before.closed_us
    return later(before.closed_us, frontier(before, debts(plan, before)))


def _counters(before: Counts, reports: Sequence[SlotReport], is_shown: bool) -> Counts:
    return total([before, counts_of(reports, is_shown=is_shown).counters()])


def _gauges(plan: JoinPlan, before: Mapping[str, Counts], reports: Sequence[SlotReport]) -> dict[str, Counts]:
    """The gauges of all stages, over all slots: new for the stages that ran."""
    names = [plan.name_of_stage(stage) for stage in range(plan.stage_count)]
    found: dict[str, list[Counts]] = {}
    for report in reports:
        found.setdefault(names[report.stage], []).append(report.counts)
    kept = {stage: gauges for stage, gauges in before.items() if stage in names}
    return kept | {stage: total(counts).gauges() for stage, counts in found.items()}


def _watermark(
    plan: JoinPlan, before: int | None, times_max_us: Sequence[int | None], idle: Sequence[bool]
) -> int | None:
    """The minimum, over streams that are not idle, of the latest event time minus the delay. It never falls.

    A stream without any row so far holds it back, idle or not: its first time is not known yet.
    """
    if not plan.windowed:
        return None
    active = [i for i, is_idle in enumerate(idle) if not is_idle]
    latest = [times_max_us[i] for i in active]
    if not active or any(t is None for t in latest):
        return before
    reached = min(before_us(t, plan.delays_us[i]) for i, t in zip(active, latest, strict=True) if t is not None)
    return reached if before is None else max(before, reached)
