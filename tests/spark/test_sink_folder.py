"""The folder of a file sink: it has one owner, holds nothing that nobody reads, and what it acknowledges is synced."""

import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from pyspark.sql.types import StructType

from tests.effort import mostly_long
from tests.spark.dying import dying_before
from tests.spark.helpers import expected, join_of, output, random_batches, run, start, until, write_batches
from tests.spark.outbox_program import STARTS
from tests.spark.processes import Driver
from tests.spark.refusals import refusal
from watersmeet.epoch import protocol
from watersmeet.epoch.driving import Drive
from watersmeet.errors import SinkError, WatersmeetError
from watersmeet.runtime.spark.file_sink import FileSink
from watersmeet.runtime.spark.sinks import SinkRun
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.part_files import ANYBODY, Maker
from watersmeet.state.sink_owner import MARK, Owner

BATCHES = random_batches(seed=8, streams="ab", batches=3, rows=20, keys=6)
LOG = "_spark_metadata"


@pytest.fixture
def feed(tmp_path):
    write_batches(tmp_path, BATCHES)
    return tmp_path


def named_by_log(out: Path) -> dict[str, int]:
    """The files that the log names, with the epoch that does."""
    entries = [entry for entry in (out / LOG).iterdir() if not entry.name.startswith(".")]
    lines = [(int(entry.name), json.loads(line)) for entry in entries for line in entry.read_text().splitlines()[1:]]
    return {unquote(urlparse(line["path"]).path): epoch for epoch, line in lines}


def part_files(out: Path) -> set[str]:
    return {str(path) for path in out.rglob("part-*")}


# One owner


def test_a_second_query_into_the_same_folder_is_refused_before_it_writes(spark, feed):
    join = join_of(spark, feed, "ab")
    writer = join.writeStream.queryName("first").option("checkpointLocation", feed / "one").option("path", feed / "out")
    query = writer.start()
    try:
        text = refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), feed / "out", feed / "two"))
        assert text.startswith(
            f"[SINK_FAILED] {feed / 'out'} holds the output of another query ('first', checkpoint {feed / 'one'}). "
            f"choose an empty path, or continue that query with its checkpointLocation"
        )
        query.processAllAvailable()
    finally:
        query.stop()
    assert not (feed / "two" / "spark").exists()
    refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), feed / "out", feed / "two"))
    run(join, feed / "out", feed / "one")
    assert output(spark, feed / "out") == expected(join, BATCHES)


@pytest.mark.parametrize("is_local", [True, False])
def test_of_queries_that_start_at_once_all_but_one_are_refused(spark, tmp_path, is_local):
    sink = FileSink(str(tmp_path / "out"), "parquet", {}).located(spark, ANYBODY)
    if not is_local:
        sink = replace(sink, local=None)  # as on another kind of storage
    owners = [Owner(uuid.uuid4().hex, f"ck{i}", "q") for i in range(4 if is_local else 2)]
    outcomes, together = [], threading.Barrier(len(owners))

    def claim(owner: Owner) -> None:
        if is_local:
            together.wait()
        try:
            sink.claim(SinkRun(spark, StructType(), owner, ANYBODY, -1, -1))
            outcomes.append(owner)
        except SinkError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=claim, args=(owner,)) for owner in owners]
    for thread in threads:
        thread.start()
        if not is_local:
            thread.join()
    for thread in threads:
        thread.join()
    winners = [one for one in outcomes if isinstance(one, Owner)]
    assert len(winners) == 1
    assert len(outcomes) == len(owners)
    assert json.loads((tmp_path / "out" / LOG / MARK).read_text())["checkpoint"] == winners[0].checkpoint


def test_a_folder_without_a_mark_is_taken_by_the_checkpoint_whose_epochs_fit(spark, feed):
    """As earlier versions have left it."""
    join = join_of(spark, feed, "ab")
    run(join, feed / "out", feed / "ck")
    (feed / "out" / LOG / MARK).unlink()
    text = refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), feed / "out", feed / "other"))
    assert "holds the output of another query" in text
    run(join, feed / "out", feed / "ck")
    assert json.loads((feed / "out" / LOG / MARK).read_text())["checkpoint"] == Checkpoint(feed / "ck").uid()
    assert output(spark, feed / "out") == expected(join, BATCHES)


def test_a_mark_that_cannot_be_read_is_named(spark, feed):
    run(join_of(spark, feed, "ab"), feed / "out", feed / "ck")
    (feed / "out" / LOG / MARK).write_text("{")
    text = refusal(SinkError, lambda: start(join_of(spark, feed, "ab"), feed / "out", feed / "ck"))
    assert f"{MARK}, which says whose output" in text


# Durable


