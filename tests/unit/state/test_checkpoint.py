"""Checkpoints: one driver at a time, one join, one commit per epoch, and no garbage but what a crash leaves."""

import json
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from watersmeet.errors import CheckpointError
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.file_names import SCRATCH
from watersmeet.state.manifest import Manifest, Outbox, PlanText, ResultFile, SegmentRef, before_first_epoch
from watersmeet.state.manifest_json import FORMAT_VERSION
from watersmeet.state.storage import TEMPORARY, create

PLAN = PlanText("(a b)", {"(a b)": [[1], [0]]})


def segment(name: str) -> str:
    return f"0-0-0-{name}-0.seg"


def part(name: str) -> str:
    return f"part-00000-{uuid.uuid5(uuid.NAMESPACE_OID, name)}-c000.snappy.parquet"


def manifest(epoch: int, *segments: str, outbox: Outbox | None = None) -> Manifest:
    """One that names segments, though no extent is of them."""
    refs = {segment(name): SegmentRef(segment(name), 1, 1) for name in segments}
    empty = before_first_epoch(PLAN, 2, ["a.k = b.k"], 4, 1)
    return replace(empty, epoch=epoch, batch=epoch, segments=refs, outbox=outbox or empty.outbox)


def results(*names: str, place: Literal["sink", "checkpoint"] = "checkpoint") -> Outbox:
    return Outbox(shows=True, place=place, files=tuple(ResultFile(part(name), 1, 1) for name in names))


def put(checkpoint: Checkpoint, *names: str) -> None:
    checkpoint.segments.mkdir(parents=True, exist_ok=True)
    for name in names:
        (checkpoint.segments / segment(name)).write_bytes(b"x")


def segments(checkpoint: Checkpoint) -> set[str]:
    return {path.name.split("-")[3] for path in checkpoint.segments.glob("*")}


def waiting(checkpoint: Checkpoint) -> set[str]:
    return {path.name for path in checkpoint.outbox.iterdir()}


def put_results(checkpoint: Checkpoint, *names: str) -> None:
    checkpoint.outbox.mkdir(parents=True, exist_ok=True)
    for name in names:
        (checkpoint.outbox / part(name)).write_bytes(b"x")


def test_a_second_driver_is_refused_and_told_who_holds_the_lock(tmp_path):
    first, second = Checkpoint(tmp_path), Checkpoint(tmp_path)
    first.acquire("driver one")
    with pytest.raises(CheckpointError, match="in use by driver one") as refused:
        second.acquire("driver two")
    assert refused.value.error_class == "CHECKPOINT_IN_USE"
    first.release()
    second.acquire("driver two")
    with pytest.raises(CheckpointError, match="in use by driver two"):
        first.acquire("driver one")
    second.release()


def test_death_releases_the_lock(tmp_path):
    code = (
        "import os, sys, pathlib; from watersmeet.state.checkpoint import Checkpoint;"
        "kept = Checkpoint(pathlib.Path(sys.argv[1])); kept.acquire('x'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env={"PYTHONPATH": ":".join(sys.path)}, check=False)
    assert (tmp_path / "watersmeet" / "lock").read_text() == "x"
    checkpoint = Checkpoint(tmp_path)
    checkpoint.acquire("y")
    checkpoint.release()


def test_the_checkpoint_of_a_plain_spark_query_is_refused(tmp_path):
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointError, match="plain Spark query"):
        Checkpoint(tmp_path).acquire("x")


