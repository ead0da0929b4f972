"""The stage of an aggregation, of one epoch on one slot: accumulated rows in, rows of groups and new extents out.

An epoch either takes in rows, or closes windows. When the watermark has passed the end of some windows, the driver runs
an epoch without rows that shows their groups; afterwards these are dropped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from watersmeet.engine.compaction import Merging
from watersmeet.engine.emission import Emitted
from watersmeet.engine.fold import DEFAULT_MERGING, fold
from watersmeet.engine.group_store import (
    closing_windows,
    empty_global_group,
    groups_in_parts,
    merged_groups,
    parts_of_groups,
    runs_of_groups,
    shown,
    shown_windows,
    touched_windows,
    whole_groups,
)
from watersmeet.engine.inbox import chunks
from watersmeet.engine.opening import open_state
from watersmeet.engine.panes import windows_between
from watersmeet.engine.statistics import Tally
from watersmeet.engine.step import Cut
from watersmeet.epoch.task import SlotReport, SlotTask
from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.measures import ACCUMULATED, EXPIRE_NS, EXPIRED, INSERT_NS, INSERTED, RESULTS
from watersmeet.state.run import Run
from watersmeet.state.tiers import Tiers

COSTS_OF_JOINING = (INSERTED, INSERT_NS, EXPIRED, EXPIRE_NS)
"""Counts of the fold that calibrate the costs of a join; rows of groups must not count there."""


def aggregate_step(
    plan: JoinPlan,
    task: SlotTask,
    frames: Iterable[pa.RecordBatch],
    tiers: Tiers,
    cut: Cut = chunks,
    merging: Merging = DEFAULT_MERGING,
) -> Generator[Emitted, None, SlotReport]:
    """Take accumulated rows into the store of groups, or close windows; yields rows of groups, returns the report."""
    aggregate = plan.aggregate
    assert aggregate is not None
    tally = Tally(plan.partitions)
    layers = open_state(plan, task, tiers, tally)
    held = [run for layer in layers for _, run in layer.runs]
    delta: list[Run] = []
    for chunk in cut(frames):
        tally.count(ACCUMULATED, chunk.num_rows)
        delta = merged_groups(aggregate, [*delta, *runs_of_groups(aggregate, chunk)])
    if task.closing_us is not None:
        rows = closing_windows(aggregate, held, task.watermark_us, task.closing_us)
        task = replace(task, watermark_us=task.closing_us)
    else:
        rows = _shown(aggregate, task, held, delta)
    for batch in rows:
        tally.count(RESULTS, batch.num_rows)
        yield Emitted(None, batch)
    arrived = [[(0, run) for run in delta]] if delta else []
    report = fold(plan, task, layers, arrived, tiers, tally, merging, partial(groups_in_parts, aggregate))
    return replace(report, counts=report.counts.without(*COSTS_OF_JOINING))


def _shown(plan: AggregatePlan, task: SlotTask, held: list[Run], delta: list[Run]) -> Iterator[pa.RecordBatch]:
    """The rows that an epoch with rows shows, by the output mode."""
    if plan.mode == "append" or (plan.mode == "update" and not delta):
        return
    runs = [*held, *delta]
    if plan.mode == "complete":
        groups = whole_groups(plan, runs)
        if not groups and plan.is_global and 0 in task.groups:
            yield empty_global_group(plan)
    else:
        groups = parts_of_groups(plan, delta, runs)
    if plan.window is None:
        yield from shown(plan, groups)
        return
    for run in groups:
        is_whole = plan.mode == "complete"
        found = windows_between(plan, run, None, None) if is_whole else touched_windows(plan, run, delta)
        for windows in found:
            yield shown_windows(plan, run, windows)