@contextmanager
def synced() -> Iterator[tuple[set[int], list[set[int]], list[set[int]]]]:
    """The inodes that the driver has synced, and which they were at each commit and at each acknowledgement."""
    so_far, commits, acknowledgements = set(), [], []
    fsync, create, acknowledge = os.fsync, os.link, Checkpoint.acknowledge

    def sync(descriptor: int) -> None:
        fsync(descriptor)
        so_far.add(os.fstat(descriptor).st_ino)

    def link(source: Path, target: Path) -> None:
        if Path(target).parent.name == "manifests":
            commits.append(set(so_far))
        create(source, target)

    def noted(checkpoint: Checkpoint, epoch: int) -> None:
        acknowledgements.append(set(so_far))
        acknowledge(checkpoint, epoch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", sync)
        patched.setattr(os, "link", link)
        patched.setattr(Checkpoint, "acknowledge", noted)
        yield so_far, commits, acknowledgements


@pytest.mark.parametrize(
    "kind",
    ["parquet", pytest.param("csv", marks=pytest.mark.long), pytest.param("partitioned", marks=pytest.mark.long)],
)
def test_all_that_an_acknowledgement_rests_on_is_synced_before_it(spark, feed, kind):
    with synced() as (_, commits, acknowledgements):
        STARTS[kind](spark, feed).awaitTermination()
    assert len(commits) == len(acknowledgements) == len(BATCHES)
    out, logs = feed / "out", feed / "ck" / "spark"
    for epoch, (at_commit, at_acknowledgement) in enumerate(zip(commits, acknowledgements, strict=True)):
        rests = [out, out / LOG, out / LOG / str(epoch), out / LOG / f".{epoch}.crc"]
        if kind != "parquet":  # else tasks have synced the files
            rests += [Path(path) for path, named_in in named_by_log(out).items() if named_in == epoch]
            assert len(rests) > 4
        assert not [path for path in rests if path.stat().st_ino not in at_acknowledgement]
        folders = [logs / "offsets", logs / "sources" / "0", logs / "sources" / "1"]
        entries = [folder / name for folder in folders for name in (str(epoch), f".{epoch}.crc")]
        assert not [path for path in (logs, *folders, *entries) if path.stat().st_ino not in at_commit]


def test_a_torn_entry_of_the_log_is_written_again(spark, feed):
    """Of an epoch that was sent, and not acknowledged: after a power cut it may be there without its bytes."""
    for kind, torn in (("parquet", b""), ("csv", b"v1"), ("partitioned", None)):
        folder = feed / kind
        folder.mkdir()
        with dying_before(protocol.Acknowledge, len(BATCHES)), pytest.raises(Exception, match="before Acknowledge"):
            STARTS[kind](spark, folder, feed).awaitTermination()
        entry = folder / "out" / LOG / str(len(BATCHES) - 1)
        entry.write_bytes(bytes(entry.stat().st_size) if torn is None else torn)
        STARTS[kind](spark, folder, feed).awaitTermination()
        assert part_files(folder / "out") == set(named_by_log(folder / "out"))
        read = "csv" if kind == "csv" else "parquet"
        assert output(spark, folder / "out", read).total() == expected(join_of(spark, feed, "ab"), BATCHES).total()


@pytest.mark.parametrize("damage", ["torn", pytest.param("lost", marks=pytest.mark.long)])
def test_what_spark_had_planned_is_planned_again_if_a_part_of_it_is_gone(spark, feed, damage):
    with dying_before(protocol.Commit, len(BATCHES)), pytest.raises(Exception, match="before Commit"):
        STARTS["parquet"](spark, feed).awaitTermination()
    logs, last = feed / "ck" / "spark", str(len(BATCHES) - 1)
    if damage == "torn":
        (logs / "offsets" / last).write_bytes(b"")
        (logs / "commits" / str(len(BATCHES) - 2)).write_bytes(b"")
    else:
        (logs / "sources" / "0" / last).unlink()
        (logs / "sources" / "0" / f".{last}.crc").unlink()
    STARTS["parquet"](spark, feed).awaitTermination()
    assert output(spark, feed / "out") == expected(join_of(spark, feed, "ab"), BATCHES)


# Nothing left over


@pytest.mark.parametrize(
    "kind",
    ["parquet", pytest.param("csv", marks=pytest.mark.long), pytest.param("partitioned", marks=pytest.mark.long)],
)
def test_what_a_dead_driver_has_left_is_removed_and_nothing_else(spark, feed, kind):
    last = protocol.Commit if kind == "parquet" else protocol.Acknowledge
    with dying_before(last, len(BATCHES)), pytest.raises(Exception, match="before"):
        STARTS[kind](spark, feed).awaitTermination()
    out, ours, others = feed / "out", Maker(Checkpoint(feed / "ck").uid()), Maker(uuid.uuid4().hex)
    assert bool(part_files(out) - set(named_by_log(out))) is (kind == "parquet")  # of the epoch that it ran
    left = [out / ours.part_name(1, 0, "csv"), out / LOG / f".9.{uuid.uuid4()}.tmp"]
    if kind == "partitioned":
        left.append(out / "k=0" / ours.part_name(1, 0, "parquet"))
    kept = [out / others.part_name(1, 0, "csv"), out / f"part-00000-{uuid.uuid4()}-c000.csv", out / "notes.txt"]
    staged = out / f"{ours.staging}x"
    staged.mkdir()
    for path in (*left, *kept, staged / "part-0"):
        path.write_bytes(b"x")
    STARTS[kind](spark, feed).awaitTermination()
    assert not [path for path in (*left, staged) if path.exists()]
    assert all(path.exists() for path in kept)
    assert part_files(out) - set(named_by_log(out)) == {str(path) for path in kept if path.name.startswith("part-")}


def fails_on_one_slot(spark, folder: Path):
    """A join of two slots; one of them fails in the second batch, when the other has written its results."""

    def check(values):
        if 33 in values.to_pylist():
            time.sleep(3)
            raise ValueError("33")
        return values.is_valid()

    join = join_of(spark, folder, "ab").option("slots", 2)
    return join.register("check", check, vectorized=True).where("check(a.v)")


def test_a_failed_epoch_leaves_no_part_files(spark, feed):
    with pytest.raises(Exception, match="33"):
        run(fails_on_one_slot(spark, feed), feed / "out", feed / "ck")
    until(lambda: part_files(feed / "out") == set(named_by_log(feed / "out")), 10, "part files to be removed")
    assert Checkpoint(feed / "ck").latest().epoch == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 192 KiB; `grow` makes it larger."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a file system here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("kind", mostly_long(["parquet", "partitioned", "csv"], "csv"))
def test_a_full_disk_keeps_nothing_of_what_did_not_fit(spark, tmp_path, small_disk, kind):
    many = random_batches(seed=9, streams="ab", batches=1, rows=20, keys=6)
    many += random_batches(seed=10, streams="ab", batches=1, rows=500 if kind == "csv" else 2500, keys=6)
    write_batches(tmp_path, many)
    writer = join_of(spark, tmp_path, "ab").option("slots", 2).writeStream.format("csv" if kind == "csv" else "parquet")
    writer = writer.partitionBy(*(["k"] if kind == "partitioned" else [])).option("path", str(small_disk / "out"))
    writer = writer.options(compression="none", checkpointLocation=tmp_path / "ck").trigger(availableNow=True)
    out = small_disk / "out"
    for _ in range(2):
        with pytest.raises(Exception, match=r"No space left|cannot write") as caught:
            writer.start().awaitTermination()
        assert kind != "parquet" or isinstance(caught.value, WatersmeetError)
        until(lambda: part_files(out) == set(named_by_log(out)), 10, "part files to be removed")
        assert not list(out.glob(".watersmeet-*"))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    writer.start().awaitTermination()
    read = "csv" if kind == "csv" else "parquet"
    with_room = join_of(spark, tmp_path, "ab").option("slots", 2)
    run(with_room, tmp_path / "out", tmp_path / "other")
    assert spark.read.format(read).load(str(out)).count() == spark.read.parquet(str(tmp_path / "out")).count()


# Without locks


@contextmanager
def paused_before(kind: type, visit: int):
    """Within, a driver waits before its n-th command of a kind until it is told to go on."""
    reached, go_on, visits, play = threading.Event(), threading.Event(), [], Drive.play

    def with_pause(drive: Drive, event: protocol.Event) -> None:
        for command in drive.steps(event):
            if isinstance(command, kind):
                visits.append(command)
                if len(visits) == visit:
                    reached.set()
                    go_on.wait(240)

    Drive.play = with_pause
    try:
        yield reached, go_on
    finally:
        go_on.set()
        Drive.play = play


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long) for kind in (protocol.Commit, protocol.Send, protocol.Discard)]
)
def test_a_second_driver_without_a_lock_does_no_harm(spark, tmp_path, kind):
    """The file of the lock is deleted while a driver is paused; another takes over, and then the first goes on."""
    batches = random_batches(seed=5, streams="abc", batches=5, rows=8, keys=24, batch_seconds=20, disorder=15)
    write_batches(tmp_path, batches)
    other = Driver(tmp_path)
    with paused_before(kind, 2) as (reached, go_on):
        first = start(join_of(spark, tmp_path).option("slots", 2), tmp_path / "out", tmp_path / "ck")
        assert reached.wait(120)
        (tmp_path / "ck" / "watersmeet" / "lock").unlink()
        other.go()
        assert other.wait() == 0, other.complaint()
        taken = output(spark, tmp_path / "out")
        go_on.set()
        with pytest.raises(Exception, match=r"FENCED|committed by another driver|Concurrent|Multiple streaming"):
            first.awaitTermination()
    right = expected(join_of(spark, tmp_path), batches)
    assert taken == right
    assert output(spark, tmp_path / "out") == right
    write_batches(tmp_path, batches[:1], start=len(batches))
    run(join_of(spark, tmp_path), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join_of(spark, tmp_path), [*batches, batches[0]])
    assert part_files(tmp_path / "out") == set(named_by_log(tmp_path / "out"))
