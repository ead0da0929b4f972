"""Checks of what scenarios cannot see: the small world of the protocol, syncs before commits, figures for policies."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa

from tests import torn_world
from tests.abstract_world import enumerate_worlds, first_world
from tests.power import RAM
from tests.power_play import play
from tests.tearing import TEARS, copied
from tests.torn_world import enumerate_torn
from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.epoch.after import Clock, initial_manifest, manifest_after
from watersmeet.epoch.driving import Drive
from watersmeet.epoch.kinds import Batch, Clean, Cleaning, Closing, Spill, Takeover
from watersmeet.epoch.protocol import GiveUp, Look, Started
from watersmeet.epoch.task import GroupFigure, Intake, Outcome, SlotReport, no_intake
from watersmeet.epoch.tied import batch_difference
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.keys import key_name
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.inprocess_log import LogInFiles
from watersmeet.runtime.repair import apply, look
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest, SegmentRef
from watersmeet.state.manifest_json import from_json, to_json
from watersmeet.state.spark_log import LogEnd, Offsets, SparkLog
from watersmeet.state.tiers import segment_name, task_name

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
GROUPS = 4
POWER_SEEDS = range(40)
"""Most mutants are caught by one of the first three."""


def check_worlds() -> None:
    for results_in in ("checkpoint", "sink"):
        enumerate_worlds(first_world(2, 1, results_in))


def check_torn() -> None:
    enumerate_torn(torn_world.World(items=3, mishaps_left=1, crashes_left=1))
    enumerate_torn(torn_world.World(items=3, mishaps_left=2, crashes_left=0))


def check_untied() -> None:
    """A manifest that does not name offsets is followed by its own batch, or the next, and by no other."""
    last = replace(_manifest(), batch=2)
    came = [batch_difference(last, number, None, Offsets("query", "hash")) for number in range(5)]
    assert [difference is None for difference in came] == [False, False, True, True, False]
    first = [batch_difference(None, number, None, Offsets("query", "hash")) for number in range(2)]
    assert [difference is None for difference in first] == [True, False], "without state the first batch is not batch 0"


def check_logs() -> None:
    """Of two batches that end with the same number of listed files, the one is not taken for the other."""
    with tempfile.TemporaryDirectory() as folder:
        log = SparkLog(Path(folder))
        LogInFiles(log).plan(0)
        found, path = log.offsets(0), log.folder / "offsets" / "0"
        path.write_text(path.read_text().replace('"batchTimestampMs":0', '"batchTimestampMs":1'))
        anew = log.offsets(0)
        assert found is not None
        assert anew is not None
        assert (found.sources, found != anew) == (anew.sources, True), "a batch made anew is taken for the one before"


def check_repair() -> None:
    """After a repair Spark's log ends with the batch that the state ends with, and the next one is joined."""
    rows = pa.table([pa.array([1], pa.int64()), pa.array([5]).cast(SCHEMA.field("ts").type)], schema=SCHEMA)
    for how, way, last in (("older-state", "rewind", 0), ("no-log", "put-back", 3), ("another-log", "put-back", 3)):
        with tempfile.TemporaryDirectory() as folder:
            location = Path(folder) / "ck"
            for number in range(4):
                InProcessQuery(_query(), location, partitions=GROUPS).run({"a": rows, "b": rows})
                if number == 0:
                    older = copied(location, Path(folder) / "older")
            TEARS[how](location, older)
            checkpoint = Checkpoint(location)
            apply(checkpoint, look(checkpoint), way)
            assert look(checkpoint).difference is None, f"{how}: {look(checkpoint).difference}"
            is_enough = last == 0 or checkpoint.spark_log.offsets(last - 1) is not None
            assert is_enough, f"{how}: Spark needs the offsets of the last two batches"
            InProcessQuery(_query(), location, partitions=GROUPS).run({"a": rows, "b": rows})
            ending = checkpoint.ending()
            assert ending is not None
            assert ending.batch == last + 1


