"""Spilling on disks that are full, fail or lose bytes: the query ends with an error that says so, and loses nothing."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.helpers import (
    expected,
    join_of,
    output,
    random_batches,
    run,
    start,
    write_batches,
)
from tests.spark.test_spilling import SMALL, begin, owing_query
from watersmeet.errors import CheckpointError, CorruptSegmentError, WatersmeetError
from watersmeet.runtime.spark.query import epochs_of
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.measures import OWED


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own for the segments of `tmp_path/ck`, and one for `tmp_path/out`; a function that
    mounts the first anew."""
    segments = tmp_path / "ck" / "watersmeet" / "segments"
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    mounted = []

    def mount(options: str, folder: Path = segments) -> int:
        return subprocess.call([*sudo, "mount", "-t", "tmpfs", "-o", options, "tmpfs", folder])

    for folder in (segments, tmp_path / "out"):
        folder.mkdir(parents=True)
        if mount("size=2m", folder) != 0:
            pytest.skip("no file system can be mounted here")
        mounted.append(folder)
    yield mount
    for folder in mounted:
        subprocess.check_call([*sudo, "umount", "--lazy", folder])


@pytest.mark.parametrize(
    "fault", ["No space left on device", pytest.param("Read-only file system", marks=pytest.mark.long)]
)
def test_a_disk_that_takes_no_more_segments(spark, tmp_path, disk, fault):
    batches = random_batches(seed=37, streams="abc", batches=3, rows=20, keys=8)
    write_batches(tmp_path, batches[:2])
    join = join_of(spark, tmp_path).options(**SMALL)
    query = begin(join, tmp_path)
    query.processAllAvailable()
    segments = tmp_path / "ck" / "watersmeet" / "segments"
    if fault.startswith("No space"):
        fill(segments / "filler")
    else:
        assert disk("remount,bind,ro") == 0
    write_batches(tmp_path, batches[2:], start=2)  # the epoch that has its rows begins with a spill
    with pytest.raises(CheckpointError, match=rf"cannot write {segments}/\S+\.seg: {fault}. make room there") as caught:
        query.awaitTermination()
    assert caught.value.error_class == "CANNOT_WRITE_STATE"
    assert not query.isActive
    if fault.startswith("No space"):
        (segments / "filler").unlink()
    else:
        assert disk("remount,bind,rw") == 0
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    assert sum(epoch.count(OWED) for epoch in epochs_of(query)) > 0


def test_a_disk_that_takes_no_more_results(spark, tmp_path, disk):
    batches = random_batches(seed=37, streams="abc", batches=1, rows=20, keys=8)
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path).options(**SMALL)
    fill(tmp_path / "out" / "_filler")
    with pytest.raises(WatersmeetError, match=rf"cannot write {tmp_path}/out/\S+: .*No space left on device"):
        run(join, tmp_path / "out", tmp_path / "ck")
    assert not list((tmp_path / "out").glob("part-*"))
    (tmp_path / "out" / "_filler").unlink()
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)


def fill(path: Path) -> None:
    """Write until the file system takes no more."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


@pytest.mark.parametrize("damage", ["corrupted", pytest.param("missing", marks=pytest.mark.long)])
def test_a_damaged_segment_of_spilled_rows_is_named_when_they_are_cleaned_up(spark, tmp_path, damage):
    batches = random_batches(seed=38, streams="abc", batches=2, rows=20, keys=8)
    owing_query(spark, tmp_path, batches)
    before = output(spark, tmp_path / "out")
    # Elsewhere, because a Python worker verifies a file once, and keeps it mapped.
    (tmp_path / "ck").rename(tmp_path / "moved")
    checkpoint = Checkpoint(tmp_path / "moved")
    closed = [extent for extent in checkpoint.latest().all_extents() if not extent.is_active]
    segment = checkpoint.segments / closed[0].segment
    whole = segment.read_bytes()
    segment.unlink()
    if damage == "corrupted":
        segment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    join = join_of(spark, tmp_path).options(**SMALL)
    query = start(join, tmp_path / "out", tmp_path / "moved")
    with pytest.raises(CorruptSegmentError, match=f"segment {segment.name} of the checkpoint is {damage}") as caught:
        query.awaitTermination()
    assert f"restore {segment} from a backup" in str(caught.value)
    assert output(spark, tmp_path / "out") == before
    segment.write_bytes(whole)
    run(join, tmp_path / "out", tmp_path / "moved")
    assert output(spark, tmp_path / "out") == expected(join, batches)


# --- options ---------------------------------------------------------------------------------------------------------