def test_a_different_query_is_refused_and_every_difference_named(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.require_same_query({"streams": "of a query that was refused"}, {})
    marks = {"streams": "a, b", "window of a": "1 minute", "old": "1"}
    checkpoint.remember_query(marks)
    checkpoint.require_same_query(marks, {"of": "format 1"})
    with pytest.raises(CheckpointError) as refused:
        checkpoint.require_same_query({"streams": "a, b", "window of a": "2 minutes", "new": "2"}, {})
    assert refused.value.error_class == "DIFFERENT_JOIN"
    for difference in (
        "window of a: checkpoint has '1 minute', query has '2 minutes'",
        "old: checkpoint has '1', query has 'none'",
        "new: checkpoint has 'none', query has '2'",
    ):
        assert difference in refused.value.message
    assert "streams" not in refused.value.message


def test_a_format_of_the_future_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.remember_query({"streams": "a"})
    path = checkpoint.folder / "query.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT_VERSION + 1}))
    with pytest.raises(CheckpointError, match=f"format {FORMAT_VERSION + 1}"):
        checkpoint.require_same_query({"streams": "a"}, {})


def test_the_plan_is_that_of_the_last_manifest(tmp_path):
    """What identifies the query is apart from it."""
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.plan() is None
    checkpoint.remember_query({"streams": "a, b"})
    assert checkpoint.plan() is None
    checkpoint.commit(replace(manifest(0), plan=PlanText("(b a)")))
    checkpoint.commit(manifest(1))
    assert checkpoint.plan() == PLAN
    checkpoint.require_same_query({"streams": "a, b"}, {})


def test_the_last_committed_manifest_is_found_again(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.latest() is None
    for epoch in (9, 10, 11):
        checkpoint.commit(manifest(epoch, f"s{epoch}"))
    assert checkpoint.latest() == manifest(11, "s11")


def test_who_commits_an_epoch_second_is_told(tmp_path):
    first, second = Checkpoint(tmp_path), Checkpoint(tmp_path)
    assert first.commit(manifest(0, "mine"))
    assert not second.commit(manifest(0, "theirs"))
    assert first.latest() == manifest(0, "mine")


def test_what_the_sink_surely_has_and_may_have(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.sent_and_committed() == (-1, -1)
    checkpoint.commit(manifest(3))
    assert checkpoint.sent_and_committed() == (2, 3)
    checkpoint.acknowledge(3)
    assert checkpoint.sent_and_committed() == (3, 3)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"format": 99}', b'{"format": 1}', b'{"format": 2}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.commit(manifest(0))
    (checkpoint.folder / "manifests" / f"{0:012d}.json").write_bytes(content)
    for read in (checkpoint.latest, checkpoint.plan):
        with pytest.raises(CheckpointError):
            read()


def test_acknowledging_twice_is_acknowledging(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    assert not checkpoint.is_acknowledged(3)
    checkpoint.acknowledge(3)
    checkpoint.acknowledge(3)
    assert checkpoint.is_acknowledged(3)
    assert not checkpoint.is_acknowledged(4)


def test_discarding_removes_only_what_the_older_manifest_alone_needs(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    older = manifest(0, "old", "both", outbox=results("sent.parquet"))
    newer = manifest(1, "both", "new", outbox=results("newer.parquet"))
    put(checkpoint, "old", "both", "new", "unknown")
    put_results(checkpoint, "sent.parquet", "newer.parquet", "unknown.parquet")
    checkpoint.discard(None, older)
    checkpoint.commit(older)
    checkpoint.commit(newer)
    checkpoint.acknowledge(0)
    checkpoint.discard(older, newer)
    assert segments(checkpoint) == {"both", "new", "unknown"}
    assert waiting(checkpoint) == {part("newer.parquet"), part("unknown.parquet")}
    assert checkpoint.latest() == newer
    assert not checkpoint.is_acknowledged(0)


def test_files_in_the_folder_of_a_sink_are_not_of_the_checkpoint(tmp_path):
    """They are the sink's part files; what lies in the outbox under the same name is something else."""
    checkpoint = Checkpoint(tmp_path)
    older, newer = manifest(0, outbox=results("part.parquet", place="sink")), manifest(1)
    put_results(checkpoint, "part.parquet")
    checkpoint.discard(older, newer)
    assert waiting(checkpoint) == {part("part.parquet")}


def littered(checkpoint: Checkpoint) -> Manifest:
    """Files of three epochs and of failed attempts; the last manifest."""
    checkpoint.acquire("x")
    checkpoint.remember_query({"streams": "a"})
    last = manifest(5, "b", "c", outbox=results("five.parquet"))
    for live in (manifest(3), manifest(4, "a", "b", outbox=results("four.parquet")), last):
        checkpoint.acknowledge(live.epoch)
        checkpoint.commit(live)
    put(checkpoint, "a", "b", "c", "orphan")
    (checkpoint.segments / f"{TEMPORARY}1").write_bytes(b"x")
    put_results(checkpoint, "four.parquet", "five.parquet", "orphan.parquet")
    (checkpoint.segments / f"{SCRATCH}1").mkdir()
    (checkpoint.segments / f"{SCRATCH}1" / "0").write_bytes(b"x")
    (checkpoint.folder / f"{TEMPORARY}2").write_bytes(b"x")
    create(checkpoint.folder / "trial" / "of-format-1.json", b"x")
    checkpoint.events.append([{"epoch": 5, "kind": "spill"}])
    return last


def everything(checkpoint: Checkpoint) -> set[str]:
    return {str(Path(path).relative_to(checkpoint.folder)) for path in checkpoint.folder.rglob("*") if path.is_file()}


KEPT = {
    "lock", "query.json", "events.jsonl", f"segments/{segment('b')}", f"segments/{segment('c')}",
    f"outbox/{part('five.parquet')}", "manifests/000000000005.json", "acks/000000000005",
}  # fmt: skip


def test_a_sweep_removes_all_that_the_last_manifest_does_not_name(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    last = littered(checkpoint)
    removed = checkpoint.sweep(last, checkpoint.files())
    assert everything(checkpoint) == KEPT
    assert removed == 8
    assert not (checkpoint.folder / "trial").exists()
    assert checkpoint.sweep(last, checkpoint.files()) == 0
    assert checkpoint.latest() == last
    checkpoint.release()


def test_a_sweep_leaves_alone_what_it_has_not_seen(tmp_path):
    """It may be of a driver that has taken over meanwhile."""
    checkpoint = Checkpoint(tmp_path)
    last = littered(checkpoint)
    seen = checkpoint.files()
    put(checkpoint, "successor")
    put_results(checkpoint, "successor")
    checkpoint.commit(manifest(6, "successor"))
    checkpoint.sweep(last, seen)
    committed = {"manifests/000000000005.json"}  # the one before is gone with the commit
    later = {f"segments/{segment('successor')}", f"outbox/{part('successor')}", "manifests/000000000006.json"}
    assert everything(checkpoint) == KEPT - committed | later
    checkpoint.release()


def test_checkpoints_have_names_of_their_own(tmp_path):
    for name in "ab":
        Checkpoint(tmp_path / name).prepare()
    assert Checkpoint(tmp_path / "a").identity() != Checkpoint(tmp_path / "b").identity()
    assert Checkpoint(tmp_path / "a").identity() == Checkpoint(tmp_path / "b" / ".." / "a").identity()


def test_a_uid_is_kept_when_the_checkpoint_is_moved(tmp_path):
    first = Checkpoint(tmp_path / "a")
    uid = first.uid()
    assert not (tmp_path / "a").exists()  # nothing is written before the query is accepted
    first.prepare()
    first.prepare()
    (tmp_path / "a").rename(tmp_path / "b")
    assert Checkpoint(tmp_path / "b").uid() == uid
    assert Checkpoint(tmp_path / "c").uid() != uid


def test_of_two_drivers_that_make_a_checkpoint_at_once_one_is_refused(tmp_path):
    one, other = Checkpoint(tmp_path), Checkpoint(tmp_path)
    assert one.uid() != other.uid()
    one.prepare()
    with pytest.raises(CheckpointError, match="was taken by another driver at the same moment"):
        other.prepare()
