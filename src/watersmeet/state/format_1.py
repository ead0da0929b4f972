"""Checkpoints of format 1, as version 0.1 wrote them: they can be opened, and have format 2 from the next epoch on.

Format 1 named state by its place: extents by stage, slot and store of a plan in `query.json` (or, if the first
micro-batches had changed it, in a file of the folder `trial` that the manifest named). With that plan, places become
names. Rows kept for the learning phase are not needed: the plan does not change.

Results of format 1 were not durable. So only the version that made an epoch can compute it again, if it never reached
the sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.damage import damaged
from watersmeet.state.file_names import OF_FORMAT_1
from watersmeet.state.manifest import ExtentRef, Manifest, PlanText, SegmentRef, extent_of
from watersmeet.state.manifest_json import FORMAT_1
from watersmeet.state.measures import Counts
from watersmeet.state.query_file import read_marks


def is_format_1(manifest: dict[str, Any]) -> bool:
    return manifest.get("format") == FORMAT_1


@dataclass(frozen=True, slots=True)
class OldCheckpoint:
    """A checkpoint of format 1: its last manifest, and the marks of its query."""

    manifest: dict[str, Any]
    marks: dict[str, str]
    plan: PlanText

    def require_acknowledged(self, is_acknowledged: bool) -> None:
        if not is_acknowledged:
            raise CheckpointError(
                f"the results of epoch {self.manifest['epoch']} never reached the sink, and a checkpoint of format 1 "
                "does not hold them",
                hint="start it once with version 0.1, which computes them again; then with this one",
                error_class="UNSENT_RESULTS",
            )

    def upgraded(self, plan: JoinPlan) -> Manifest:
        """The manifest in the present format, given the plan of its state."""
        value = self.manifest
        owners = tuple(value["assignment"])
        stages = value["extents"]
        slots = len(stages[0])
        states: list[dict[Any, tuple[ExtentRef, ...]]] = [{} for _ in range(slots)]
        for stage, by_slot in enumerate(stages):
            for slot, entries in enumerate(by_slot):
                layouts = plan.layouts(stage, slot)
                for entry in entries:
                    extent = extent_of(entry)
                    name = layouts[extent.store].name
                    states[slot][name] = (*states[slot].get(name, ()), extent)
        counters = Counts.named(value["totals"]).counters()
        return Manifest(
            epoch=value["epoch"],
            batch=value["batch"],
            plan=self.plan,
            placement=Placement(slots, {plan.key_of_stage(stage): owners for stage in range(plan.stage_count)}),
            watermark_us=value["watermark_us"],
            times_max_us=tuple(value["times_max_us"]),
            last_seen_ms=tuple(value["last_seen_ms"]),
            segments={name: SegmentRef(name, size, crc) for name, size, crc in value["segments"]},
            extents=tuple(states),
            counters=counters,
            closed_us=value.get("closed_us"),
        )


def read_old(folder: Path, manifest: dict[str, Any]) -> OldCheckpoint:
    """The checkpoint in `folder`, whose last manifest is given."""
    named = manifest.get("join")
    path = folder / "query.json" if named is None else folder / OF_FORMAT_1 / named
    kept = read_marks(path)
    if kept is None:
        raise damaged(path, "it is missing")
    if "plan" not in kept.marks:
        raise damaged(path, "fingerprint lacks plan")
    return OldCheckpoint(manifest, kept.marks, PlanText(kept.marks["plan"], kept.orders))
