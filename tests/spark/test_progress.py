"""Progress is true and whole: each row counts once, and a trigger that does nothing has the fields of any other."""

import threading

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

from tests.spark.dying import dying_before
from tests.spark.helpers import join_of, random_batches, readings, run, until, write_batches
from watersmeet.epoch import protocol
from watersmeet.runtime.spark.query import resent_by

pytestmark = pytest.mark.spark

BATCHES = random_batches(seed=4, streams="abc", batches=3, rows=30)
OPERATOR = {
    "operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "allUpdatesTimeMs", "allRemovalsTimeMs",
    "commitTimeMs", "memoryUsedBytes", "numRowsDroppedByWatermark", "numShufflePartitions", "numStateStoreInstances",
    "customMetrics",
}  # fmt: skip


def assert_whole(progress) -> None:
    """All fields, by key and by attribute, and as JSON."""
    assert set(progress["stateOperators"][0]) == OPERATOR
    assert progress.stateOperators[0].numRowsTotal == progress["stateOperators"][0]["numRowsTotal"]
    assert progress.sink.numOutputRows == progress["sink"]["numOutputRows"]
    assert progress.sink.description.startswith("FileSink[parquet:")
    assert {"epoch", "adaptations", "statistics", "eventTime"} <= progress.keys()
    assert {"join", "commitState", "writeSink"} <= progress.durationMs.keys()
    assert progress.numInputRows == sum(source.numInputRows for source in progress.sources)
    assert '"operatorName": "watersmeetJoin"' in progress.prettyJson


def test_every_row_counts_once_also_where_a_plan_is_chosen(spark, tmp_path):
    write_batches(tmp_path, BATCHES)
    query = run(join_of(spark, tmp_path), tmp_path / "out", tmp_path / "ck")
    found = query.recentProgress
    assert [p.numInputRows for p in found] == [sum(t.num_rows for t in batch.values()) for batch in BATCHES]
    assert [[s.numInputRows for s in p.sources] for p in found] == [[31, 31, 31]] * 3
    for progress in found:
        assert_whole(progress)
        kept = progress.numInputRows - sum(
            progress["stateOperators"][0]["customMetrics"][f"rowsDropped{why}"] for why in ("NullKey", "NoEventTime")
        )
        assert progress.stateOperators[0].numRowsUpdated == kept - progress.stateOperators[0].numRowsDroppedByWatermark


def test_the_watermark_shown_is_the_one_that_was_used(spark, tmp_path):
    at = [{s: readings([(1, seconds, n)]) for s in "abc"} for n, seconds in enumerate((100, 200, 300))]
    write_batches(tmp_path, at)
    query = run(join_of(spark, tmp_path, delay="10 seconds"), tmp_path / "out", tmp_path / "ck")
    shown = [progress.eventTime.get("watermark") for progress in query.recentProgress]
    assert shown == [None, "1970-01-01T00:01:30.000Z", "1970-01-01T00:03:10.000Z"]


def test_a_run_with_nothing_new_and_an_idle_trigger_have_all_fields(spark, tmp_path):
    write_batches(tmp_path, BATCHES)
    last = run(join_of(spark, tmp_path), tmp_path / "out", tmp_path / "ck").lastProgress
    writer = join_of(spark, tmp_path).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.start(str(tmp_path / "out"))
    try:
        until(lambda: query.lastProgress is not None, what="an idle trigger")
        idle = query.lastProgress
        assert_whole(idle)
        assert (idle.numInputRows, idle.sink.numOutputRows, idle.stateOperators[0].numRowsUpdated) == (0, 0, 0)
        assert idle.stateOperators[0].numRowsTotal == last.stateOperators[0].numRowsTotal > 0
        assert idle.eventTime["watermark"] > last.eventTime["watermark"]
        assert idle.statistics.keys() >= last.statistics.keys() - {"optimizer"}
        for section in ("totals", "recent", "stores", "selectivities", "costsNs"):
            assert idle.statistics[section] == last.statistics[section]
        assert {arrived["rows"] for arrived in idle.statistics["arrivals"].values()} == {0}
    finally:
        query.stop()


def test_streams_without_a_row_have_all_fields(spark, tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    writer = join_of(spark, tmp_path).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.start(str(tmp_path / "out"))
    try:
        until(lambda: query.lastProgress is not None, what="an idle trigger")
        assert_whole(query.lastProgress)
        assert query.lastProgress.stateOperators[0].numRowsTotal == 0
    finally:
        query.stop()


def test_results_that_are_sent_again_are_counted(spark, tmp_path):
    write_batches(tmp_path, BATCHES)
    with dying_before(protocol.Send, len(BATCHES)), pytest.raises(Exception, match="before Send"):
        run(join_of(spark, tmp_path), tmp_path / "out", tmp_path / "ck")
    query = run(join_of(spark, tmp_path), tmp_path / "out", tmp_path / "ck")
    (progress,) = query.recentProgress
    assert_whole(progress)
    assert progress.batchId == len(BATCHES) - 1
    assert progress.sink.numOutputRows == resent_by(query) > 0


def test_a_listener_of_the_query_gets_the_progress_of_the_join(spark, tmp_path):
    class Keeping(StreamingQueryListener):
        def __init__(self):
            self.progress, self.ended = [], threading.Event()

        def onQueryStarted(self, event):
            pass

        def onQueryProgress(self, event):
            self.progress.append(event.progress)

        def onQueryIdle(self, event):
            pass

        def onQueryTerminated(self, event):
            self.ended.set()

    listener = Keeping()
    writer = join_of(spark, tmp_path).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.start(str(tmp_path / "out"))
    try:
        query.addListener(listener)
        write_batches(tmp_path, BATCHES[:1])
        until(lambda: any(p.numInputRows for p in listener.progress), what="progress")
    finally:
        query.stop()
    assert listener.ended.wait(60)
    told = next(p for p in listener.progress if p.numInputRows)
    assert_whole(told)
    query.removeListener(listener)
