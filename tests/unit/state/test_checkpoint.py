"""Checkpoints: one driver at a time, one join, one commit per epoch, and no garbage but what a crash leaves."""

import json
import subprocess
import sys

import pytest

from watersmeet.errors import CheckpointError, FencedError
from watersmeet.state.checkpoint import SCRATCH, Checkpoint
from watersmeet.state.manifest import FORMAT_VERSION, Manifest, SegmentRef, before_first_epoch
from watersmeet.state.storage import TEMPORARY, create


def manifest(epoch: int, *segments: str) -> Manifest:
    empty = before_first_epoch(2, 1, 4, 1)
    refs = {name: SegmentRef(name, 1, 1) for name in segments}
    return Manifest(epoch, epoch, None, empty.times_max_us, empty.last_seen_ms, empty.assignment, refs, (((),),))


def put(checkpoint: Checkpoint, *names: str) -> None:
    checkpoint.segments.mkdir(parents=True, exist_ok=True)
    for name in names:
        (checkpoint.segments / name).write_bytes(b"x")


def segments(checkpoint: Checkpoint) -> set[str]:
    return {path.name for path in checkpoint.segments.glob("*")}


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


def test_a_different_join_is_refused_and_every_difference_named(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.require_same_join({"streams": "of a query that was refused"})
    checkpoint.remember_join({"streams": "a, b", "window of a": "1 minute", "old": "1"}, {})
    checkpoint.remember_join({"streams": "stay as they are"}, {})
    checkpoint.require_same_join({"streams": "a, b", "window of a": "1 minute", "old": "1"})
    with pytest.raises(CheckpointError) as refused:
        checkpoint.require_same_join({"streams": "a, b", "window of a": "2 minutes", "new": "2"})
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
    checkpoint.remember_join({"streams": "a"}, {})
    path = checkpoint.folder / "query.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT_VERSION + 1}))
    with pytest.raises(CheckpointError, match=f"format {FORMAT_VERSION + 1}"):
        checkpoint.require_same_join({"streams": "a"})


def test_the_last_committed_manifest_is_found_again(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.latest() is None
    for epoch in (9, 10, 11):
        checkpoint.commit(manifest(epoch, f"s{epoch}"))
    assert checkpoint.latest() == manifest(11, "s11")


def test_who_commits_an_epoch_second_is_fenced(tmp_path):
    first, second = Checkpoint(tmp_path), Checkpoint(tmp_path)
    first.commit(manifest(0, "mine"))
    with pytest.raises(FencedError, match="epoch 0"):
        second.commit(manifest(0, "theirs"))
    assert first.latest() == manifest(0, "mine")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"format": 99}', b'{"format": 1}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.commit(manifest(0))
    (checkpoint.folder / "manifests" / f"{0:012d}.json").write_bytes(content)
    with pytest.raises(CheckpointError):
        checkpoint.latest()


def test_acknowledging_twice_is_acknowledging(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    assert not checkpoint.is_acknowledged(3)
    checkpoint.acknowledge(3)
    checkpoint.acknowledge(3)
    assert checkpoint.is_acknowledged(3)
    assert not checkpoint.is_acknowledged(4)


def test_discarding_removes_only_what_the_older_manifest_alone_needs(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    older, newer = manifest(0, "old", "both"), manifest(1, "both", "new")
    put(checkpoint, "old", "both", "new", "unknown")
    checkpoint.commit(older)
    checkpoint.commit(newer)
    checkpoint.acknowledge(0)
    checkpoint.discard_before(newer, older)
    assert segments(checkpoint) == {"both", "new", "unknown"}
    assert checkpoint.latest() == newer
    assert not checkpoint.is_acknowledged(0)


def test_a_sweep_removes_orphans_and_nothing_else(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.acquire("x")
    checkpoint.remember_join({"streams": "a"}, {})
    older, newer = manifest(4, "a", "b"), manifest(5, "b", "c")
    for epoch in (3, 4, 5):
        checkpoint.acknowledge(epoch)
    for live in (manifest(3), older, newer):
        checkpoint.commit(live)
    put(checkpoint, "a", "b", "c", "orphan", f"{TEMPORARY}1")
    (checkpoint.segments / f"{SCRATCH}1").mkdir()
    (checkpoint.segments / f"{SCRATCH}1" / "0").write_bytes(b"x")
    (checkpoint.folder / f"{TEMPORARY}2").write_bytes(b"x")
    removed = checkpoint.sweep(older, newer)
    assert segments(checkpoint) == {"a", "b", "c"}
    assert {p.name for p in checkpoint.folder.iterdir()} == {"acks", "lock", "manifests", "query.json", "segments"}
    assert sorted(int(p.stem) for p in (checkpoint.folder / "manifests").iterdir()) == [4, 5]
    assert sorted(int(p.name) for p in (checkpoint.folder / "acks").iterdir()) == [4, 5]
    assert removed == 6
    assert checkpoint.sweep(older, newer) == 0
    checkpoint.release()


def commit_as_an_earlier_version(checkpoint: Checkpoint, live: Manifest, **named: object) -> None:
    value = {**json.loads(live.to_json()), "first": [], "join": None, "base": None, **named}
    create(checkpoint.folder / "manifests" / f"{live.epoch:012d}.json", json.dumps(value).encode())


def test_a_plan_that_an_earlier_version_has_changed_stays(tmp_path):
    """The manifest names what the checkpoint is for; later ones do not, so it moves to query.json."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.remember_join({"plan": "old"}, {})
    orders = {"(a b)": [[1], [0]]}
    text = {"format": FORMAT_VERSION, "fingerprint": {"plan": "new"}, "probeOrders": orders}
    create(checkpoint.folder / "trial" / "j.json", json.dumps(text).encode())
    base = manifest(0, "b")
    create(checkpoint.folder / "trial" / "b.json", base.to_json())
    live = manifest(1, "b", "c")
    commit_as_an_earlier_version(checkpoint, manifest(0, "a"))
    assert checkpoint.remembered_plan() == ("old", {})
    commit_as_an_earlier_version(checkpoint, live, join="j.json", base="b.json")
    assert checkpoint.latest() == live
    assert checkpoint.before(live) == base
    assert checkpoint.before(manifest(0)) is None
    checkpoint.sweep(live, base)
    assert checkpoint.remembered_plan() == ("new", orders)
    with pytest.raises(CheckpointError, match="plan: checkpoint has 'new', query has 'old'"):
        checkpoint.require_same_join({"plan": "old"})
    checkpoint.remember_join({"plan": "new"}, orders)
    newer = manifest(2, "c")
    checkpoint.commit(newer)
    checkpoint.discard_before(newer, live)
    assert checkpoint.remembered_plan() == ("new", orders)


def test_a_checkpoint_without_the_file_that_says_what_it_is_for_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.remember_join({"plan": "old"}, {})
    commit_as_an_earlier_version(checkpoint, manifest(0), join="j.json")
    with pytest.raises(CheckpointError, match=r"j\.json is missing"):
        checkpoint.remembered_plan()


def test_checkpoints_have_names_of_their_own(tmp_path):
    assert Checkpoint(tmp_path / "a").identity() != Checkpoint(tmp_path / "b").identity()
    assert Checkpoint(tmp_path / "a").identity() == Checkpoint(tmp_path / "b" / ".." / "a").identity()
