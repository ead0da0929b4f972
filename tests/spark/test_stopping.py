"""Queries that end leave nothing in the folder for temporary files; one that is stopped in the middle of a micro-batch
ends within seconds, and Spark takes that for a stop, not for a failure."""

import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.helpers import join_of
from watersmeet import WatersmeetError
from watersmeet.runtime.spark.stopping import tasks_running
from watersmeet.runtime.spark.stream_join import StreamJoin
from watersmeet.state.temporary import PREFIX

PATIENCE_S = 60


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """The folder for temporary files."""
    found = tmp_path / "tmp"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


def slow_join(spark, feed, begun: Path) -> StreamJoin:
    """A join whose tasks do not end by themselves; the file `begun` says that one runs."""
    marker = str(begun)

    def slow(x: pa.Array, y: pa.Array) -> pa.Array:
        Path(marker).touch()
        time.sleep(2 * PATIENCE_S)
        return pa.array([True] * len(x))

    return join_of(spark, feed, "ab").register("slow", slow).where("slow(a.v, b.v)")


def await_file(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, "no task has started"
        time.sleep(0.02)


@pytest.mark.parametrize("sink", ["memory", "console", "noop", "foreachBatch"])
def test_no_temporary_checkpoint_is_left_by_a_query_that_ends(spark, feed, root, sink):
    seen = []
    (root / f"{PREFIX}of-a-killed-process").mkdir(mode=0o700)
    writer = join_of(spark, feed, "ab").writeStream.queryName(f"left_{sink}").trigger(availableNow=True)
    if sink == "foreachBatch":
        writer = writer.foreachBatch(lambda results, epoch: seen.append(len(list(root.iterdir()))))
    else:
        writer = writer.format(sink)
    query = writer.start()
    query.awaitTermination()
    assert query.lastProgress["stateOperators"][0]["numRowsTotal"] > 0
    assert list(root.iterdir()) == []
    assert sink != "foreachBatch" or set(seen) == {1}


def test_no_temporary_checkpoint_is_left_by_a_query_that_fails_or_is_refused(spark, feed, root):
    def fail(results, epoch) -> None:
        raise ValueError("no")

    query = join_of(spark, feed, "ab").writeStream.foreachBatch(fail).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="no"):
        query.awaitTermination()
    assert list(root.iterdir()) == []
    with pytest.raises(WatersmeetError, match="queryName"):
        join_of(spark, feed, "ab").writeStream.format("memory").trigger(availableNow=True).start()
    assert list(root.iterdir()) == []


def test_stop_in_the_middle_of_a_batch_is_quick_and_no_failure_to_spark(spark, feed, root, tmp_path):
    """Before, Spark's search through the text of the cancelled job overflowed its stack."""
    query = slow_join(spark, feed, tmp_path / "begun").writeStream.format("noop").start()
    await_file(tmp_path / "begun")
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 15
    assert tasks_running(spark) == 0  # a session that is stopped now has no error of theirs to print
    assert query.exception() is None
    assert query.status["message"] == "Stopped"
    assert list(root.iterdir()) == []


def test_a_batch_whose_jobs_ctrl_c_has_cancelled_ends_its_query(spark, feed, root, tmp_path):
    """PySpark's handler of Ctrl-C cancels all jobs before it raises KeyboardInterrupt."""
    query = slow_join(spark, feed, tmp_path / "begun").writeStream.format("noop").start()
    await_file(tmp_path / "begun")
    threading.Thread(target=spark.sparkContext.cancelAllJobs).start()
    with pytest.raises(WatersmeetError, match="all jobs of Spark were cancelled") as found:
        query.awaitTermination(PATIENCE_S)
    assert found.value.error_class == "JOBS_CANCELLED"
    assert query.status["message"] == "Stopped"
    assert not query.isActive
    assert list(root.iterdir()) == []
