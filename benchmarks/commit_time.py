"""How long the driver takes to commit an epoch of a large query, and how large its manifest is.

300 slots, a chain of four streams in three stages, 30 extents for every slot and stage: 27,000 extents. Timed is what
lies between the last report and the commit: the manifest is made of the manifest before and the reports
(`manifest_after`), written as JSON (`to_json`), and created in the checkpoint (`create`, with its syncs). An eighth of
the extents is new, as in an epoch that writes a tier or two.

Two layouts of the same extents: segments of four runs each, and the worst case, a segment for every extent. Aimed at:
120 bytes per extent in both, and 50 ms in the first (the least of several runs).

    python -m benchmarks.commit_time
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa

from benchmarks.machine import save
from watersmeet.epoch.after import Clock, initial_manifest, manifest_after
from watersmeet.epoch.kinds import Batch
from watersmeet.epoch.task import InputRows, Intake, NodeInput, Outcome, SlotReport
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef, Manifest, SegmentRef
from watersmeet.state.manifest_json import to_json
from watersmeet.state.measures import Counts
from watersmeet.state.storage import create
from watersmeet.state.tiers import segment_name, task_name

SLOTS, EXTENTS = 300, 30
PARTITIONS = 2400
NEW_EVERY = 8
"""Of so many extents one is new."""
EPOCH = 1_000_000
TIME_US = 1_760_000_000_000_000
COMMIT_MS_MAX = 50
LAYOUTS = {"four runs a segment": 4, "a segment for every extent": 1}
BYTES_PER_EXTENT_MAX = 120
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def chain() -> JoinPlan:
    """Four streams over three keys, a stage each."""
    query = build_query(
        [Stream(name, SCHEMA, "ts") for name in "abcd"],
        where=["a.x = b.x", "b.y = c.y", "c.z = d.z"],
        within="1 hour",
        windows={},
        select=[f"{name}.{column}" for name in "abcd" for column in "xyz"],
    )
    plan = plan_join(query, (parse_tree("(((a b) c) d)", "abcd"),), PARTITIONS)
    assert len(plan.stages) == 3, "three stages intended"
    return plan


def reports_of(plan: JoinPlan, epoch: int, *, slots: int, extents: int, runs: int) -> list[SlotReport]:
    """What all slots report of an epoch; segments have so many runs."""
    found = []
    for stage in range(plan.stage_count):
        stores = [layout.label for layout in plan.layouts(stage, 0)]
        for slot in range(slots):
            groups = Groups.between(slot * PARTITIONS // slots, (slot + 1) * PARTITIONS // slots)
            held, new = [], []
            for number in range(0, extents, runs):
                written = epoch if number % NEW_EVERY < runs else EPOCH - 10 - number
                name = segment_name(task_name(written, stage, slot), f"{slot:05x}7f3a9c21", number // runs)
                new += [SegmentRef(name, 1_234_567, 4_012_345_678)] if written == epoch else []
                held += [
                    ExtentRef(name, run, run % len(stores), 4_000_000 + number, 123_456, TIME_US + number, groups)
                    for run in range(min(runs, extents - number))
                ]
            counts = {f"{figure}.{label}": 123_456 for label in stores for figure in ("intake", "late", "state_rows")}
            counts |= {f"{figure}_bytes": 1_234_567 for figure in ("memory", "state", "active", "fetched")}
            counts |= {f"{figure}_ns": 123_456_789 for figure in ("insert", "probe", "expire", "spill")}
            inputs = {NodeInput(stage, "n", label): InputRows(1_000, 1_000) for label in stores}
            told = Counts.named(counts)
            found.append(SlotReport(epoch, stage, slot, tuple(held), tuple(new), told, inputs=inputs))
    return found


def outcome_of(plan: JoinPlan, epoch: int, *, slots: int = SLOTS, extents: int = EXTENTS, runs: int = 4) -> Outcome:
    streams = len(plan.names)
    reports = reports_of(plan, epoch, slots=slots, extents=extents, runs=runs)
    return Outcome(reports, Intake((100_000,) * streams, (TIME_US,) * streams))


def large_manifest(plan: JoinPlan, *, slots: int = SLOTS, extents: int = EXTENTS, runs: int = 4) -> Manifest:
    """The manifest of an epoch whose slots all have so many extents in every stage."""
    outcome = outcome_of(plan, EPOCH - 1, slots=slots, extents=extents, runs=runs)
    named = {extent.segment for report in outcome.reports for extent in report.extents}
    known = {name: SegmentRef(name, 1_234_567, 4_012_345_678) for name in sorted(named)}
    before = replace(initial_manifest(plan, slots), epoch=EPOCH - 2, segments=known)
    return manifest_after(plan, before, Batch(EPOCH - 1), outcome, Clock(1))


def least_ms(repeat: int, work: Callable[[], object]) -> float:
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return round(min(times) * 1000, 1)


def measure(runs: int, repeat: int, folder: Path) -> dict[str, float]:
    """Milliseconds by step, and bytes."""
    plan = chain()
    before = large_manifest(plan, runs=runs)
    outcome = outcome_of(plan, EPOCH, runs=runs)
    numbers = count()

    def after() -> Manifest:
        return manifest_after(plan, before, Batch(EPOCH), outcome, Clock(1))

    def commit() -> None:
        assert create(folder / f"{next(numbers)}.json", to_json(after()))

    made = after()
    written = to_json(made)
    extents = sum(1 for _ in made.all_extents())
    return {
        "extents": extents,
        "bytes_per_extent": round(len(written) / extents, 1),
        "manifest_after_ms": least_ms(repeat, after),
        "to_json_ms": least_ms(repeat, lambda: to_json(made)),
        "create_ms": least_ms(repeat, lambda: create(folder / f"{next(numbers)}.json", written)),
        "commit_ms": least_ms(repeat, commit),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    measured = {}
    for name, runs in LAYOUTS.items():
        with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
            measured[name] = measure(runs, args.repeat, Path(folder))
        print(name, measured[name])
        if measured[name]["bytes_per_extent"] > BYTES_PER_EXTENT_MAX:
            print(f"missed: at most {BYTES_PER_EXTENT_MAX} bytes per extent were aimed at")
    if measured["four runs a segment"]["commit_ms"] > COMMIT_MS_MAX:
        print(f"missed: at most {COMMIT_MS_MAX} ms were aimed at")
    print(f"written to {save('commit_time', {'workload': vars(args), 'layouts': measured}).name}")


if __name__ == "__main__":
    main()