def check_syncs() -> None:
    """All that a manifest names is synced, and so is its folder, before the manifest has its name."""
    rows = pa.table([pa.array([1, 2], pa.int64()), pa.array([5, 6]).cast(SCHEMA.field("ts").type)], schema=SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        engine = InProcessQuery(_query(), Path(folder), partitions=GROUPS, keeps_results=True)
        with _recorded() as (synced, at_commit):
            engine.run({"a": rows, "b": rows})
        manifest = engine.manifest
        files = [engine.checkpoint.outbox / file.name for file in manifest.outbox.files]
        files += [engine.checkpoint.segments / name for name in manifest.segments]
        assert len(files) > 1
        early = synced[: at_commit[0]]
        for path in (*files, engine.checkpoint.outbox, engine.checkpoint.segments):
            assert path.stat().st_ino in early, f"{path.name} was not synced before the manifest had its name"


@contextmanager
def _recorded() -> Iterator[tuple[list[int], list[int]]]:
    """The inodes that are synced, and how many were when a manifest got its name."""
    synced: list[int] = []
    at_commit: list[int] = []
    link = os.link

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    def named(source: Path, target: Path) -> None:
        if Path(target).parent.name == "manifests":
            at_commit.append(len(synced))
        link(source, target)

    with mock.patch("os.fsync", sync), mock.patch("os.link", named):
        yield synced, at_commit


def check_power() -> None:
    """Power cuts lose and repeat nothing."""
    for seed in POWER_SEEDS:
        with tempfile.TemporaryDirectory(dir=RAM) as folder:
            play(Path(folder), seed)


def check_manifests() -> None:
    """Without rows nothing changes that rows change; and a manifest is read as it was written."""
    plan = _plan()
    late = Clock(now_ms=1500, idle_timeout_ms=1000)
    first = initial_manifest(plan, 2)
    for number, (rows, now_ms) in enumerate([((1, 1), 5), ((0, 1), 1000)]):
        intake = Intake(rows, (100 if rows[0] else None, 200))
        batch = Batch(number, offsets=Offsets("query", f"offsets {number}", "text"))
        first = manifest_after(plan, first, batch, Outcome((), intake), replace(late, now_ms=now_ms))
    assert (first.watermark_us, first.batch, first.offsets) == (100, 1, Offsets("query", "offsets 1"))
    for epoch in (Cleaning((), ""), Closing(50), Takeover()):
        then = manifest_after(plan, first, epoch, Outcome((), no_intake(plan)), late)
        for name in (
            "watermark_us",
            "times_max_us",
            "last_seen_ms",
            "batch",
            "offsets",
            "placement",
            "extents",
            "counters",
        ):
            assert getattr(then, name) == getattr(first, name), f"{type(epoch).__name__} changes {name}"
        assert then.epoch == first.epoch + 1
    owners = dict.fromkeys(first.placement.owners, (1, 0, 1, 0))
    placed = replace(first, placement=Placement(2, owners))
    assert from_json(to_json(placed)) == placed


def check_ledger() -> None:
    """What policies and people are told of groups, after epochs of all kinds."""
    coordinator = Coordinator(_plan(), 1, None)
    after = initial_manifest(_plan(), 1)
    coordinator.note(Batch(0), after, [_report(8)])
    assert _output(coordinator, after) == 4
    coordinator.note(Cleaning((), ""), after, [_report(0)])
    coordinator.note(Takeover(), after, [])
    assert _output(coordinator, after) == 4, "epochs without rows change what a group is said to yield"
    coordinator.note(Batch(1), after, [_report(2)])
    assert _output(coordinator, after) == 3
    coordinator.note(Batch(2, (Spill(0, 0, (1,)),)), after, [_report(2)])
    assert _output(coordinator, after) == 1, "a group that was closed has not started anew"
    assert coordinator.ledger.summary()[0]["owedGroups"] == 1
    coordinator.note(Cleaning((Clean(0, 0, 0, 1),), ""), after, [_report(0)])
    assert coordinator.ledger.summary()[0]["owedGroups"] == 1
    coordinator.note(Cleaning((Clean(0, 0, 1, 4),), ""), after, [_report(0)])
    assert coordinator.ledger.summary()[0]["owedGroups"] == 0, "groups that were cleaned up still count as owing"
    assert coordinator.ledger.summary()[0]["output"] == 12


def check_sweep() -> None:
    """A takeover removes what it saw of ours and the last manifest does not name, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder))
        checkpoint.segments.mkdir(parents=True)
        kept, orphan, newer = (segment_name(task_name(0, 0, 0), attempt, 0) for attempt in ("live", "orphan", "newer"))
        for name in (kept, orphan, "notes.bak"):
            (checkpoint.segments / name).touch()
        seen = checkpoint.files()
        (checkpoint.segments / newer).touch()  # of a driver that has taken over since
        live = replace(initial_manifest(_plan(), 1), epoch=3, segments={kept: SegmentRef(kept, 0, 0)})
        checkpoint.sweep(live, seen)
        assert {path.name for path in checkpoint.segments.iterdir()} == {kept, newer, "notes.bak"}


def check_stopping() -> None:
    """A driver that is stopped carries out nothing more, and one that fails says why."""
    done: list[object] = []
    drive = Drive({Look: done.append}, is_stopped=lambda: True)
    drive.play(Started(_manifest(), True, LogEnd()))
    assert done == []
    assert drive.state.is_closed

    def fail(command: object) -> None:
        raise ZeroDivisionError

    drive, given = Drive({Look: fail}), []
    try:
        for command in drive.steps(Started(_manifest(), True, LogEnd())):
            given.append(type(command))
    except ZeroDivisionError:
        given.append(ZeroDivisionError)
    assert given == [Look, GiveUp, ZeroDivisionError]
    assert drive.state.is_closed, "a driver that has failed goes on"


def _manifest() -> Manifest:
    return replace(initial_manifest(_plan(), 1), epoch=1)


def _query() -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts") for name in "ab"]
    return build_query(streams, where=["a.k = b.k"], within="1 hour", windows={}, select=["a.k"])


def _plan() -> JoinPlan:
    return plan_join(_query(), (default_tree(_query()),), GROUPS)


def _report(output: int) -> SlotReport:
    """Group 1 has state, and has yielded so many results."""
    name = key_name(_plan().stages[0].key)
    groups = {GroupFigure("output", name): ([1], [output]), GroupFigure("size", stage=0, store=0): ([1], [100])}
    return SlotReport(0, 0, 0, (), (), groups=groups)


def _output(coordinator: Coordinator, after: Manifest) -> float:
    found = coordinator.ledger.figures(0, after.placement, 1)
    return float(found.output[np.flatnonzero(found.group == 1)[0]])


CHECKS = {
    "worlds": check_worlds,
    "torn": check_torn,
    "untied": check_untied,
    "logs": check_logs,
    "repair": check_repair,
    "syncs": check_syncs,
    "power": check_power,
    "manifests": check_manifests,
    "ledger": check_ledger,
    "sweep": check_sweep,
    "stopping": check_stopping,
}
