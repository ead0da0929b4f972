"""The state that a plan would have if it had run from the start: the first micro-batches, joined again
(`adaptation/trial.py`).

Which rows are late follows from the watermark, and that from the clock where a stream is idle; so both are taken from
what was known at the time. Delays may have been others then: slots, which foresee a watermark by them, must not do so
(`without_foresight`). Results are not asked for: they are those that were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from watersmeet.epoch.task import SlotReport
from watersmeet.plan.layout import ENDLESS_US
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.epoch import Intake, commit, commit_closing, must_close
from watersmeet.state.manifest import FirstBatch, Manifest


def replayed(
    plan: JoinPlan,
    nothing: Manifest,
    first: Sequence[FirstBatch],
    join: Callable[[Manifest, int], tuple[Sequence[SlotReport], Intake]],
    close: Callable[[Manifest], Sequence[SlotReport]],
) -> Manifest:
    """`join` runs one of the batches, by its number, and `close` an epoch without rows, both on a manifest and by the
    plan `without_foresight`."""
    manifest = nothing
    for number, known in enumerate(first):
        reports, intake = join(manifest, number)
        manifest = commit(plan, manifest, reports, intake, batch=None, now_ms=0)
        manifest = replace(manifest, watermark_us=known.watermark_us, last_seen_ms=known.last_seen_ms)
        if must_close(plan, manifest):
            manifest = commit_closing(plan, manifest, close(manifest))
    return manifest


def without_foresight(plan: JoinPlan) -> JoinPlan:
    """The plan by which slots let go only of what is dead by the watermark that they are told."""
    return replace(plan, delays_us=(ENDLESS_US,) * len(plan.names))
